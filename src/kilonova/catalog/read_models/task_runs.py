"""Run history of a task: actual durations and sizes beside the estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Row, Select, select

from kilonova.catalog import codec, tables
from kilonova.catalog.database import Transaction
from kilonova.catalog.registry import task_id
from kilonova.model.run import RefreshMethod, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """Run of a task that produced output, or found nothing changed or no new input.

    Attributes:
        run: its number.
        started: the time when the run started.
        ended: the time when it ended.
        state: its state.
        channel: the channel that it wrote; of several, the first for which it wrote a block.
        point: the point of that channel.
        method: the refresh method; None if there was no new input.
        seconds: the duration of the task.
        estimates: the estimated durations of the possible refresh methods, in seconds; empty if not recorded.
        change_bytes: the size of the changes to read; None if there was no new input.
        whole_bytes: the size of all its inputs.
        rows: the number of rows in the blocks that it wrote, over all channels; None if nothing changed.
        bytes: the size of these blocks.
        reason: how and why it was done so, as text for users.
    """

    run: int
    started: datetime
    ended: datetime | None
    state: RunState
    channel: str
    point: int
    method: RefreshMethod | None
    seconds: float
    estimates: Mapping[RefreshMethod, float]
    change_bytes: int | None
    whole_bytes: int | None
    rows: int | None
    bytes: int | None
    reason: str


def task_runs(tx: Transaction, task: str, before: int | None = None, limit: int = 100) -> tuple[TaskRun, ...]:
    """Return the last runs of a task, newest first.

    Args:
        tx: an open transaction.
        task: the task.
        before: only runs before this number; None for all.
        limit: the maximum number of runs.

    Raises:
        NotFound: there is no such task.
    """
    task_id(tx, task)
    output, run, block = tables.run_output, tables.run, tables.block
    last = select(output.c.run_id).where(output.c.task == task).distinct().order_by(output.c.run_id.desc()).limit(limit)
    runs = (last if before is None else last.where(output.c.run_id < before)).subquery()
    query: Select[Any] = (
        select(output, run.c.started, run.c.ended, run.c.state, tables.channel.c.name, block.c.rows, block.c.bytes)
        .join(runs, runs.c.run_id == output.c.run_id)
        .join(run, run.c.id == output.c.run_id)
        .join(tables.channel, tables.channel.c.id == output.c.channel_id)
        .outerjoin(block, block.c.id == output.c.block_id)
        .where(output.c.task == task)
        .order_by(output.c.run_id.desc(), tables.channel.c.name)
    )
    rows = tx.connection.execute(query)
    return tuple(_past(list(made)) for _, made in groupby(rows, key=lambda row: row.run_id))


def _past(made: Sequence[Row[Any]]) -> TaskRun:
    written = [row for row in made if row.block_id is not None]
    first = (written or made)[0]
    return TaskRun(
        run=first.run_id,
        started=first.started,
        ended=first.ended,
        state=RunState(first.state),
        channel=first.name,
        point=first.point,
        method=None if first.method is None else RefreshMethod(first.method),
        seconds=first.seconds,
        estimates=codec.estimates_from_json(first.estimates or {}),
        change_bytes=first.change_bytes,
        whole_bytes=first.whole_bytes,
        rows=sum(row.rows for row in written) if written else None,
        bytes=sum(row.bytes for row in written) if written else None,
        reason=first.reason,
    )
