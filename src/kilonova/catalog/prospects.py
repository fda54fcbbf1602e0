"""What the triggers of bindings wait for, and which of them wake next: see `kilonova.schedule.waiting`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from kilonova.catalog import codec, firings, tables
from kilonova.catalog.bindings import Bound, bindings
from kilonova.catalog.database import Transaction
from kilonova.catalog.happening import happened
from kilonova.model.firing import Firing
from kilonova.model.trigger import described
from kilonova.schedule.waiting import Armament, armament


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A binding, and what starts it next.

    Attributes:
        bound: the binding.
        triggers: its triggers, and what each waits for.
        next: when the first of them wakes though nothing happens; None if none does, or the binding is paused.
        last: its last firing that is on record; None if there is none.
        due: how many of its firings have not ended.
    """

    bound: Bound
    triggers: tuple[Armament, ...]
    next: datetime | None
    last: Firing | None
    due: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """A trigger whose time comes though nothing happens.

    Attributes:
        binding: the binding that it starts.
        trigger: the trigger, in words.
        wake: when it is looked at; it fires then unless it waits for more than that.
    """

    binding: str
    trigger: str
    wake: datetime


def prospects(tx: Transaction, names: Iterable[str]) -> list[Pending]:
    """What starts bindings next, by name.

    Raises:
        UnknownName: a name is not that of a binding.
    """
    bound = bindings(tx, names)
    binding, trigger = tables.binding, tables.trigger
    rows = tx.connection.execute(
        select(binding.c.name, trigger.c.definition, trigger.c.state)
        .join(trigger, trigger.c.binding_id == binding.c.id)
        .where(trigger.c.active, binding.c.name.in_(bound))
        .order_by(trigger.c.id)
    ).all()
    armed = [(row.name, codec.trigger_from_json(row.definition), codec.state_from_json(row.state)) for row in rows]
    news = happened(tx, [(one, state) for _, one, state in armed])
    armaments: dict[str, list[Armament]] = {}
    for name, one, state in armed:
        armaments.setdefault(name, []).append(armament(one, state, news, tx.now))
    last, due = firings.last(tx, bound), firings.unended(tx)
    return [
        Pending(
            bound=each,
            triggers=(own := tuple(armaments.get(name, ()))),
            next=None if each.paused else min((one.wake for one in own if one.wake is not None), default=None),
            last=last.get(name),
            due=due.get(name, 0),
        )
        for name, each in bound.items()
    ]


def upcoming(tx: Transaction, limit: int) -> list[Upcoming]:
    """The triggers whose times come next, soonest first."""
    table = tables.trigger
    rows = tx.connection.execute(
        firings.looked_at().where(table.c.wake.is_not(None)).order_by(table.c.wake, table.c.id).limit(limit)
    )
    return [
        Upcoming(binding=row.name, trigger=described(codec.trigger_from_json(row.definition)), wake=row.wake)
        for row in rows
    ]
