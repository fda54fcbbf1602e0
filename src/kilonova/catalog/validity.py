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

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    ColumnElement,
    Integer,
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
    rows = tx.connection.execute(_BECAME_READABLE, {"run": run}).all()
    if not rows:
        return
    first = tx.now if rows[0].last is None else max(tx.now, rows[0].last + _TICK)
    before: dict[int, int] = {}
    times = []
    for row in rows:
        place = before[row.channel_id] = before.get(row.channel_id, -1) + 1
        times.append({"into": row.channel_id, "place": row.number, "since": first + place * _TICK})
    tx.connection.execute(_NOTE, times)


def _became_readable() -> Select[Any]:
    """Return a query for the points that can be read, and have no time, of the channels that a run was to write."""
    point, seen, pending = tables.point, tables.point.alias("seen"), tables.point.alias("pending")
    own = select(point.c.channel_id.label("id")).distinct().where(point.c.run_id == bindparam("run")).subquery("own")
    last_seen = (
        select(seen.c.number)
        .where(seen.c.channel_id == own.c.id, seen.c.state == _FILLED, seen.c.readable.is_not(None))
        .order_by(seen.c.number.desc())
        .limit(1)
        .scalar_subquery()
    )
    first_pending = (
        select(func.min(pending.c.number))
        .where(pending.c.channel_id == own.c.id, pending.c.state == PointState.RESERVED.value)
        .scalar_subquery()
    )
    ends = select(own.c.id, last_seen.label("seen"), first_pending.label("pending")).cte("ends")
    last = select(func.max(tables.point.alias("any").c.readable)).scalar_subquery()
    return (
        select(point.c.channel_id, point.c.number, last.label("last"))
        .join(ends, ends.c.id == point.c.channel_id)
        .where(
            point.c.state == _FILLED,
            point.c.number > func.coalesce(ends.c.seen, 0),
            (point.c.number < ends.c.pending) | ends.c.pending.is_(None),
        )
        .order_by(point.c.channel_id, point.c.number)
    )


_BECAME_READABLE = _became_readable()
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
        query, given = _validities(tx.connection.dialect.name), list(named)
        postgresql = tx.connection.dialect.name == "postgresql"
        parameters = (
            {"ids": [each for each, _ in given], "numbers": [number for _, number in given]}
            if postgresql
            else {"pairs": given}
        )
        for row in tx.connection.execute(query, parameters):
            found[named[row.channel_id, row.number]] = Validity(row.start, row.next)
    return lambda channel, number: found.get((channel, number), Validity(None, None))


@cache
def _validities(dialect: str) -> Select[Any]:
    """Return a query for the validity of given points, which are passed as one parameter, or as two on PostgreSQL."""
    if dialect == "postgresql":
        ids, numbers = bindparam("ids", type_=ARRAY(BigInteger)), bindparam("numbers", type_=ARRAY(Integer))
        pairs = func.unnest(ids, numbers).table_valued("channel_id", "number").render_derived()
        given = select(pairs.c.channel_id, pairs.c.number).cte("given")
    else:
        each = func.json_each(bindparam("pairs", type_=JSON())).table_valued("value")
        item = (cast(func.json_extract(each.c.value, f"$[{place}]"), Integer) for place in (0, 1))
        given = select(*(value.label(name) for value, name in zip(item, ("channel_id", "number"), strict=True))).cte(
            "given"
        )
    point = tables.point.c
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
