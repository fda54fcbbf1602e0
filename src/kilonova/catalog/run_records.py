"""Records of runs in the catalog: what they read, wrote and cost, and what running ones hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, func, or_, select

from kilonova.catalog import codec, tables
from kilonova.catalog.channel_store import kind_from, placed_by
from kilonova.catalog.database import Transaction, is_among, is_given
from kilonova.catalog.pins import holder_of
from kilonova.model.block import Kind
from kilonova.model.channel import PointState
from kilonova.model.run import CostSample, InputSize, RefreshMethod, RunInput


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHoldings:
    """Points, tasks and blocks that a run holds while it is running; empty once it has ended.

    Attributes:
        reserved: the points that it has reserved, by channel.
        tasks: the tasks that it has claimed.
        blocks: the blocks that it has pinned.
    """

    reserved: Mapping[str, int]
    tasks: tuple[str, ...]
    blocks: tuple[int, ...]


def run_holdings(tx: Transaction, run: int) -> RunHoldings:
    """Return the points, tasks and blocks that a run holds."""
    channel, point, task, pin = tables.channel, tables.point, tables.task, tables.pin
    reserved = select(channel.c.name, point.c.number).join(point, point.c.channel_id == channel.c.id)
    mine = point.c.run_id == run, point.c.state == PointState.RESERVED.value
    claimed = select(task.c.name).join(tables.claim, tables.claim.c.task_id == task.c.id)
    blocks = tx.connection.execute(select(pin.c.blocks).where(pin.c.holder == holder_of(run))).scalar()
    return RunHoldings(
        reserved={
            row.name: row.number for row in tx.connection.execute(reserved.where(*mine).order_by(channel.c.name))
        },
        tasks=tuple(tx.connection.execute(claimed.where(tables.claim.c.run_id == run).order_by(task.c.id)).scalars()),
        blocks=tuple(sorted(codec.numbers_from_json(blocks or []))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    """Output of a run on a channel: the record behind physical provenance.

    Attributes:
        run: the run.
        task: the task that wrote it; None for ingests and compactions.
        channel: the channel.
        point: the point.
        block: the block's number, or None if nothing changed.
        kind: base or delta, with its points.
        rows: the number of rows in the block.
        bytes: its size.
        reason: how and why it was produced, as text.
        seconds: the time that it took.
    """

    run: int
    task: str | None
    channel: str
    point: int
    block: int | None
    kind: Kind | None
    rows: int | None
    bytes: int | None
    reason: str
    seconds: float


def outputs(tx: Transaction, runs: Iterable[int]) -> list[OutputRecord]:
    """Return the outputs of runs, by run, channel and point."""
    output = tables.run_output.c
    query = _outputs().where(is_among(tx, output.run_id, runs))
    return _output_records(tx, query.order_by(output.run_id, tables.channel.c.name, output.point))


def last_outputs(tx: Transaction, channel: str, limit: int) -> list[OutputRecord]:
    """Return the last outputs of runs on a channel, newest first."""
    outputs = _outputs().where(tables.channel.c.name == channel)
    return _output_records(tx, outputs.order_by(tables.run_output.c.run_id.desc()).limit(limit))


def _outputs() -> Select[Any]:
    return (
        select(
            tables.run_output,
            tables.channel.c.name,
            tables.placement.c.start,
            tables.placement.c.end,
            tables.block.c.rows,
            tables.block.c.bytes,
        )
        .join(tables.channel, tables.channel.c.id == tables.run_output.c.channel_id)
        .outerjoin(tables.placement, placed_by(tables.run_output))
        .outerjoin(tables.block, tables.block.c.id == tables.run_output.c.block_id)
    )


def _output_records(tx: Transaction, query: Select[Any]) -> list[OutputRecord]:
    return [
        OutputRecord(
            run=row.run_id,
            task=row.task,
            channel=row.name,
            point=row.point,
            block=row.block_id,
            kind=None if row.block_id is None else kind_from(row),
            rows=row.rows,
            bytes=row.bytes,
            reason=row.reason,
            seconds=row.seconds,
        )
        for row in tx.connection.execute(query)
    ]


_SAMPLED_OUTPUTS = 1000
"""Number of the last outputs that are searched for cost samples."""


def cost_samples(tx: Transaction, tasks: Collection[str] | None = None) -> dict[str, tuple[CostSample, ...]]:
    """Return cost samples of the last runs of tasks, newest first, by task; of all tasks if none are given.

    Runs that found no new input are left out: they took no time.
    """
    query = _samples(tx.connection.dialect.name, some=tasks is not None)
    rows = tx.connection.execute(query, {} if tasks is None else {"names": list(tasks)})
    found: dict[str, tuple[CostSample, ...]] = {}
    for row in rows:
        moved = 1 if row.moved is None else row.moved
        input_size = InputSize(change=row.change_bytes, whole=row.whole_bytes, moved=moved)
        written = 0 if row.block_id is None else row.bytes
        sample = CostSample(RefreshMethod(row.method), input_size, row.seconds, written)
        found[row.task] = (*found.get(row.task, ()), sample)
    return found


@cache
def _samples(dialect: str, *, some: bool) -> Select[Any]:
    table = tables.run_output.c
    query = (
        select(
            table.task,
            table.method,
            table.change_bytes,
            table.whole_bytes,
            table.moved,
            table.seconds,
            table.block_id,
            tables.block.c.bytes,
        )
        .outerjoin(tables.block, tables.block.c.id == table.block_id)
        .where(table.method.is_not(None), or_(table.block_id.is_not(None), table.moved > 0))
        .order_by(table.run_id.desc())
        .limit(_SAMPLED_OUTPUTS)
    )
    return query.where(is_given(dialect, table.task, "names")) if some else query


def last_begun(tx: Transaction, tasks: Collection[str]) -> dict[str, datetime]:
    """Return the start time of the last successful run of each of the given tasks, by task."""
    rows = tx.connection.execute(
        select(tables.run_output.c.task, func.max(tables.run.c.started).label("began"))
        .join(tables.run, tables.run.c.id == tables.run_output.c.run_id)
        .where(tables.run_output.c.task.in_(list(tasks)))
        .group_by(tables.run_output.c.task)
    )
    return {row.task: row.began for row in rows}


def inputs(tx: Transaction, runs: Iterable[int]) -> list[tuple[int, RunInput]]:
    """Return the inputs of the tasks of runs, by run, task and port, without the blocks."""
    rows = tx.connection.execute(
        select(tables.run_input, tables.channel.c.name)
        .join(tables.channel, tables.channel.c.id == tables.run_input.c.channel_id)
        .where(is_among(tx, tables.run_input.c.run_id, runs))
        .order_by(tables.run_input.c.run_id, tables.run_input.c.task, tables.run_input.c.port)
    )
    return [
        (row.run_id, RunInput(task=row.task, port=row.port, channel=row.name, start=row.start, end=row.end))
        for row in rows
    ]
