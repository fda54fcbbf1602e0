"""Status of bindings and their triggers, and the next trigger checks: see `kilonova.schedule.trigger_status`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from kilonova.catalog import codec, firings, scheduling, tables
from kilonova.catalog.bindings import RegisteredBinding, bindings
from kilonova.catalog.database import Transaction
from kilonova.catalog.trigger_inputs import trigger_inputs
from kilonova.model.firing import Firing
from kilonova.model.trigger import describe_trigger
from kilonova.schedule.trigger_status import TriggerStatus, trigger_status


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingStatus:
    """Binding with the status of its triggers and firings.

    Attributes:
        bound: the binding.
        triggers: the status of its triggers.
        next: the time of their next check without further events; None if there is none, or the binding is paused.
        last: its last recorded firing; None if there is none.
        due: the number of its firings that have not ended.
    """

    bound: RegisteredBinding
    triggers: tuple[TriggerStatus, ...]
    next: datetime | None
    last: Firing | None
    due: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpcomingTrigger:
    """Trigger that will be checked at a known time without further events.

    Attributes:
        binding: the binding that it starts.
        trigger: a description of the trigger, as text.
        next_check: the time of the check; it fires then unless other conditions are not met.
    """

    binding: str
    trigger: str
    next_check: datetime


def binding_statuses(tx: Transaction, names: Iterable[str]) -> list[BindingStatus]:
    """Return the status of bindings, by name.

    Raises:
        NotFound: there is no binding of one of the names.
    """
    bound = bindings(tx, names)
    binding, trigger = tables.binding, tables.trigger
    query = scheduling.triggers().where(binding.c.name.in_(bound)).order_by(trigger.c.id)
    found = [scheduling.observed_trigger(row) for row in tx.connection.execute(query).all()]
    inputs = trigger_inputs(tx, [(each.trigger, each.state) for each in found])
    statuses: dict[str, list[TriggerStatus]] = {}
    for one in found:
        statuses.setdefault(one.binding, []).append(trigger_status(one.trigger, one.state, inputs, tx.now))
    last, due = firings.last(tx, bound), firings.unended(tx)
    return [
        BindingStatus(
            bound=each,
            triggers=(own := tuple(statuses.get(name, ()))),
            next=None
            if each.paused
            else min((one.next_check for one in own if one.next_check is not None), default=None),
            last=last.get(name),
            due=due.get(name, 0),
        )
        for name, each in bound.items()
    ]


def upcoming_triggers(tx: Transaction, limit: int) -> list[UpcomingTrigger]:
    """Return the triggers with the next checks, soonest first."""
    table = tables.trigger
    rows = tx.connection.execute(
        scheduling.active_triggers()
        .where(table.c.next_check.is_not(None))
        .order_by(table.c.next_check, table.c.id)
        .limit(limit)
    )
    return [
        UpcomingTrigger(
            binding=row.name,
            trigger=describe_trigger(codec.trigger_from_json(row.definition)),
            next_check=row.next_check,
        )
        for row in rows
    ]
