"""Bindings and their triggers in the catalog."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, Text, cast, exists, insert, select, update

from kilonova.catalog import codec, events, tables
from kilonova.catalog.database import Transaction, insert_all, is_among, update_all
from kilonova.errors import NotFound, closest_name
from kilonova.model.binding import Binding
from kilonova.model.event import EventKind
from kilonova.model.trigger import ArrivalTrigger, Trigger, conditions_of
from kilonova.schedule.trigger_evaluation import initial_state


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredBinding:
    """Registered binding.

    Attributes:
        binding: its definition.
        workflow: the workflow that declares it.
        paused: whether its triggers are paused.
    """

    binding: Binding
    workflow: str
    paused: bool


def bindings(tx: Transaction, names: Iterable[str] | None = None) -> dict[str, RegisteredBinding]:
    """Return active bindings by name; all of them if no names are given.

    Raises:
        NotFound: there is no active binding of one of the names.
    """
    wanted = None if names is None else list(dict.fromkeys(names))
    binding, task, trigger = tables.binding, tables.task, tables.trigger
    bound = select(binding).where(binding.c.active)
    done = select(task.c.name, task.c.binding).where(task.c.active, task.c.binding.is_not(None))
    started = select(trigger.c.binding_id, trigger.c.definition).where(trigger.c.active)
    if wanted is not None:
        bound = bound.where(binding.c.name.in_(wanted))
        done = done.where(task.c.binding.in_(wanted))
        started = started.join(binding, binding.c.id == trigger.c.binding_id).where(binding.c.name.in_(wanted))
    tasks: dict[str, list[str]] = {}
    for row in tx.connection.execute(done.order_by(task.c.id)):
        tasks.setdefault(row.binding, []).append(row.name)
    triggers: dict[int, list[Trigger]] = {}
    for row in tx.connection.execute(started.order_by(trigger.c.id)):
        triggers.setdefault(row.binding_id, []).append(codec.trigger_from_json(row.definition))
    found = {
        row.name: RegisteredBinding(
            binding=Binding(
                name=row.name,
                tasks=tuple(tasks[row.name]),
                triggers=tuple(triggers.get(row.id, ())),
                workflowette=row.workflowette,
                priority=row.priority,
                merge_window=row.merge_window,
                implicit=row.implicit,
            ),
            workflow=row.workflow,
            paused=row.paused,
        )
        for row in tx.connection.execute(bound.order_by(binding.c.name))
        if row.name in tasks
    }
    for name in wanted or ():
        if name not in found:
            raise _unknown(tx, name)
    return found


def binding_names(tx: Transaction, after: str = "", limit: int | None = None) -> list[str]:
    """Return the names of the active bindings after a name, sorted, at most `limit`."""
    name = tables.binding.c.name
    busy = exists().where(tables.task.c.binding == name, tables.task.c.active)
    query = select(name).where(tables.binding.c.active, busy, name > after).order_by(name).limit(limit)
    return list(tx.connection.execute(query).scalars())


def binding_id(tx: Transaction, name: str) -> int:
    """Return the id of a binding.

    Raises:
        NotFound: there is no such binding.
    """
    table = tables.binding
    found = tx.connection.execute(select(table.c.id).where(table.c.name == name, table.c.active)).scalar()
    if found is None:
        raise _unknown(tx, name)
    return int(found)


def _unknown(tx: Transaction, name: str) -> NotFound:
    return NotFound("there is no such binding", binding=name, hint=closest_name(name, binding_names(tx)))


def tasks_of(tx: Transaction, name: str) -> tuple[str, ...]:
    """Return the tasks of a binding, in the order of their registration."""
    return tasks_of_all(tx, [name])[name]


def tasks_of_all(tx: Transaction, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the tasks of bindings, by binding, in the order of their registration."""
    wanted = list(dict.fromkeys(names))
    known = tx.definitions("tasks_of")
    if missing := [name for name in wanted if name not in known]:
        task = tables.task.c
        query = select(task.binding, task.name).where(is_among(tx, task.binding, missing), task.active)
        found: dict[str, list[str]] = {name: [] for name in missing}
        for row in tx.connection.execute(query.order_by(task.id)):
            found[row.binding].append(row.name)
        known.update((name, tuple(tasks)) for name, tasks in found.items())
    return {name: known[name] for name in wanted}


