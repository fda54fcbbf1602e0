"""What has happened that triggers wait for, each since it fired last: a few statements for any number of triggers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import CTE, BigInteger, ColumnElement, String, and_, column, func, select, values
from sqlalchemy.types import TypeEngine

from kilonova.catalog import events, tables
from kilonova.catalog.database import Transaction
from kilonova.model.channel import PointState
from kilonova.model.trigger import After, Arrival, Reached, State, Trigger, simple
from kilonova.schedule.firing import Arrived, Happened

Item = TypeVar("Item")


def happened(tx: Transaction, triggers: Iterable[tuple[Trigger, State]]) -> Happened:
    """What has happened since triggers fired last.

    Args:
        tx: an open transaction.
        triggers: the triggers, and what each remembers.
    """
    channels: dict[tuple[str, int], bool] = {}
    runs: dict[tuple[str, Reached, int], None] = {}
    for trigger, state in triggers:
        for item, one in zip(simple(trigger), state, strict=True):
            match item:
                case Arrival(channel=channel, rows=rows):
                    place = channel, one.seen
                    channels[place] = channels.get(place, False) or rows is not None
                case After(binding=binding, reached=reached):
                    runs[binding, reached, one.seen] = None
    counted = {place for place, counts in channels.items() if counts}
    arrived: dict[tuple[str, int], Arrived] = {}
    reached_by: dict[tuple[str, Reached, int], tuple[int, datetime]] = {}
    for places in _parted(list(channels)):
        arrived |= _arrived(tx, places, counted)
    for wanted in _parted(list(runs)):
        reached_by |= _reached(tx, wanted)
    return Happened(arrived=arrived, reached=reached_by)


_AT_ONCE = 3_000
"""How much is asked for in a statement at most: databases take so many parameters and no more."""


def _parted(items: list[Item]) -> Iterator[list[Item]]:
    for first in range(0, len(items), _AT_ONCE):
        yield items[first : first + _AT_ONCE]


def _arrived(
    tx: Transaction, places: Collection[tuple[str, int]], counted: Collection[tuple[str, int]]
) -> dict[tuple[str, int], Arrived]:
    """What has come on channels after points; of some with the rows that it brought."""
    place, channel = _listed({"channel": String, "seen": BigInteger}, places), tables.channel
    first, last = tables.point.alias("first"), tables.point.alias("last")

    def number(which: Callable[[ColumnElement[int]], Any], state: PointState, end: Any = None) -> Any:
        """The first or last point in a state after what a trigger has seen."""
        point = tables.point.alias()
        these = point.c.channel_id == channel.c.id, point.c.state == state.value, point.c.number > place.c.seen
        found = select(which(point.c.number)).where(*these)
        return (found if end is None else found.where(point.c.number < end)).correlate(channel, place).scalar_subquery()

    end = func.coalesce(number(func.min, PointState.RESERVED), _END)
    oldest, newest = number(func.min, PointState.FILLED), number(func.max, PointState.FILLED, end)
    rows = tx.connection.execute(
        select(place, channel.c.id, first.c.time.label("since"), last.c.number, last.c.time)
        .join(channel, channel.c.name == place.c.channel)
        .join(first, and_(first.c.channel_id == channel.c.id, first.c.number == oldest))
        .join(last, and_(last.c.channel_id == channel.c.id, last.c.number == newest))
    ).all()
    brought = _rows(tx, [(row.id, row.seen, row.number) for row in rows if (row.channel, row.seen) in counted])
    return {
        (row.channel, row.seen): Arrived(
            first=row.since, point=row.number, time=row.time, rows=brought.get((row.id, row.seen), 0)
        )
        for row in rows
    }


_END = 2**31 - 1
"""A point after all others."""


def _rows(tx: Transaction, stretches: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """The rows that points of channels brought, by channel and the point before the first of them."""
    if not stretches:
        return {}
    stretch = _listed({"channel": BigInteger, "seen": BigInteger, "last": BigInteger}, stretches)
    point, made, block = tables.point, tables.run_output, tables.block
    rows = tx.connection.execute(
        select(stretch.c.channel, stretch.c.seen, func.sum(block.c.rows).label("rows"))
        .join(
            point,
            and_(
                point.c.channel_id == stretch.c.channel,
                point.c.number > stretch.c.seen,
                point.c.number <= stretch.c.last,
                point.c.state == PointState.FILLED.value,
            ),
        )
        .join(made, and_(made.c.run_id == point.c.run_id, made.c.channel_id == point.c.channel_id))
        .join(block, block.c.id == made.c.block_id)
        .where(made.c.point == point.c.number)
        .group_by(stretch.c.channel, stretch.c.seen)
    )
    return {(row.channel, row.seen): int(row.rows) for row in rows}


def _reached(
    tx: Transaction, wanted: Collection[tuple[str, Reached, int]]
) -> dict[tuple[str, Reached, int], tuple[int, datetime]]:
    """The newest events after some by which runs of bindings got somewhere, and their times."""
    kinds = {(binding, kind.value, seen) for binding, reached, seen in wanted for kind in events.reaching(reached)}
    item = _listed({"binding": String, "kind": String, "seen": BigInteger}, kinds)
    told, event = tables.event.alias("told"), tables.event
    newest = (
        select(func.max(event.c.id))
        .where(event.c.binding == item.c.binding, event.c.kind == item.c.kind, event.c.id > item.c.seen)
        .correlate(item)
    )
    last = item.join(told, told.c.id == newest.scalar_subquery())
    rows = tx.connection.execute(select(item, told.c.id, told.c.time).select_from(last))
    found = {(row.binding, row.kind, row.seen): (row.id, row.time) for row in rows}
    reached_by = {}
    for binding, reached, seen in wanted:
        own = [found.get((binding, kind.value, seen)) for kind in events.reaching(reached)]
        if some := [each for each in own if each is not None]:
            reached_by[binding, reached, seen] = max(some)
    return reached_by


def _listed(columns: Mapping[str, type[TypeEngine[Any]]], rows: Iterable[tuple[Any, ...]]) -> CTE:
    """Rows given to the database as a table."""
    named = [column(name, kind) for name, kind in columns.items()]
    return values(*named, name="listed").data(list(rows)).cte("listed")
