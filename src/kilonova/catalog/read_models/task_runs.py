"""Run history of a task: actual durations and sizes beside the estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import Row, Select, select

from kilonova.catalog import codec, tables
from kilonova.catalog.database import Transaction
from kilonova.catalog.read_models.run_queries import runs
from kilonova.model.run import RefreshMethod, Run, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """Run of a task that has ended: with an error, or with output, or because nothing had changed.

    Attributes:
        run: its number.
        started: the time when the run started.
        ended: the time when it ended.
        state: its state.
        error: the error of a run that did not succeed.
        channel: the channel that it wrote; of several, the first for which it wrote a block; None if it failed.
        point: the point of that channel.
        method: the refresh method; None if there was no new input, or it did not succeed.
        seconds: the duration of the task; of the whole run, if it did not succeed.
        estimates: the estimated durations of the possible refresh methods, in seconds; empty if not recorded.
        change_bytes: the size of the changes to read; None if there was no new input.
        whole_bytes: the size of all its inputs.
        rows: the number of rows in the blocks that it wrote, over all channels; None if nothing changed.
        bytes: the size of these blocks.
        reason: how and why it was done so, as text for users; empty if it did not succeed.
    """

    run: int
    started: datetime
    ended: datetime | None
    state: RunState
    error: str | None
    channel: str | None
    point: int | None
    method: RefreshMethod | None
    seconds: float
    estimates: Mapping[RefreshMethod, float]
    change_bytes: int | None
    whole_bytes: int | None
    rows: int | None
    bytes: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRun:
    """First run of a task within an interval that wrote output.

    Attributes:
        run: its number.
        ended: the time when it ended; None if it has not.
        method: its refresh method.
        seconds: the seconds that the task took.
    """

    run: int
    ended: datetime | None
    method: RefreshMethod
    seconds: float


def task_runs(tx: Transaction, task: str, before: int | None = None, limit: int = 100) -> tuple[TaskRun, ...]:
    """Return the last runs of a task that have ended, newest first.

    Args:
        tx: an open transaction.
        task: the task.
        before: only runs before this number; None for all.
        limit: the maximum number of runs.

    Raises:
        NotFound: there is no such task.
    """
    last = runs(tx, limit + 1, before, task=task)  # one of them may be running
    ended = [run for run in last if run.state is not RunState.RUNNING][:limit]
    output, block = tables.run_output, tables.block
    query: Select[Any] = (
        select(output, tables.channel.c.name, block.c.rows, block.c.bytes)
        .join(tables.channel, tables.channel.c.id == output.c.channel_id)
        .outerjoin(block, block.c.id == output.c.block_id)
        .where(output.c.task == task, output.c.run_id.in_([run.number for run in ended]))
        .order_by(output.c.run_id, tables.channel.c.name)
    )
    made = {run: list(rows) for run, rows in groupby(tx.connection.execute(query), key=lambda row: row.run_id)}
    return tuple(_task_run(run, made.get(run.number, ())) for run in ended)


def _task_run(run: Run, made: Sequence[Row[Any]]) -> TaskRun:
    written = [row for row in made if row.block_id is not None]
    first = next(iter((*written, *made)), None)
    lasted = timedelta() if run.ended is None else run.ended - run.started
    return TaskRun(
        run=run.number,
        started=run.started,
        ended=run.ended,
        state=run.state,
        error=run.error,
        channel=None if first is None else first.name,
        point=None if first is None else first.point,
        method=None if first is None or first.method is None else RefreshMethod(first.method),
        seconds=lasted.total_seconds() if first is None else first.seconds,
        estimates={} if first is None else codec.estimates_from_json(first.estimates or {}),
        change_bytes=None if first is None else first.change_bytes,
        whole_bytes=None if first is None else first.whole_bytes,
        rows=sum(row.rows for row in written) if written else None,
        bytes=sum(row.bytes for row in written) if written else None,
        reason="" if first is None else first.reason,
    )


def first_run(tx: Transaction, task: str, after: datetime, before: datetime | None) -> FirstRun | None:
    """Return the first run that wrote output of a task, of those that started in an interval; None if there is none.

    Args:
        tx: an open transaction.
        task: the task.
        after: the beginning of the interval.
        before: its end, which does not belong to it; None for now.
    """
    run, output = tables.run.c, tables.run_output.c
    query = (
        select(run.id, run.ended, output.method, output.seconds)
        .join(tables.run_output, output.run_id == run.id)
        .where(output.task == task, output.method.is_not(None), run.started >= after)
        .order_by(output.run_id)
        .limit(1)
    )
    row = tx.connection.execute(query if before is None else query.where(run.started < before)).first()
    if row is None:
        return None
    return FirstRun(run=row.id, ended=row.ended, method=RefreshMethod(row.method), seconds=row.seconds)