def implicit_among(tx: Transaction, names: Iterable[str]) -> set[str]:
    """Return those of some bindings that are active and whose triggers are not declared."""
    wanted = set(names)
    known = tx.definitions("is_implicit")
    if missing := wanted - known.keys():
        binding = tables.binding.c
        query = select(binding.name).where(is_among(tx, binding.name, missing), binding.active, binding.implicit)
        implicit = set(tx.connection.execute(query).scalars())
        known.update((name, name in implicit) for name in missing)
    return {name for name in wanted if known[name]}


def of_tasks(tx: Transaction, tasks: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the bindings of tasks, sorted; tasks that are no longer active are left out."""
    table = tables.task
    query = select(table.c.binding).where(
        is_among(tx, table.c.name, tasks), table.c.active, table.c.binding.is_not(None)
    )
    return tuple(tx.connection.execute(query.distinct().order_by(table.c.binding)).scalars())


def by_task(tx: Transaction) -> dict[str, str]:
    """Return the binding of each task; for a task without one, the task itself."""
    table = tables.task
    rows = tx.connection.execute(select(table.c.name, table.c.binding).where(table.c.active))
    return {row.name: row.binding or row.name for row in rows}


def bindings_of_workflowette(tx: Transaction, tasks: Iterable[str], *, whole: bool) -> str | None:
    """Return the binding to which all of the given tasks belong.

    Args:
        tx: an open transaction.
        tasks: the tasks.
        whole: whether they have to be all tasks of the binding.

    Returns:
        Its name; None if they belong to several or none, or, with `whole`, are not all of its tasks.
    """
    found, names = of_tasks(tx, tasks), set(tasks)
    if len(found) != 1 or (whole and names != set(tasks_of(tx, found[0]))):
        return None
    return found[0]


def put(tx: Transaction, workflow: str, bindings: Iterable[Binding]) -> None:
    """Register the bindings of a workflow, replacing those that it had.

    An unchanged trigger keeps its state; a new one starts with the initial state.
    """
    tx.mark_registry_changed()
    table = tables.binding
    wanted = {binding.name: binding for binding in bindings}
    known = {row.name: row for row in tx.connection.execute(select(table))}
    gone = {name for name, row in known.items() if row.workflow == workflow and row.active} - wanted.keys()
    new, changed = [], []
    for name, binding in wanted.items():
        columns: dict[str, Any] = {
            "workflow": workflow,
            "workflowette": binding.workflowette,
            "priority": binding.priority,
            "merge_window": binding.merge_window,
            "implicit": binding.implicit,
            "active": True,
        }
        row = known.get(name)
        if row is None:
            new.append({"name": name, "paused": False, **columns})
        elif any(row._mapping[column] != value for column, value in columns.items()):
            changed.append({"key": row.id, **columns})
    insert_all(tx, table, new)
    update_all(tx, table, changed)
    update_all(tx, table, [{"key": known[name].id, "active": False} for name in gone])
    owner = {task: binding.name for binding in wanted.values() for task in binding.tasks}
    tasks = tx.connection.execute(select(tables.task).where(tables.task.c.workflow == workflow))
    moved = [row for row in tasks if row.binding != owner.get(row.name)]
    update_all(tx, tables.task, [{"key": row.id, "binding": owner.get(row.name)} for row in moved])
    numbers = tx.connection.execute(select(table.c.name, table.c.id).where(table.c.workflow == workflow))
    triggers = {row.id: wanted[row.name].triggers if row.name in wanted else () for row in numbers}
    _put_triggers(tx, workflow, triggers)
    events.record(tx, EventKind.APPLIED, text=workflow)


def _put_triggers(tx: Transaction, workflow: str, wanted: Mapping[int, Sequence[Trigger]]) -> None:
    """Set the triggers of each binding of a workflow, by the binding's id."""
    table = tables.trigger
    known = {
        (row.binding_id, json.dumps(row.definition, sort_keys=True)): row.id
        for row in tx.connection.execute(
            select(table.c.id, table.c.binding_id, table.c.definition)
            .join(tables.binding, tables.binding.c.id == table.c.binding_id)
            .where(tables.binding.c.workflow == workflow, table.c.active)
        )
    }
    event = events.newest(tx)
    new = []
    for binding, triggers in wanted.items():
        for trigger in triggers:
            definition = codec.trigger_to_json(trigger)
            if known.pop((binding, json.dumps(definition, sort_keys=True)), None) is None:
                state = codec.state_to_json(initial_state(trigger, tx.now, event))
                new.append(
                    {
                        "binding_id": binding,
                        "definition": definition,
                        "state": state,
                        "next_check": tx.now,
                        "active": True,
                    }
                )
    insert_all(tx, table, new)
    update_all(tx, table, [{"key": number, "active": False, "next_check": None} for number in known.values()])


def forget(tx: Transaction, channel: str) -> None:
    """Reset triggers that wait for data of a dropped channel, which may be declared again."""
    table = tables.trigger
    named = cast(table.c.definition, Text).contains(json.dumps(channel), autoescape=True)
    _reset_triggers(tx, select(table).where(table.c.active, named), channel)
    events.record(tx, EventKind.APPLIED, text=f"the channel {channel} was dropped")


def reset_triggers(tx: Transaction, tasks: Iterable[str]) -> None:
    """Reset the triggers of tasks that are recomputed from scratch: existing data counts as newly arrived."""
    table, names = tables.trigger, of_tasks(tx, tasks)
    bound = table.join(tables.binding, tables.binding.c.id == table.c.binding_id)
    _reset_triggers(tx, select(table).select_from(bound).where(table.c.active, tables.binding.c.name.in_(names)))


def _reset_triggers(tx: Transaction, triggers: Select[Any], channel: str | None = None) -> None:
    """Replace triggers that wait for data, of one channel or of any, by new ones that have seen no data."""
    table = tables.trigger
    for row in tx.connection.execute(triggers).all():
        trigger = codec.trigger_from_json(row.definition)
        waits = (item.channel for item in conditions_of(trigger) if isinstance(item, ArrivalTrigger))
        if not any(channel in (None, name) for name in waits):
            continue
        tx.connection.execute(update(table).where(table.c.id == row.id).values(active=False, next_check=None))
        state = codec.state_to_json(initial_state(trigger, tx.now, events.newest(tx)))
        tx.connection.execute(
            insert(table).values(
                binding_id=row.binding_id, definition=row.definition, state=state, next_check=tx.now, active=True
            )
        )


def pause(tx: Transaction, name: str, paused: bool, who: str) -> None:
    """Pause or resume the triggers of a binding; after resuming, they see what happened meanwhile.

    Args:
        tx: a writing transaction.
        name: the binding.
        paused: whether to pause or to resume.
        who: the user that does it.

    Raises:
        NotFound: there is no such binding.
    """
    number = binding_id(tx, name)
    tx.connection.execute(update(tables.binding).where(tables.binding.c.id == number).values(paused=paused))
    if not paused:
        tx.connection.execute(
            update(tables.trigger)
            .where(tables.trigger.c.binding_id == number, tables.trigger.c.active)
            .values(next_check=tx.now)
        )
    events.record(tx, EventKind.PAUSED if paused else EventKind.RESUMED, binding=name, text=f"by {who}")
