"""What the last runs of a task took, beside what they were estimated to take."""

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
from kilonova.model.run import RunState, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A run of a task that made something, or found nothing changed or nothing new to read.

    Attributes:
        run: its number.
        started: when the run began.
        ended: when it ended.
        state: how it ended.
        channel: the channel that it wrote; of several, the first that it made a block of.
        point: the point there.
        way: how the task was done; None if there was nothing new to read.
        seconds: how long the task took.
        estimates: what the ways that were open were estimated to take, in seconds; nothing where that is not on record.
        change_bytes: how much there was to read of what had changed; None if there was nothing.
        whole_bytes: how large all was that it reads.
        rows: rows in the blocks that it wrote, of all channels; None if nothing changed.
        bytes: their size.
        reason: how it was done and why so, for people.
    """

    run: int
    started: datetime
    ended: datetime | None
    state: RunState
    channel: str
    point: int
    way: Way | None
    seconds: float
    estimates: Mapping[Way, float]
    change_bytes: int | None
    whole_bytes: int | None
    rows: int | None
    bytes: int | None
    reason: str


def past(tx: Transaction, task: str, before: int | None, limit: int) -> tuple[Past, ...]:
    """The last runs of a task, newest first.

    Args:
        tx: an open transaction.
        task: the task.
        before: only those before this number; None for all.
        limit: at most so many.

    Raises:
        UnknownName: there is no such task.
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


def _past(made: Sequence[Row[Any]]) -> Past:
    written = [row for row in made if row.block_id is not None]
    first = (written or made)[0]
    return Past(
        run=first.run_id,
        started=first.started,
        ended=first.ended,
        state=RunState(first.state),
        channel=first.name,
        point=first.point,
        way=None if first.way is None else Way(first.way),
        seconds=first.seconds,
        estimates=codec.estimates_from_json(first.estimates or {}),
        change_bytes=first.change_bytes,
        whole_bytes=first.whole_bytes,
        rows=sum(row.rows for row in written) if written else None,
        bytes=sum(row.bytes for row in written) if written else None,
        reason=first.reason,
    )
