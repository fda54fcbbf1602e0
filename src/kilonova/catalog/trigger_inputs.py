"""Inputs of trigger evaluation, each since its trigger last fired: a few statements for any number of triggers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    CTE,
    JSON,
    BigInteger,
    ColumnElement,
    Select,
    String,
    and_,
    bindparam,
    cast,
    column,
    func,
    select,
)
from sqlalchemy.types import TypeEngine

from kilonova.catalog import events, tables
from kilonova.catalog.database import Transaction
from kilonova.model.channel import PointState
from kilonova.model.trigger import ArrivalTrigger, RunOutcome, RunTrigger, Trigger, TriggerState, conditions_of
from kilonova.schedule.trigger_evaluation import Arrivals, TriggerInputs


def trigger_inputs(tx: Transaction, triggers: Iterable[tuple[Trigger, TriggerState]]) -> TriggerInputs:
    """Return the inputs for evaluating triggers: arrivals and run events since each last fired.

    Args:
        tx: an open transaction.
        triggers: the triggers, each with its state.
    """
    channels: dict[tuple[str, int], bool] = {}
    runs: set[tuple[str, RunOutcome, int]] = set()
    for trigger, state in triggers:
        for condition, each in zip(conditions_of(trigger), state, strict=True):
            match condition:
                case ArrivalTrigger(channel=channel, rows=rows):
                    place = channel, each.seen
                    channels[place] = channels.get(place, False) or rows is not None
                case RunTrigger(binding=binding, reached=reached):
                    runs.add((binding, reached, each.seen))
    return TriggerInputs(arrived=_arrived(tx, channels), reached=_reached(tx, runs))


def _arrived(tx: Transaction, places: Mapping[tuple[str, int], bool]) -> dict[tuple[str, int], Arrivals]:
    """Return the arrivals on channels after points, with their row counts where `places` asks for them."""
    if not places:
        return {}
    rows = tx.connection.execute(_arrivals(tx.connection.dialect.name), {"rows": list(places)}).all()
    counted = [(row.id, row.seen, row.number) for row in rows if places[row.channel, row.seen]]
    brought: dict[tuple[int, int], int] = {}
    if counted:
        sums = tx.connection.execute(_rows(tx.connection.dialect.name), {"rows": counted})
        brought = {(row.channel, row.seen): int(row.rows) for row in sums}
    return {
        (row.channel, row.seen): Arrivals(
            first=row.since, point=row.number, time=row.time, rows=brought.get((row.id, row.seen), 0)
        )
        for row in rows
    }


def _reached(
    tx: Transaction, wanted: Collection[tuple[str, RunOutcome, int]]
) -> dict[tuple[str, RunOutcome, int], tuple[int, datetime]]:
    """Return the newest events of the wanted outcomes of bindings' runs after given events, with their times."""
    if not wanted:
        return {}
    kinds = {
        (binding, kind.value, seen) for binding, reached, seen in wanted for kind in events.kinds_of_outcome(reached)
    }
    rows = tx.connection.execute(_newest_events(tx.connection.dialect.name), {"rows": list(kinds)})
    found = {(row.binding, row.kind, row.seen): (row.id, row.time) for row in rows}
    reached_by = {}
    for binding, reached, seen in wanted:
        own = [found.get((binding, kind.value, seen)) for kind in events.kinds_of_outcome(reached)]
        if some := [each for each in own if each is not None]:
            reached_by[binding, reached, seen] = max(some)
    return reached_by


@cache
def _arrivals(dialect: str) -> Select[Any]:
    """Return a query for the first filled point after a given one on channels, and the last readable filled point."""
    place, channel = _given(dialect, channel=String(), seen=BigInteger()), tables.channel
    first, last = tables.point.alias("first"), tables.point.alias("last")

    def number(which: Callable[[ColumnElement[int]], Any], state: PointState, end: Any = None) -> Any:
        """Return the first or last point in a state after the last point that a trigger has seen."""
        point = tables.point.alias()
        these = point.c.channel_id == channel.c.id, point.c.state == state.value, point.c.number > place.c.seen
        found = select(which(point.c.number)).where(*these)
        return (found if end is None else found.where(point.c.number < end)).correlate(channel, place).scalar_subquery()

    end = func.coalesce(number(func.min, PointState.RESERVED), _END)
    oldest, newest = number(func.min, PointState.FILLED), number(func.max, PointState.FILLED, end)
    return (
        select(place, channel.c.id, first.c.time.label("since"), last.c.number, last.c.time)
        .join(channel, channel.c.name == place.c.channel)
        .join(first, and_(first.c.channel_id == channel.c.id, first.c.number == oldest))
        .join(last, and_(last.c.channel_id == channel.c.id, last.c.number == newest))
    )


_END = 2**31 - 1
"""Number greater than that of any point."""


@cache
def _rows(dialect: str) -> Select[Any]:
    """Return a query for the rows that points of channels added after one point, up to another."""
    stretch = _given(dialect, channel=BigInteger(), seen=BigInteger(), last=BigInteger())
    point, made, block = tables.point, tables.run_output, tables.block
    between = and_(
        point.c.channel_id == stretch.c.channel,
        point.c.number > stretch.c.seen,
        point.c.number <= stretch.c.last,
        point.c.state == PointState.FILLED.value,
    )
    return (
        select(stretch.c.channel, stretch.c.seen, func.sum(block.c.rows).label("rows"))
        .join(point, between)
        .join(made, and_(made.c.run_id == point.c.run_id, made.c.channel_id == point.c.channel_id))
        .join(block, block.c.id == made.c.block_id)
        .where(made.c.point == point.c.number)
        .group_by(stretch.c.channel, stretch.c.seen)
    )


@cache
def _newest_events(dialect: str) -> Select[Any]:
    """Return a query for the newest events of a kind of bindings after given events."""
    item = _given(dialect, binding=String(), kind=String(), seen=BigInteger())
    last, event = tables.event.alias("last"), tables.event
    newest = (
        select(func.max(event.c.id))
        .where(event.c.binding == item.c.binding, event.c.kind == item.c.kind, event.c.id > item.c.seen)
        .correlate(item)
    )
    return select(item, last.c.id, last.c.time).select_from(item.join(last, last.c.id == newest.scalar_subquery()))


def _given(dialect: str, **columns: TypeEngine[Any]) -> CTE:
    """Return the parameter `rows`, of any length, as a table."""
    rows = bindparam("rows", type_=JSON())
    unfolded = func.json_each(rows) if dialect == "sqlite" else func.json_array_elements(rows)
    row = unfolded.table_valued(column("value", JSON())).c.value
    cells = (cast(row[place].as_string(), kind).label(name) for place, (name, kind) in enumerate(columns.items()))
    return select(*cells).cte("given")
