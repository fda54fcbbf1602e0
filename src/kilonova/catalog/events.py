"""What has happened, in the order of commits; see `kilonova.model.event`.

Writing transactions come one after the other, so an event's number tells its place: whoever has read up to one has
missed none before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, text, union_all

from kilonova.catalog import codec, tables
from kilonova.catalog.database import NOTICE, Transaction, naming
from kilonova.model.event import Event, EventKind
from kilonova.model.trigger import After, Reached, simple


def tell(
    tx: Transaction,
    kind: EventKind,
    *,
    run: int | None = None,
    binding: str | None = None,
    channels: Iterable[str] = (),
    said: str = "",
) -> None:
    """Write down that something has happened, and wake whoever waits for events."""
    tx.connection.execute(
        insert(tables.event).values(
            time=tx.now, kind=kind.value, run=run, binding=binding, channels=list(channels), text=said
        )
    )
    if tx.connection.dialect.name == "postgresql":
        tx.connection.execute(text(f"NOTIFY {NOTICE}"))


_KINDS = {
    Reached.LAUNCHED: (EventKind.LAUNCHED,),
    Reached.SUCCEEDED: (EventKind.SUCCEEDED, EventKind.IDLE),
    Reached.FAILED: (EventKind.FAILED,),
}


def reaching(reached: Reached) -> tuple[EventKind, ...]:
    """The kinds of events by which runs get somewhere."""
    return _KINDS[reached]


def forget(tx: Transaction, before: datetime) -> None:
    """Forget events of before a moment, but those that somebody has yet to see, and the newest."""
    table = tables.event
    states = tx.connection.execute(
        select(tables.trigger.c.definition, tables.trigger.c.state).where(tables.trigger.c.active)
    )
    unseen: list[int] = []
    for row in states.all():
        items = zip(simple(codec.trigger_from_json(row.definition)), codec.state_from_json(row.state), strict=True)
        for item, one in items:
            if isinstance(item, After):
                kinds = [kind.value for kind in reaching(item.reached)]
                awaited = table.c.binding == item.binding, table.c.kind.in_(kinds), table.c.id > one.seen
                unseen += tx.connection.execute(
                    select(table.c.id).where(*awaited).order_by(table.c.id).limit(1)
                ).scalars()
    told = tx.connection.execute(select(func.min(tables.outlet.c.cursor))).scalar()
    first = min([*unseen, newest(tx), *([] if told is None else [told + 1])])
    tx.connection.execute(delete(table).where(table.c.time < before, table.c.id < first))


def newest(tx: Transaction) -> int:
    """The number of the last event; 0 if there is none."""
    return int(tx.connection.execute(select(func.max(tables.event.c.id))).scalar() or 0)


def since(tx: Transaction, number: int, limit: int | None = None) -> list[Event]:
    """The events after one, in order."""
    query = select(tables.event).where(tables.event.c.id > number).order_by(tables.event.c.id)
    rows = tx.connection.execute(query if limit is None else query.limit(limit))
    return [_event(row) for row in rows]


_AS_FAR = 5_000
"""How many events are looked through for those of a channel."""


def before(
    tx: Transaction,
    number: int | None,
    limit: int,
    *,
    kinds: Collection[EventKind] = (),
    binding: str | None = None,
    channel: str | None = None,
    since: int = 0,
) -> list[Event]:
    """The events before one, newest first.

    Args:
        tx: an open transaction.
        number: the event; None for the newest and those before it.
        limit: how many at most.
        kinds: only those of these kinds; of all where none are given.
        binding: only those that concern this binding.
        channel: only those that concern this channel, among the 5,000 newest that the other filters leave.
        since: only those after this event.
    """
    table = tables.event
    wanted = [table.c.id > since]
    if number is not None:
        wanted.append(table.c.id < number)
    if binding is not None:
        wanted.append(table.c.binding == binding)
    depth = limit if channel is None else _AS_FAR
    found = select(table).where(*wanted).order_by(table.c.id.desc()).limit(depth)
    if kinds:  # of each kind by its index: together they would be sorted, however many there are
        every = [select(found.where(table.c.kind == kind.value).subquery()) for kind in dict.fromkeys(kinds)]
        together = union_all(*every).subquery()
        found = select(together).order_by(together.c.id.desc()).limit(depth)
    if channel is not None:
        looked_through = found.subquery()
        of_it = select(looked_through).where(naming(tx, looked_through.c.channels, channel))
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
