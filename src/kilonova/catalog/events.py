"""Event log, in the order of commits; see `kilonova.model.event`.

Writing transactions are serialized, so the numbers of events follow the order of commits: a reader that has read up to
an event has missed none before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, insert, select, union_all

from kilonova.catalog import codec, tables
from kilonova.catalog.database import NOTICE, Transaction, contains_name, insert_all
from kilonova.model.event import Event, EventKind
from kilonova.model.trigger import RunOutcome, RunTrigger, conditions_of


def record(
    tx: Transaction,
    kind: EventKind,
    *,
    run: int | None = None,
    binding: str | None = None,
    channels: Iterable[str] = (),
    text: str = "",
) -> None:
    """Record an event, and notify connections that wait for events."""
    row = _row(tx, kind) | {"run": run, "binding": binding, "channels": list(channels), "text": text}
    tx.connection.execute(_ANNOUNCED if tx.connection.dialect.name == "postgresql" else _RECORDED, row)


def record_all(tx: Transaction, kind: EventKind, happened: Sequence[tuple[str | None, str, int | None]]) -> None:
    """Record events of one kind, each given by its binding, its text and its run, without channels."""
    rows = [_row(tx, kind) | {"binding": name, "text": text, "run": run} for name, text, run in happened[:-1]]
    insert_all(tx, tables.event, rows)
    for name, text, run in happened[-1:]:
        record(tx, kind, run=run, binding=name, text=text)


def _row(tx: Transaction, kind: EventKind) -> dict[str, Any]:
    return {"time": tx.now, "kind": kind.value, "channels": []}


_RECORDED = insert(tables.event)
_ANNOUNCED = _RECORDED.returning(func.pg_notify(NOTICE, ""))


_KINDS = {
    RunOutcome.LAUNCHED: (EventKind.LAUNCHED,),
    RunOutcome.SUCCEEDED: (EventKind.SUCCEEDED, EventKind.SKIPPED),
    RunOutcome.FAILED: (EventKind.FAILED,),
}


def kinds_of_outcome(reached: RunOutcome) -> tuple[EventKind, ...]:
    """Return the kinds of events that record a run outcome."""
    return _KINDS[reached]


def forget(tx: Transaction, before: datetime) -> None:
    """Delete events from before a time, except those that a trigger or subscription has yet to see, and the newest."""
    table = tables.event
    states = tx.connection.execute(
        select(tables.trigger.c.definition, tables.trigger.c.state).where(tables.trigger.c.active)
    )
    unseen: list[int] = []
    for row in states.all():
        items = zip(
            conditions_of(codec.trigger_from_json(row.definition)), codec.state_from_json(row.state), strict=True
        )
        for item, one in items:
            if isinstance(item, RunTrigger):
                kinds = [kind.value for kind in kinds_of_outcome(item.reached)]
                awaited = table.c.binding == item.binding, table.c.kind.in_(kinds), table.c.id > one.seen
                unseen += tx.connection.execute(
                    select(table.c.id).where(*awaited).order_by(table.c.id).limit(1)
                ).scalars()
    delivered = tx.connection.execute(select(func.min(tables.subscription.c.cursor))).scalar()
    first = min([*unseen, newest(tx), *([] if delivered is None else [delivered + 1])])
    tx.connection.execute(delete(table).where(table.c.time < before, table.c.id < first))


def newest(tx: Transaction) -> int:
    """Return the number of the last event; 0 if there is none."""
    return int(tx.connection.execute(select(func.max(tables.event.c.id))).scalar() or 0)


def since(tx: Transaction, number: int, limit: int | None = None) -> list[Event]:
    """Return the events after a number, in order."""
    rows = tx.connection.execute(_SINCE if limit is None else _SINCE.limit(limit), {"number": number})
    return [_event(row) for row in rows]


_SINCE = select(tables.event).where(tables.event.c.id > bindparam("number")).order_by(tables.event.c.id)


_AS_FAR = 5_000
"""Number of events that are searched for those of a channel."""


def before(
    tx: Transaction,
    before: int | None,
    limit: int,
    kinds: Collection[EventKind] | None = None,
    binding: str | None = None,
    channel: str | None = None,
    *,
    since: int = 0,
) -> list[Event]:
    """Return events, newest first.

    Args:
        tx: an open transaction.
        before: only events before this number; None for the newest.
        limit: the maximum number of events.
        kinds: only events of these kinds; None for all.
        binding: only events that concern this binding.
        channel: only events that concern this channel, among the 5,000 newest that match the other filters.
        since: only events after this number.
    """
    table = tables.event
    wanted = [table.c.id > since]
    if before is not None:
        wanted.append(table.c.id < before)
    if binding is not None:
        wanted.append(table.c.binding == binding)
    depth = limit if channel is None else _AS_FAR
    found = select(table).where(*wanted).order_by(table.c.id.desc()).limit(depth)
    if kinds:  # one index scan per kind, which avoids sorting all events of these kinds
        every = [select(found.where(table.c.kind == kind.value).subquery()) for kind in dict.fromkeys(kinds)]
        together = union_all(*every).subquery()
        found = select(together).order_by(together.c.id.desc()).limit(depth)
    if channel is not None:
        looked_through = found.subquery()
        of_it = select(looked_through).where(contains_name(tx, looked_through.c.channels, channel))
        found = of_it.order_by(looked_through.c.id.desc()).limit(limit)
    return [_event(row) for row in tx.connection.execute(found)]


def _event(row: Row[Any]) -> Event:
    return Event(
        number=row.id,
        time=row.time,
        kind=EventKind(row.kind),
        run=row.run,
        binding=row.binding,
        channels=tuple(row.channels),
        text=row.text,
    )
