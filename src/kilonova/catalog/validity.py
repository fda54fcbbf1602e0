"""Validity of the points of channels, from the times since which they can be read.

A point becomes readable when it is filled and all points before it have ended. That time is recorded once, in the
transaction in which it happens, and later than that of every point of the catalog that became readable before: the
clock may stand still or jump back, but a point that can be read later has a later time. So the order of the times is
the order in which readers could see the points, on all channels:

    validity(n) = [readable(n), readable(m))    with m the next point after n at which the channel received rows

(asynchronous scheduling, section 2.1). Each end is one search in an index, however long the history is. The points of a
recovered catalog share one time, because what became readable when is not recorded with blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    JSON,
    BigInteger,
    ColumnElement,
    Integer,
    Row,
    Select,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    update,
)

from kilonova.catalog import tables
from kilonova.catalog.channel_store import look_up_ids
from kilonova.catalog.database import Transaction
from kilonova.model.channel import PointState
from kilonova.model.version import Validity

_TICK = timedelta.resolution
"""Shortest time between two points that became readable."""

_FILLED = PointState.FILLED.value


def note_readable(tx: Transaction, run: int) -> None:
    """Record the time for the points that have become readable on the channels on which a run had reserved points.

    Args:
        tx: the writing transaction that ends the run, after its points were filled or cancelled.
        run: the run.
    """
    ended = tx.connection.execute(_ENDED, {"run": run}).all()
    numbers = {
        row.channel_id: _became_readable(tx, row)
        for row in ended
        if row.filled is not None and row.filled >= row.first and (row.pending is None or row.pending > row.first)
    }
    if not any(numbers.values()):
        return
    last = ended[0].last
    begin = tx.now if last is None else max(tx.now, last + _TICK)
    times = [
        {"into": channel, "place": number, "since": begin + place * _TICK}
        for channel, some in numbers.items()
        for place, number in enumerate(some)
    ]
    tx.connection.execute(_NOTE, times)


def _became_readable(tx: Transaction, ended: Row[Any]) -> list[int]:
    """Return the numbers of the filled points of a channel from the first one of a run that has ended to a pending one.

    Points before it either have a time, or still wait for those of another run.
    """
    if ended.filled == ended.first:
        return [ended.first]
    before = ended.filled + 1 if ended.pending is None else ended.pending
    given = {"channel": ended.channel_id, "first": ended.first, "before": before}
    return list(tx.connection.execute(_FROM, given).scalars())


def _ended() -> Select[Any]:
    """Return a query for the channels on which a run had reserved points.

    Each has the `first` point of the run, the first `pending` one of all runs, the last one that is `filled`, and the
    `last` time at which a point of any channel became readable.
    """
    point, mine, every = tables.point.alias("other").c, tables.point.c, tables.point.alias("every").c
    here = point.channel_id == mine.channel_id
    reserved = select(func.min(point.number)).where(here, point.state == PointState.RESERVED.value)
    filled = select(func.max(point.number)).where(here, point.state == _FILLED)
    return (
        select(
            mine.channel_id,
            func.min(mine.number).label("first"),
            reserved.scalar_subquery().label("pending"),
            filled.scalar_subquery().label("filled"),
            select(func.max(every.readable)).scalar_subquery().label("last"),
        )
        .where(mine.run_id == bindparam("run"))
        .group_by(mine.channel_id)
    )


_ENDED = _ended()
_FROM = (
    select(tables.point.c.number)
    .where(
        tables.point.c.channel_id == bindparam("channel"),
        tables.point.c.state == _FILLED,
        tables.point.c.number >= bindparam("first"),
        tables.point.c.number < bindparam("before"),
    )
    .order_by(tables.point.c.number)
)
_NOTE = (
    update(tables.point)
    .where(tables.point.c.channel_id == bindparam("into"), tables.point.c.number == bindparam("place"))
    .values(readable=bindparam("since"))
)


def present(tx: Transaction) -> datetime:
    """Return the time of a transaction, which is never before that of a point that can be read."""
    last = tx.connection.execute(select(func.max(tables.point.c.readable))).scalar()
    return tx.now if last is None else max(tx.now, last)


def validities(tx: Transaction, points: Iterable[tuple[str, int]]) -> Callable[[str, int], Validity]:
    """Return a function that gives the validity of points of channels.

    Args:
        tx: an open transaction.
        points: the points for which it will be called, each with its channel; 0 is the empty relation.
    """
    wanted = sorted(set(points))
    look_up_ids(tx, {channel for channel, _ in wanted})
    named = {(tx.channels[channel], number): (channel, number) for channel, number in wanted if channel in tx.channels}
    found: dict[tuple[str, int], Validity] = {}
    if named:
        query = _validities(tx.connection.dialect.name)
        for row in tx.connection.execute(query, _parameters(tx, list(named))):
            found[named[row.channel_id, row.number]] = Validity(row.start, row.next)
    return lambda channel, number: found.get((channel, number), Validity(None, None))


def _given(dialect: str) -> CTE:
    """Return given points as a table: they are passed as one parameter, or as two on PostgreSQL."""
    if dialect == "postgresql":
        ids, numbers = bindparam("ids", type_=ARRAY(BigInteger)), bindparam("numbers", type_=ARRAY(Integer))
        pairs = func.unnest(ids, numbers).table_valued("channel_id", "number").render_derived()
        return select(pairs.c.channel_id, pairs.c.number).cte("given")
    each = func.json_each(bindparam("pairs", type_=JSON())).table_valued("value")
    item = (cast(func.json_extract(each.c.value, f"$[{place}]"), Integer) for place in (0, 1))
    columns = (value.label(name) for value, name in zip(item, ("channel_id", "number"), strict=True))
    return select(*columns).cte("given")


def _parameters(tx: Transaction, points: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the parameters that pass points, each with the id of its channel."""
    if tx.connection.dialect.name != "postgresql":
        return {"pairs": points}
    return {"ids": [each for each, _ in points], "numbers": [number for _, number in points]}


