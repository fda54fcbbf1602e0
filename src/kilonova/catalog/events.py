"""What has happened, in the order of commits; see `kilonova.model.event`.

Writing transactions come one after the other, so an event's number tells its place: whoever has read up to one has
missed none before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, func, insert, select, text

from kilonova.catalog import codec, tables
from kilonova.catalog.database import NOTICE, Transaction
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


def reaches(binding: str, reached: Reached, seen: int) -> ColumnElement[bool]:
    """The events after one by which runs of a binding got somewhere."""
    table = tables.event
    return and_(
        table.c.binding == binding, table.c.id > seen, table.c.kind.in_([kind.value for kind in _KINDS[reached]])
    )


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
                awaited = reaches(item.binding, item.reached, one.seen)
                unseen += tx.connection.execute(
                    select(table.c.id).where(awaited).order_by(table.c.id).limit(1)
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
    return [
        Event(
            number=row.id,
            time=row.time,
            kind=EventKind(row.kind),
            run=row.run,
            binding=row.binding,
            channels=tuple(row.channels),
            text=row.text,
        )
        for row in rows
    ]
