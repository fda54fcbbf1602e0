"""Ingest: rows from outside become a block of a source channel (Nova, section 4: insertion of new blocks)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException

from kilonova.catalog import chains, ingest_keys, registry
from kilonova.catalog.database import Transaction
from kilonova.engine.invoke import checked, reason
from kilonova.engine.seam import Warehouse
from kilonova.engine.tasks import write_output
from kilonova.engine.telling import Started, StepEnded, StepStarted
from kilonova.engine.undertaking import Begun, Prepared, Results, Workplace, carry_out
from kilonova.errors import DeclarationError, KilonovaError, UnreadableInput
from kilonova.model.block import Base, Block, BlockName, Delta, External
from kilonova.model.channel import Channel, Chronicle
from kilonova.model.idempotency import IdempotencyKey
from kilonova.model.run import Output, RunKind
from kilonova.model.task import Production
from kilonova.model.version import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Rows from outside.

    Attributes:
        rows: makes them, given the channel that they go to: a frame, or files that become a block where they lie.
        production: whether they are a delta in the channel's encoding or the whole relation.
        bytes: how large they are, roughly; None if that is not known.
        source: where they come from, for people.
    """

    rows: Callable[[Channel], Any]
    production: Production
    bytes: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """A source channel as a run that inserts a block finds it.

    Attributes:
        chronicle: the channel.
        strong: whether its changes are read.
        pins: the blocks that are read.
    """

    chronicle: Chronicle
    strong: bool
    pins: tuple[int, ...]


def target(tx: Transaction, channel: str, production: Production) -> Target:
    """The channel of that name, which takes rows from outside.

    Raises:
        UnknownName: there is no such channel.
        DeclarationError: a task writes the channel, which is not declared to have several writers, or the whole
            relation is to be written to one that is.
    """
    chronicle = chains.chronicle(tx, channel)
    writers = registry.writers(tx, [channel])[channel]
    several = chronicle.channel.several_writers
    if writers and not several:
        raise DeclarationError(
            f"only the task {writers[0]} may write the channel",
            channel=channel,
            hint="Ingest into a source channel, or declare this one with several_writers=True",
        )
    if several and production is Production.BASE:
        raise DeclarationError(
            "the whole relation cannot be replaced where there are several writers",
            channel=channel,
            hint="Ingest a delta",
        )
    pins = tuple(block.number for block in chronicle.snapshot(chronicle.readable).blocks)
    return Target(chronicle, channel in registry.followed(tx, [channel]), pins)


def insert(warehouse: Warehouse[Any], target: Target, supply: Supply, point: int, name: BlockName) -> Block | None:
    """Write rows from outside as a block; see `ingest`.

    Args:
        warehouse: the blocks.
        target: the channel.
        supply: the rows.
        point: the point that is reserved for them.
        name: the block's name.

    Returns:
        The block, or None if nothing changes.
    """
    chronicle = target.chronicle
    try:
        frame = supply.rows(chronicle.channel)
        if isinstance(frame, External):
            return _registered(warehouse, target, frame, supply.production, point, name)
        schema = checked(warehouse.schema_of(frame), chronicle.channel, supply.production, None)
        block = write_output(
            warehouse,
            frame,
            chronicle=chronicle,
            schema=schema,
            production=supply.production,
            whole=supply.production is Production.BASE,
            point=point,
            name=name,
            expected=supply.bytes,
            strong=target.strong,
        )
    except KilonovaError as error:
        raise error.within(channel=chronicle.channel.name) from error.__cause__
    except PySparkException as error:
        raise UnreadableInput(f"the rows cannot be read: {reason(error)}", channel=chronicle.channel.name) from error
    return block


def _registered(
    warehouse: Warehouse[Any], target: Target, external: External, production: Production, point: int, name: BlockName
) -> Block | None:
    """Make external files a block of a channel; see `insert`."""
    chronicle = target.chronicle
    channel = chronicle.channel
    assert channel.schema is not None  # or the files would have been refused
    whole = production is Production.BASE
    settled = chronicle.readable == point - 1
    return warehouse.register(
        external,
        name=name,
        kind=Base(point) if whole else Delta(point - 1, point),
        schema=channel.schema,
        encoding=channel.encoding,
        old=chronicle.snapshot(chronicle.readable) if settled and not whole else None,
        checks=channel.checks,
    )


def ingested(channel: str, point: int, block: Block | None, source: str, seconds: float) -> Output:
    """What a run makes of a source channel."""
    return Output(
        channel=channel,
        point=point,
        block=block,
        version=Version.source(channel, point),
        task=None,
        reason=f"ingested from {source}",
        seconds=seconds,
    )


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An ingest that has been carried out.

    Attributes:
        run: the run that has done so.
        repeated: whether that was an earlier one, under the same idempotency key.
    """

    run: int
    repeated: bool


def ingest(
    workplace: Workplace, warehouse: Warehouse[Any], channel: str, supply: Supply, key: IdempotencyKey | None = None
) -> Acknowledged:
    """Insert a block into a source channel.

    Args:
        workplace: where.
        warehouse: the blocks.
        channel: the channel.
        supply: the rows.
        key: an idempotency key: if a run has carried out the ingest under it, nothing is done.

    Raises:
        UnknownName: there is no such channel.
        DeclarationError: a task writes the channel.
        SchemaMismatch: the rows do not fit it.
        KeyViolation: keys are null or occur twice.
        UnreadableInput: a file cannot be read.
        KeyReused: the idempotency key stands for another ingest.
        Busy: a run is carrying out the ingest under that key.
    """
    earlier: list[int] = []

    def prepare(tx: Transaction) -> Prepared[Target] | None:
        if key is not None and (run := ingest_keys.finished(tx, channel, key)) is not None:
            earlier.append(run)
            return None
        found = target(tx, channel, supply.production)
        return Prepared(kind=RunKind.INGEST, tasks=(), writes=(channel,), pins=found.pins, plan=found, key=key)

    def work(begun: Begun[Target]) -> Results:
        point = begun.points[channel]
        begun.tell(Started(run=begun.run, steps=(channel,)))
        begun.tell(StepStarted(run=begun.run, step=channel, reason=f"from {supply.source}"))
        began = time.monotonic()
        with begun.step(channel):
            block = insert(warehouse, begun.plan, supply, point, begun.name_block(channel))
        seconds = time.monotonic() - began
        rows = None if block is None else block.statistics.rows
        begun.tell(StepEnded(run=begun.run, step=channel, rows=rows, seconds=seconds))
        output = ingested(channel, point, block, supply.source, seconds)
        return Results(inputs=(), outputs=(output,), advances=())

    with workplace.catalog.reading() as tx:  # blocks that are known need not be read while others wait to write
        chains.chronicle(tx, channel)
    done = carry_out(workplace, prepare, work)
    return Acknowledged(earlier[0], True) if done is None else Acknowledged(done[0], False)
