"""Taking up after processes that died, and garbage collection: what goes is first doomed, then deleted.

Whatever happens in between, deleting again is harmless and the next process does it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from kilonova.catalog import chains, runs, space
from kilonova.catalog.database import Catalog
from kilonova.engine.seam import Files
from kilonova.engine.telling import Listener, Recovered
from kilonova.errors import BrokenInvariant, KilonovaError, UnknownName
from kilonova.model.block import BlockName
from kilonova.schedule.collection import Provenance, Verdict, collect


def take_up(catalog: Catalog, files: Files, listener: Listener) -> None:
    """End the runs whose processes went silent, so that their tasks are due again, and delete what they left."""
    _end_silent(catalog, listener)
    sweep(catalog, files)


def _end_silent(catalog: Catalog, listener: Listener) -> None:
    with catalog.reading() as tx:
        if not runs.any_silent(tx):
            return
    with catalog.writing() as tx:
        silent = runs.expire(tx)
    for run in silent:
        listener(Recovered(run=run.number, tasks=run.tasks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """How many blocks' files were deleted, and the first error met; what it hit stays doomed until next time."""

    blocks: int
    error: Exception | None


def sweep(catalog: Catalog, files: Files) -> Swept:
    """Delete the files of doomed blocks; those that cannot be deleted now are no reason to stop anything."""
    with catalog.reading() as tx:
        doomed = chains.doomed(tx)
    deleted: list[int] = []
    first: Exception | None = None
    for name in doomed:
        try:
            files.delete([name])
            deleted.append(name.number)
        except Exception as error:  # the file system's, or that of a Spark that has died
            first = first or error
    if deleted:
        with catalog.writing() as tx:
            chains.bury(tx, deleted)
    return Swept(blocks=len(deleted), error=first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What garbage collection did, or would do.

    Attributes:
        verdicts: per live block, whether it goes and what holds it if not.
        swept: how many blocks' files were deleted, those of failed runs included.
        strangers: directories in the warehouse that the catalog has never named; they are left alone.
    """

    verdicts: tuple[Verdict, ...]
    swept: int
    strangers: tuple[str, ...]


def collect_garbage(
    catalog: Catalog,
    files: Files,
    listener: Listener,
    *,
    channels: tuple[str, ...] | None = None,
    provenance: Provenance = Provenance.LOGICAL,
    logs: timedelta | None = None,
    dry_run: bool = False,
    full: bool = False,
) -> Collected:
    """Delete the blocks that nothing needs any more (logic evolution, A.2).

    Args:
        catalog: the catalog.
        files: the warehouse's files.
        listener: hears of runs that were taken up.
        channels: the channels to collect; None for all.
        provenance: which provenance references hold blocks back.
        logs: for how long the logs of runs are kept; None leaves them alone.
        dry_run: only say what would go.
        full: whether the catalog's disk is full: files go before the catalog is written, which needs room. A process
            that dies in between leaves blocks without files that nothing needs, and that go next time.

    Raises:
        UnknownName: there is no such channel.
        BrokenInvariant: something would go that is still needed.
        StorageFailed: some files could not be deleted; all others were.
        CatalogFull: there is no room for writing the catalog.
    """
    if dry_run:
        with catalog.reading() as tx:
            for name in channels or ():
                chains.channel_id(tx, name)
            return Collected(
                verdicts=collect(space.holdings(tx, provenance), channels, provenance), swept=0, strangers=()
            )
    if full:
        _delete_dead(catalog, files)
        if logs is not None:
            files.delete_logs((catalog.clock() - logs).date())
    _end_silent(catalog, listener)
    with catalog.writing() as tx:
        for name in channels or ():
            chains.channel_id(tx, name)
        verdicts = collect(space.holdings(tx, provenance), channels, provenance)
        chains.doom(tx, [verdict.block.number for verdict in verdicts if verdict.goes])
        for name, after in chains.chronicles(tx, {verdict.channel for verdict in verdicts if verdict.goes}).items():
            try:
                after.snapshot(after.readable)
            except UnknownName:
                raise BrokenInvariant("the newest point could not be read any more", channel=name) from None
        if full:  # nobody can begin to read them before this transaction has ended
            _delete_each(files, [verdict.block.name for verdict in verdicts if verdict.goes])
    on_disk = files.blocks()
    with catalog.reading() as tx:
        states = chains.block_states(tx, on_disk)
    swept = sweep(catalog, files)
    files.delete([name for name in on_disk if states.get(name) == chains.GONE])
    if logs is not None:
        files.delete_logs((catalog.clock() - logs).date())
    if swept.error is not None:
        raise swept.error
    strangers = tuple(name.directory for name in on_disk if name not in states)
    return Collected(verdicts=verdicts, swept=swept.blocks, strangers=strangers)


def _delete_dead(catalog: Catalog, files: Files) -> None:
    """Delete the files of blocks that the catalog has given up already, without writing it."""
    with catalog.reading() as tx:
        states = chains.block_states(tx, on_disk := files.blocks())
        doomed = chains.doomed(tx)
    _delete_each(files, [*doomed, *(name for name in on_disk if states.get(name) == chains.GONE)])


def _delete_each(files: Files, blocks: Iterable[BlockName]) -> None:
    """Delete the files of blocks, as far as that works; `sweep` says what does not."""
    for block in blocks:
        with suppress(KilonovaError):
            files.delete([block])
