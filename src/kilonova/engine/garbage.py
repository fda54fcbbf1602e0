"""Garbage collection in two phases: blocks are marked for deletion, then deleted.

Deletion is idempotent: if a process crashes between the phases, the next one deletes what is marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from kilonova.catalog import channel_store, gc_roots, pins
from kilonova.catalog.database import Catalog, Transaction
from kilonova.engine.interfaces import BlockStore
from kilonova.engine.run_events import Listener
from kilonova.engine.run_recovery import AT_ONCE, delete_doomed_blocks, expire_runs
from kilonova.errors import BrokenInvariant, KilonovaError, NotFound
from kilonova.model.block import BlockName
from kilonova.model.channel import ChannelState
from kilonova.schedule.garbage import GCDecision, GCRoots, PlacedBlock, Provenance, decide_collection


@dataclass(frozen=True, slots=True, kw_only=True)
class GCReport:
    """Report of what garbage collection did, or would do.

    Attributes:
        verdicts: per live block of each channel, whether it is collected, and what retains it if not.
        swept: number of blocks whose files were deleted, those of failed runs included.
        branches: number of deleted branches, whose processes ended before they could delete them.
        unknown_directories: directories in the warehouse that are unknown to the catalog; they are not touched.
    """

    verdicts: tuple[GCDecision, ...]
    swept: int
    branches: int
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
            roots = _gc_roots(tx, channels, provenance)
        return GCReport(
            verdicts=decide_collection(roots, channels, provenance), swept=0, branches=0, unknown_directories=()
        )
    if full:
        _delete_dead(catalog, files)
        _delete_logs(catalog, files, logs)
    expire_runs(catalog, listener)
    verdicts = _collect(catalog, files if full else None, channels, provenance)
    on_disk = files.blocks()
    with catalog.reading() as tx:
        states = channel_store.block_states(tx, on_disk)
    swept, failure = delete_doomed_blocks(catalog, files)
    files.delete([name for name in on_disk if states.get(name) == channel_store.GONE])
    _delete_logs(catalog, files, logs)
    branches = _delete_branches(catalog, files)
    if failure is not None:
        raise failure
    unknown_directories = tuple(name.directory for name in on_disk if name not in states)
    return GCReport(
        verdicts=tuple(verdicts.values()), swept=swept, branches=branches, unknown_directories=unknown_directories
    )


def _collect(
    catalog: Catalog, files: BlockStore | None, channels: tuple[str, ...] | None, provenance: Provenance
) -> dict[PlacedBlock, GCDecision]:
    """Remove the blocks that may be removed, some in each transaction, and return all decisions.

    If `files` is given, it deletes the files of blocks before a transaction is committed.
    """
    verdicts: dict[PlacedBlock, GCDecision] = {}
    decided: GCRoots | None = None
    going: list[PlacedBlock] = []
    while True:
        with catalog.reading() as tx:  # outside of the lock: decided again under it only if changed
            before = _gc_roots(tx, channels, provenance)
        if before != decided:
            verdicts |= (found := _decide(before, channels, provenance))
            going = _collectable(found)
        with catalog.writing() as tx:
            if (now := _gc_roots(tx, channels, provenance)) != before:
                verdicts |= (found := _decide(now, channels, provenance))
                going = _collectable(found)
            some, going = _by_channel(going[:AT_ONCE]), going[AT_ONCE:]
            for channel, blocks in some.items():
                doomed = channel_store.remove_blocks(tx, channel, blocks)
                if files is not None:  # no reader can begin to read them before this transaction has ended
                    _delete_each(files, doomed)
        if not going:
            return verdicts
        decided = replace(now, states=_without_blocks(now.states, some))


def _gc_roots(tx: Transaction, channels: tuple[str, ...] | None, provenance: Provenance) -> GCRoots:
    """Return what may retain blocks; raise NotFound if one of the channels does not exist."""
    for name in channels or ():
        channel_store.channel_id(tx, name)
    return gc_roots.gc_roots(tx, provenance)


def _decide(roots: GCRoots, channels: tuple[str, ...] | None, provenance: Provenance) -> dict[PlacedBlock, GCDecision]:
    """Return the decision per placement; check that each newest point stays readable after the collection."""
    verdicts = decide_collection(roots, channels, provenance)
    going = _by_channel(verdict.place for verdict in verdicts if verdict.goes)
    for name, after in _without_blocks({name: roots.states[name] for name in going}, going).items():
        try:
            after.snapshot(after.latest_readable)
        except NotFound:
            raise BrokenInvariant("the newest point could not be read any more", channel=name) from None
    return {verdict.place: verdict for verdict in verdicts}


def _collectable(verdicts: Mapping[PlacedBlock, GCDecision]) -> list[PlacedBlock]:
    """Return the blocks to collect, the newest first, because blocks made from a block are newer than it."""
    going = (place for place, verdict in verdicts.items() if verdict.goes)
    return sorted(going, key=lambda place: (-place.block, place.channel))


def _by_channel(places: Iterable[PlacedBlock]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for place in places:
        found.setdefault(place.channel, set()).add(place.block)
    return found


def _without_blocks(states: Mapping[str, ChannelState], removed: Mapping[str, set[int]]) -> dict[str, ChannelState]:
    """Return the states of channels after some blocks were removed from them, if nothing else changes."""
    return {
        name: replace(state, blocks=tuple(block for block in state.blocks if block.number not in removed[name]))
        if name in removed
        else state
        for name, state in states.items()
    }


def _delete_dead(catalog: Catalog, files: BlockStore) -> None:
    """Delete the files of blocks that the catalog has already marked as deleted or for deletion, without writing it."""
    with catalog.reading() as tx:
        states = channel_store.block_states(tx, on_disk := files.blocks())
        doomed = channel_store.marked_for_deletion(tx)
    _delete_each(files, [*doomed, *(name for name in on_disk if states.get(name) == channel_store.GONE)])


def _delete_branches(catalog: Catalog, files: BlockStore) -> int:
    """Delete the branches whose pins have expired, as those of processes do that were killed; return their number."""
    known = files.branches()
    with catalog.reading() as tx:  # a branch has its pins before its directory
        held = pins.holders(tx)
    abandoned = [name for name in known if pins.holder_of_branch(name) not in held]
    for name in abandoned:
        files.delete_branch(name)
    return len(abandoned)


def _delete_logs(catalog: Catalog, files: BlockStore, retention: timedelta | None) -> None:
    if retention is not None:
        files.delete_logs((catalog.clock() - retention).date())


def _delete_each(files: BlockStore, blocks: Iterable[BlockName]) -> None:
    """Delete the files of blocks, ignoring failures; `delete_doomed_blocks` reports them."""
    for block in blocks:
        with suppress(KilonovaError):
            files.delete([block])
