"""Compaction: the newest snapshot of a channel, written down as a base (Nova, section 2.4).

It adds a block to a point that is there; no reader sees anything else than before, only sooner.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from kilonova.catalog import chains
from kilonova.catalog.database import Transaction
from kilonova.engine.seam import Warehouse
from kilonova.engine.telling import Started, StepEnded, StepStarted
from kilonova.engine.undertaking import Begun, Prepared, Results, Workplace, carry_out
from kilonova.errors import KilonovaError
from kilonova.model.channel import Chronicle
from kilonova.model.reading import Snapshot
from kilonova.model.run import Input, Output, RunKind

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

    def prepare(tx: Transaction) -> Prepared[tuple[Chronicle, Snapshot]] | None:
        chronicle = chains.chronicle(tx, channel)
        snapshot = chronicle.snapshot(chronicle.readable)
        if not is_compactable(snapshot):
            return None
        pins = tuple(block.number for block in snapshot.blocks)
        return Prepared(kind=RunKind.COMPACTION, tasks=(), writes=(), pins=pins, plan=(chronicle, snapshot))

    def work(begun: Begun[tuple[Chronicle, Snapshot]]) -> Results:
        chronicle, snapshot = begun.plan
        point = chronicle.effective
        reason = f"{len(snapshot.deltas)} deltas merged" + (" with a base" if snapshot.base else "")
        if not snapshot.deltas:
            reason = "a base outside of the warehouse copied"
        begun.tell(Started(run=begun.run, steps=(channel,)))
        begun.tell(StepStarted(run=begun.run, step=channel, reason=reason))
        began = time.monotonic()
        with begun.step(channel):
            try:
                block = warehouse.compact(replace(snapshot, at=point), begun.name_block(channel))
            except KilonovaError as error:
                raise error.within(channel=channel) from error.__cause__
        seconds = time.monotonic() - began
        begun.tell(StepEnded(run=begun.run, step=channel, rows=block.statistics.rows, seconds=seconds))
        output = Output(
            channel=channel,
            point=point,
            block=block,
            version=chronicle.version(point),
            task=STEP,
            reason=reason,
            seconds=seconds,
        )
        read = tuple(block.number for block in snapshot.blocks)
        item = Input(task=STEP, port=channel, channel=channel, start=0, end=point, blocks=read)
        return Results(inputs=(item,), outputs=(output,), advances=())

    return carry_out(workplace, prepare, work)
