"""Ingest: rows from outside become a block of a source channel (Nova, section 4: insertion of new blocks)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kilonova.catalog import chains, registry
from kilonova.catalog.database import Transaction
from kilonova.engine.invoke import checked, reason
from kilonova.engine.tasks import write_output
from kilonova.engine.telling import Started, StepEnded, StepStarted
from kilonova.engine.undertaking import Begun, Prepared, Results, Workplace, carry_out
from kilonova.errors import DeclarationError, KilonovaError, UnreadableInput
from kilonova.model.channel import Channel, Chronicle
from kilonova.model.encoding import Changes
from kilonova.model.run import Output, RunKind
from kilonova.model.task import Production
from kilonova.model.version import Version
from kilonova.warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Rows from outside.

    Attributes:
        rows: makes them, given the channel that they go to.
        production: whether they are a delta in the channel's encoding or the whole relation.
        bytes: how large they are, roughly; None if that is not known.
        source: where they come from, for people.
    """

    rows: Callable[[Channel], DataFrame]
    production: Production
    bytes: int | None
    source: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """The channel as the run found it, and whether its changes are read."""

    chronicle: Chronicle
    strong: bool


def ingest(workplace: Workplace, warehouse: Warehouse, channel: str, supply: Supply) -> tuple[int, Results]:
    """Insert a block into a source channel.

    Args:
        workplace: where.
        warehouse: the blocks.
        channel: the channel.
        supply: the rows.

    Returns:
        The run's number and what it published.

    Raises:
        UnknownName: there is no such channel.
        DeclarationError: a task writes the channel.
        SchemaMismatch: the rows do not fit it.
        KeyViolation: keys are null or occur twice.
        UnreadableInput: a file cannot be read.
    """

    def prepare(tx: Transaction) -> Prepared[_Plan]:
        chronicle = chains.chronicle(tx, channel)
        writer = registry.writer(tx, channel)
        if writer is not None:
            raise DeclarationError(
                f"only the task {writer} may write the channel",
                channel=channel,
                hint="Ingest into a source channel, one that no task writes",
            )
        pins = tuple(block.number for block in chronicle.snapshot(chronicle.readable).blocks)
        strong = channel in registry.followed(tx, [channel])
        plan = _Plan(chronicle, strong)
        return Prepared(kind=RunKind.INGEST, tasks=(), writes=(channel,), pins=pins, plan=plan)

    def work(begun: Begun[_Plan]) -> Results:
        point, chronicle = begun.points[channel], begun.plan.chronicle
        begun.tell(Started(run=begun.run, steps=(channel,)))
        begun.tell(StepStarted(run=begun.run, step=channel, reason=f"from {supply.source}"))
        began = time.monotonic()
        try:
            with begun.step(channel):
                frame = supply.rows(chronicle.channel)
                schema = checked(frame, chronicle.channel, supply.production, None)
                block = write_output(
                    warehouse,
                    frame,
                    chronicle=chronicle,
                    schema=schema,
                    production=supply.production,
                    whole=supply.production is Production.BASE,
                    point=point,
                    number=begun.name_block(channel),
                    expected=supply.bytes,
                    strong=begun.plan.strong,
                )
                given = isinstance(chronicle.channel.encoding, Changes)  # else what goes was looked up
                if block is not None and given and block.statistics.removals and chronicle.readable == point - 1:
                    warehouse.check_retractions(block, chronicle.snapshot(chronicle.readable))
        except KilonovaError as error:
            raise error.within(channel=channel) from error.__cause__
        except PySparkException as error:
            raise UnreadableInput(f"the rows cannot be read: {reason(error)}", channel=channel) from error
        seconds = time.monotonic() - began
        rows = None if block is None else block.statistics.rows
        begun.tell(StepEnded(run=begun.run, step=channel, rows=rows, seconds=seconds))
        output = Output(
            channel=channel,
            point=point,
            block=block,
            version=Version.source(channel, point),
            task=None,
            reason=f"ingested from {supply.source}",
            seconds=seconds,
        )
        return Results(inputs=(), outputs=(output,), advances=())

    done = carry_out(workplace, prepare, work)
    assert done is not None
    return done