@cache
def _validities(dialect: str) -> Select[Any]:
    """Return a query for the validity of given points."""
    given, point = _given(dialect), tables.point.c
    here = point.channel_id == given.c.channel_id, point.state == _FILLED, point.readable.is_not(None)
    start = select(point.readable).where(*here, point.number <= given.c.number).order_by(point.number.desc()).limit(1)
    after = select(point.readable).where(*here, point.number > given.c.number, _received()).order_by(point.number)
    columns = (start.scalar_subquery().label("start"), after.limit(1).scalar_subquery().label("next"))
    return select(given.c.channel_id, given.c.number, *columns)


def _received() -> ColumnElement[bool]:
    """Return whether a channel received rows at a point: with several writers, no task wrote it."""
    channel, output, point = tables.channel.c, tables.run_output.c, tables.point.c
    several = select(channel.id).where(channel.id == point.channel_id, channel.several_writers).exists()
    ingested = (
        select(literal_column("1"))
        .select_from(tables.run_output)
        .where(
            output.channel_id == point.channel_id,
            output.point == point.number,
            output.run_id == point.run_id,
            output.task.is_(None),
        )
        .exists()
    )
    return ~several | ingested


def arrivals(tx: Transaction, oldest: Mapping[str, int]) -> dict[str, tuple[tuple[int, ...], tuple[datetime, ...]]]:
    """Return the points of channels that can be read, and since when each can, in their order.

    Args:
        tx: an open transaction.
        oldest: the channels, each with its oldest point that is returned.
    """
    look_up_ids(tx, oldest)
    numbers = {tx.channels[name]: first for name, first in oldest.items() if name in tx.channels}
    names = {tx.channels[name]: name for name in oldest if name in tx.channels}
    found: dict[str, list[tuple[int, datetime]]] = {name: [] for name in oldest}
    if numbers:
        query, given = _points_from(tx.connection.dialect.name), list(numbers.items())
        for row in tx.connection.execute(query, _parameters(tx, given)):
            found[names[row.channel_id]].append((row.number, row.readable))
    return {
        name: (tuple(number for number, _ in points), tuple(time for _, time in points))
        for name, points in found.items()
    }


@cache
def _points_from(dialect: str) -> Select[Any]:
    given, point = _given(dialect), tables.point.c
    return (
        select(point.channel_id, point.number, point.readable)
        .join(given, point.channel_id == given.c.channel_id)
        .where(point.number >= given.c.number, point.state == _FILLED, point.readable.is_not(None))
        .order_by(point.channel_id, point.number)
    )
