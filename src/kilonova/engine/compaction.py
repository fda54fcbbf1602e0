"""Compaction: the newest snapshot of a channel, written down as a base (Nova, section 2.4).

Small neighbouring deltas can also become one delta. Either adds blocks to points that are there; no reader sees
anything else than before, only sooner.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kilonova.catalog import chains, registry
from kilonova.catalog.database import Transaction
from kilonova.engine.seam import Warehouse
from kilonova.engine.telling import Started, StepEnded, StepStarted
from kilonova.engine.undertaking import Begun, Prepared, Results, Workplace, carry_out
from kilonova.errors import KilonovaError
from kilonova.model.block import Block, BlockName
from kilonova.model.channel import Chronicle
from kilonova.model.reading import Snapshot
from kilonova.model.run import Input, Output, RunKind
from kilonova.schedule.compacting import mergeable

STEP = "compaction"


def is_compactable(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is anything but a base in the warehouse."""
    return bool(snapshot.deltas) or (snapshot.base is not None and snapshot.base.external is not None)


def compact(workplace: Workplace, warehouse: Warehouse[Any], channel: str) -> tuple[int, Results] | None:
    """Write down the newest snapshot of a channel as a base.

    Returns:
        The run's number and what it published; None if the newest point has a base already, or no rows.

    Raises:
        UnknownName: there is no such channel.
    """

    def choose(chronicle: Chronicle, _cursors: list[int]) -> tuple[Part, ...]:
        snapshot = chronicle.snapshot(chronicle.readable)
        if not is_compactable(snapshot):
            return ()
        point = chronicle.effective
        reason = f"{len(snapshot.deltas)} deltas merged" + (" with a base" if snapshot.base else "")
        if not snapshot.deltas:
            reason = "a base outside of the warehouse copied"
        write = partial(warehouse.compact, replace(snapshot, at=point))
        return (Part(read=snapshot.blocks, start=0, end=point, reason=reason, write=write),)

    return _rewrite(workplace, channel, choose)


def merge_deltas(
    workplace: Workplace, warehouse: Warehouse[Any], channel: str, *, few: bool
) -> tuple[int, Results] | None:
    """Put small neighbouring deltas of a channel together.

    Args:
        workplace: where the run takes place.
        warehouse: reads and writes blocks.
        channel: the channel.
        few: put even two of them together, and not only as many as are worth it.

    Returns:
        The run's number and what it published; None if there are no such neighbours.

    Raises:
        UnknownName: there is no such channel.
    """

    def choose(chronicle: Chronicle, cursors: list[int]) -> tuple[Part, ...]:
        deltas = chronicle.snapshot(chronicle.readable).deltas
        return tuple(
            Part(
                read=chain,
                start=chain[0].start,
                end=chain[-1].end,
                reason=f"{len(chain)} neighbouring deltas put together",
                write=partial(warehouse.merge_deltas, chain),
                merges=tuple(block.number for block in chain),
            )
            for chain in mergeable(deltas, [chronicle.settled(cursor) for cursor in cursors], few=few)
        )

    return _rewrite(workplace, channel, choose)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A block to be written of others.

    Attributes:
        read: the others.
        start: the point that they lead from.
        end: the point that they lead to.
        reason: what it is, in words.
        write: writes it under a name.
        merges: the numbers of the deltas that it takes the place of.
    """

    read: tuple[Block, ...]
    start: int
    end: int
    reason: str
    write: Callable[[BlockName], Block]
    merges: tuple[int, ...] = ()


def _rewrite(
    workplace: Workplace, channel: str, choose: Callable[[Chronicle, list[int]], tuple[Part, ...]]
) -> tuple[int, Results] | None:
    """Write blocks of a channel that stand beside those that they are made of, in one run."""

    def prepare(tx: Transaction) -> Prepared[tuple[Chronicle, tuple[Part, ...]]] | None:
        chronicle = chains.chronicle(tx, channel)
        parts = choose(chronicle, [reader.cursor(channel) for reader in registry.readers(tx, channel).values()])
        if not parts:
            return None
        pins = tuple(block.number for part in parts for block in part.read)
        return Prepared(kind=RunKind.COMPACTION, tasks=(), writes=(), pins=pins, plan=(chronicle, parts))

    def work(begun: Begun[tuple[Chronicle, tuple[Part, ...]]]) -> Results:
        chronicle, parts = begun.plan
        begun.tell(Started(run=begun.run, steps=(channel,)))
        outputs: list[Output] = []
        for part in parts:
            begun.tell(StepStarted(run=begun.run, step=channel, reason=part.reason))
            began = time.monotonic()
            with begun.step(channel):
                try:
                    block = part.write(begun.name_block(channel))
                except KilonovaError as error:
                    raise error.within(channel=channel) from error.__cause__
            seconds = time.monotonic() - began
            begun.tell(StepEnded(run=begun.run, step=channel, rows=block.statistics.rows, seconds=seconds))
            output = Output(
                channel=channel,
                point=part.end,
                block=block,
                version=chronicle.version(part.end),
                task=STEP,
                reason=part.reason,
                seconds=seconds,
                merges=part.merges,
            )
            outputs.append(output)
        read = tuple(block.number for part in parts for block in part.read)
        start, end = parts[0].start, parts[-1].end
        item = Input(task=STEP, port=channel, channel=channel, start=start, end=end, blocks=read)
        return Results(inputs=(item,), outputs=tuple(outputs), advances=())

    return carry_out(workplace, prepare, work)
