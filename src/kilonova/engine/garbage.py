"""Garbage collection in two phases: blocks are marked for deletion, then deleted.

Deletion is idempotent: if a process crashes between the phases, the next one deletes what is marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from kilonova.catalog import channel_store, gc_roots
from kilonova.catalog.database import Catalog, Transaction
from kilonova.engine.interfaces import BlockStore
from kilonova.engine.run_events import Listener
from kilonova.engine.run_recovery import AT_ONCE, delete_doomed_blocks, expire_runs
from kilonova.errors import BrokenInvariant, KilonovaError, NotFound
from kilonova.model.block import Block, BlockName
from kilonova.schedule.garbage import GCDecision, GCRoots, Provenance, decide_collection


@dataclass(frozen=True, slots=True, kw_only=True)
class GCReport:
    """Report of what garbage collection did, or would do.

    Attributes:
        verdicts: per live block, whether it is collected, and what retains it if not.
        swept: number of blocks whose files were deleted, those of failed runs included.
        unknown_directories: directories in the warehouse that are unknown to the catalog; they are not touched.
    """

    verdicts: tuple[GCDecision, ...]
    swept: int
    unknown_directories: tuple[str, ...]


def collect_garbage(
    catalog: Catalog,
    files: BlockStore,
    listener: Listener,
    *,
    channels: tuple[str, ...] | None = None,
    provenance: Provenance = Provenance.LOGICAL,
    logs: timedelta | None = None,
    dry_run: bool = False,
    full: bool = False,
) -> GCReport:
    """Delete the blocks that nothing needs any more (logic evolution, A.2).

    Args:
        catalog: the catalog.
        files: the warehouse's files.
        listener: is notified of runs that were recovered.
        channels: the channels to collect; None for all.
        provenance: the provenance references that retain blocks.
        logs: retention of the logs of runs; None to keep them all.
        dry_run: only report what would be collected.
        full: whether the catalog's disk is full: files are deleted before the catalog is written, which needs space. A
            process that crashes in between leaves unneeded blocks without files, which are collected next time.

    Raises:
        NotFound: there is no such channel.
        BrokenInvariant: something that is still needed would be collected.
        StorageFailed: some files could not be deleted; all others were.
        CatalogFull: there is no space for writing the catalog.
    """
    if dry_run:
        with catalog.reading() as tx:
            holdings = _gc_roots(tx, channels, provenance)
        return GCReport(verdicts=decide_collection(holdings, channels, provenance), swept=0, unknown_directories=())
    if full:
        _delete_dead(catalog, files)
        if logs is not None:
            files.delete_logs((catalog.clock() - logs).date())
    expire_runs(catalog, listener)
    verdicts: dict[int, GCDecision] = {}
    decided: GCRoots | None = None
    going: list[Block] = []
    while True:
        with catalog.reading() as tx:  # outside of the lock: decided again under it only if changed
            held = _gc_roots(tx, channels, provenance)
        if held != decided:
            verdicts |= (found := _decide(held, channels, provenance))
            going = _collectable(found)
        with catalog.writing() as tx:
            if (now := _gc_roots(tx, channels, provenance)) != held:
                verdicts |= (found := _decide(now, channels, provenance))
                going = _collectable(found)
            some, going = going[:AT_ONCE], going[AT_ONCE:]
            channel_store.mark_for_deletion(tx, [block.number for block in some])
            if full:  # no reader can begin to read them before this transaction has ended
                _delete_each(files, [block.name for block in some])
        if not going:
            break
        decided = _without_blocks(now, some)
    on_disk = files.blocks()
    with catalog.reading() as tx:
        states = channel_store.block_states(tx, on_disk)
    swept = delete_doomed_blocks(catalog, files)
    files.delete([name for name in on_disk if states.get(name) == channel_store.GONE])
    if logs is not None:
        files.delete_logs((catalog.clock() - logs).date())
    if swept.error is not None:
        raise swept.error
    unknown_directories = tuple(name.directory for name in on_disk if name not in states)
    return GCReport(verdicts=tuple(verdicts.values()), swept=swept.blocks, unknown_directories=unknown_directories)


def _gc_roots(tx: Transaction, channels: tuple[str, ...] | None, provenance: Provenance) -> GCRoots:
    """Return what may retain blocks; raise NotFound if one of the channels does not exist."""
    for name in channels or ():
        channel_store.channel_id(tx, name)
    return gc_roots.gc_roots(tx, provenance)


def _decide(holdings: GCRoots, channels: tuple[str, ...] | None, provenance: Provenance) -> dict[int, GCDecision]:
    """Return the decision per block, by number; check that each newest point stays readable after the collection."""
    verdicts = decide_collection(holdings, channels, provenance)
    going = {verdict.block.number for verdict in verdicts if verdict.goes}
    for name in {verdict.channel for verdict in verdicts if verdict.goes}:
        before = holdings.states[name]
        after = replace(before, blocks=tuple(block for block in before.blocks if block.number not in going))
        try:
            after.snapshot(after.latest_readable)
        except NotFound:
            raise BrokenInvariant("the newest point could not be read any more", channel=name) from None
    return {verdict.block.number: verdict for verdict in verdicts}


def _collectable(verdicts: Mapping[int, GCDecision]) -> list[Block]:
    """Return the blocks to collect, the newest first, because blocks made from a block are newer than it."""
    return [verdicts[number].block for number in sorted(verdicts, reverse=True) if verdicts[number].goes]


def _without_blocks(holdings: GCRoots, gone: Iterable[Block]) -> GCRoots:
    """Return what retains blocks after some were collected, if nothing else changes."""
    numbers = {block.number for block in gone}
    states = {
        name: replace(each, blocks=tuple(block for block in each.blocks if block.number not in numbers))
        for name, each in holdings.states.items()
    }
    return replace(holdings, states=states)


def _delete_dead(catalog: Catalog, files: BlockStore) -> None:
    """Delete the files of blocks that the catalog has already marked as deleted or for deletion, without writing it."""
    with catalog.reading() as tx:
        states = channel_store.block_states(tx, on_disk := files.blocks())
        doomed = channel_store.marked_for_deletion(tx)
    _delete_each(files, [*doomed, *(name for name in on_disk if states.get(name) == channel_store.GONE)])


def _delete_each(files: BlockStore, blocks: Iterable[BlockName]) -> None:
    """Delete the files of blocks, ignoring failures; `delete_doomed_blocks` reports them."""
    for block in blocks:
        with suppress(KilonovaError):
            files.delete([block])
