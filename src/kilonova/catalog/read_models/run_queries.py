"""Queries of the run history: pages of runs by state, kind, binding, task or channel, and runs in a time range.

However long the history is, a page takes a few index lookups: if several filters are given, one of them finds runs and
the others exclude some.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from sqlalchemy import Column, ColumnElement, Table, func, or_, select, union

from kilonova.catalog import tables
from kilonova.catalog.bindings import binding_id
from kilonova.catalog.channel_store import channel_id
from kilonova.catalog.database import Transaction, contains_name
from kilonova.catalog.registry import task_id
from kilonova.catalog.runs import run_from
from kilonova.model.run import Run, RunKind, RunState

_RUN = tables.run


class RunFilters(TypedDict, total=False):
    """Filters of runs; None stands for no filter.

    Attributes:
        state: only runs in this state.
        kind: only runs of this kind.
        binding: only runs of this binding, started by a trigger or manually.
        task: only runs that run or have run this task, with any outcome.
        channel: only runs that have written or were to write this channel, and its compactions.
    """

    state: RunState | None
    kind: RunKind | None
    binding: str | None
    task: str | None
    channel: str | None


def runs(
    tx: Transaction,
    limit: int | None = None,
    before: int | None = None,
    *,
    after: int | None = None,
    **filters: Unpack[RunFilters],
) -> list[Run]:
    """Return runs, newest first.

    Args:
        tx: an open transaction.
        limit: the maximum number of runs.
        before: only runs before this number.
        after: only runs after this number; the oldest of them if there are more than `limit`.
        filters: what else they must satisfy.

    Raises:
        NotFound: there is no such binding, task or channel.
    """
    task, channel = filters.get("task"), filters.get("channel")

    def placed(number: Column[int]) -> ColumnElement[int]:
        return number.desc() if after is None else number.asc()

    wanted: list[ColumnElement[bool]] = []
    if (state := filters.get("state")) is not None:
        wanted.append(_RUN.c.state == state.value)
    if (kind := filters.get("kind")) is not None:
        wanted.append(_RUN.c.kind == kind.value)
    if (binding := filters.get("binding")) is not None:
        binding_id(tx, binding)
        wanted.append(_RUN.c.binding == binding)
    if task is not None:
        wanted.append(contains_name(tx, _RUN.c.tasks, task))
    places: list[tuple[Table, int]] = []
    if channel is not None:
        places = [(table, channel_id(tx, channel)) for table in (tables.point, tables.run_output)]
    elif task is not None:
        places = [(tables.point, number) for number in _first_outputs(tx, task)]
    if task is None and channel is None:
        wanted += _between(_RUN.c.id, before, after)
    else:
        found = [
            (select(table.c.run_id).join(_RUN, _RUN.c.id == table.c.run_id) if wanted else select(table.c.run_id))
            .where(table.c.channel_id == number, *wanted, *_between(table.c.run_id, before, after))
            .order_by(placed(table.c.run_id))
            .limit(limit)
            .subquery()
            for table, number in places
        ]
        wanted = [_RUN.c.id.in_(union(*(select(each.c.run_id) for each in found)) if found else [])]
    query = select(_RUN).where(*wanted).order_by(placed(_RUN.c.id)).limit(limit)
    page = [run_from(row) for row in tx.connection.execute(query)]
    return page if after is None else page[::-1]


def _between(number: ColumnElement[int], before: int | None, after: int | None) -> list[ColumnElement[bool]]:
    """Return the conditions for numbers before one and after another."""
    later = [] if after is None else [number > after]
    return later if before is None else [*later, number < before]


def _first_outputs(tx: Transaction, task: str) -> list[int]:
    """Return one output channel of each logic version of a task: its runs have points there."""
    logics = tx.connection.execute(select(tables.logic.c.writes).where(tables.logic.c.task_id == task_id(tx, task)))
    names = {row.writes[0] for row in logics}
    return list(tx.connection.execute(select(tables.channel.c.id).where(tables.channel.c.name.in_(names))).scalars())


_LONG = timedelta(days=1)
"""Maximum time before a moment at which a run that has ended since may have started for `runs_between` to find it."""


def runs_between(tx: Transaction, first: datetime, last: datetime, limit: int = 500) -> list[Run]:
    """Return the runs that were running at some time between two moments, by start time; the last ones if limited.

    Runs that had ended by `first` are left out, as are ended runs that had started more than a day before it.

    Args:
        tx: an open transaction.
        first: the first moment.
        last: the last moment.
        limit: the maximum number of runs.
    """
    begun, ended = _RUN.c.started, _RUN.c.ended
    lately = select(_RUN).where(begun >= first - _LONG, begun <= last, or_(ended.is_(None), ended >= first))
    long = select(_RUN).where(_RUN.c.state == RunState.RUNNING.value, begun < first - _LONG)
    rows: dict[int, Any] = {}
    for query in (lately.order_by(begun.desc(), _RUN.c.id.desc()), long.order_by(_RUN.c.id.desc())):
        rows |= {row.id: row for row in tx.connection.execute(query.limit(limit))}
    found = sorted((run_from(row) for row in rows.values()), key=lambda run: (run.started, run.number))
    return found[-limit:]


def beside(tx: Transaction, number: int) -> tuple[int | None, int | None]:
    """Return the numbers of the runs before and after a run; None if there is none."""
    earlier = select(func.max(_RUN.c.id)).where(_RUN.c.id < number)
    later = select(func.min(_RUN.c.id)).where(_RUN.c.id > number)
    return tx.connection.execute(earlier).scalar(), tx.connection.execute(later).scalar()


def succeeded_since(tx: Transaction, run: Run) -> tuple[int, ...]:
    """Return the runs after an unsuccessful run in which its tasks succeeded first; none unless all of them did."""
    output = tables.run_output.c
    query = (
        select(output.task, func.min(output.run_id).label("run_id"))
        .where(output.task.in_(run.tasks), output.run_id > run.number)
        .group_by(output.task)
    )
    found = {row.task: row.run_id for row in tx.connection.execute(query)}
    failed = run.state not in (RunState.RUNNING, RunState.SUCCEEDED)
    return tuple(sorted({*found.values()})) if failed and found.keys() >= {*run.tasks} else ()
