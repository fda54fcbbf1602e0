"""Taking up after processes that died, and garbage collection: what goes is first doomed, then deleted.

Whatever happens in between, deleting again is harmless and the next process does it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kilonova.catalog import chains, runs, space
from kilonova.catalog.database import Catalog, Transaction
from kilonova.engine.events import Listener, Recovered
from kilonova.engine.seam import Files
from kilonova.errors import BrokenInvariant, UnknownName
from kilonova.schedule.collection import Provenance, Verdict, collect


def take_up(tx: Transaction, listener: Listener) -> None:
    """End the runs whose processes went silent, so that their tasks are due again."""
    for run in runs.expire(tx):
        listener(Recovered(run=run.number, tasks=run.tasks))


def sweep(catalog: Catalog, files: Files) -> int:
    """Delete the files of doomed blocks.

    Returns:
        How many blocks' files were deleted.
    """
    with catalog.reading() as tx:
        doomed = chains.doomed(tx)
    if not doomed:
        return 0
    files.delete(doomed)
    with catalog.writing() as tx:
        chains.bury(tx, doomed)
    return len(doomed)


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
    strangers: tuple[int, ...]


def collect_garbage(
    catalog: Catalog,
    files: Files,
    listener: Listener,
    *,
    channels: tuple[str, ...] | None = None,
    provenance: Provenance = Provenance.LOGICAL,
    dry_run: bool = False,
) -> Collected:
    """Delete the blocks that nothing needs any more (logic evolution, A.2).

    Args:
        catalog: the catalog.
        files: the warehouse's files.
        listener: hears of runs that were taken up.
        channels: the channels to collect; None for all.
        provenance: which provenance references hold blocks back.
        dry_run: only say what would go.

    Raises:
        UnknownName: there is no such channel.
        BrokenInvariant: something would go that is still needed.
    """
    if dry_run:
        with catalog.reading() as tx:
            for name in channels or ():
                chains.channel_id(tx, name)
            return Collected(verdicts=collect(space.holdings(tx), channels, provenance), swept=0, strangers=())
    with catalog.writing() as tx:
        for name in channels or ():
            chains.channel_id(tx, name)
        take_up(tx, listener)
        verdicts = collect(space.holdings(tx), channels, provenance)
        chains.doom(tx, [verdict.block.number for verdict in verdicts if verdict.goes])
        for name in sorted({verdict.channel for verdict in verdicts}):
            after = chains.chronicle(tx, name)
            try:
                after.snapshot(after.readable)
            except UnknownName:
                raise BrokenInvariant("the newest point could not be read any more", channel=name) from None
    on_disk = files.blocks()
    with catalog.reading() as tx:
        states = chains.block_states(tx)
    swept = sweep(catalog, files)
    files.delete([number for number in on_disk if states.get(number) == chains.GONE])
    return Collected(
        verdicts=verdicts, swept=swept, strangers=tuple(number for number in on_disk if number not in states)
    )
