"""Rollback: the definition of an earlier logic version of a task, as a workflow that can be planned and applied.

The workflow is the registered one, in which the task, or a view with all of its materialized relations, is as it was
then. Applying it registers a new logic version, whose output is migrated from the present one or recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from kilonova.catalog import bindings, channel_registry, channel_store, registry
from kilonova.catalog.database import Transaction
from kilonova.catalog.registry import VersionRecord
from kilonova.errors import DeclarationError, NotFound
from kilonova.model.binding import Binding
from kilonova.model.channel import Channel
from kilonova.model.task import Task
from kilonova.model.workflow import WorkflowDefinition

if TYPE_CHECKING:
    from kilonova.declare.workflow import Declared


def earlier_definition(tx: Transaction, name: str, version: int | None = None) -> Declared:
    """Return the registered workflow of a task, with the task as it was at an earlier logic version.

    Schedules, bindings and everything else of the workflow are the present ones.

    Args:
        tx: an open transaction.
        name: the task or view.
        version: the logic version; None for the one before the present one. A view is returned as it was when this
            version ended, with its materialized relations; without a version, as it was before its last change.

    Raises:
        NotFound: there is no such task or version.
        DeclarationError: the definition cannot be restored.
    """
    from kilonova.declare.workflow import Declared

    known = registry.tasks(tx, [name])[name]
    view, workflow = known.task.view, known.workflow
    if view not in (None, name):
        raise DeclarationError(f"the task is part of the view {view}", task=name, hint=f"Roll back {view}")
    present = registry.view_tasks(tx, name) if view else [name]
    history = registry.versions(tx, name)
    time = _time(history, name, present, version)
    newest = {each.task: each for each in history if each.registered <= time}
    old = {each.task: registry.logic_version(tx, each.task, each.logic) for each in newest.values()}
    names = _needed(old, name)
    chosen = [newest[each] for each in names]
    restored = tuple(replace(old[each], migrations=(), schedule=known.task.schedule) for each in names)
    states = channel_store.channel_states(tx)
    owners = channel_registry.channel_owners(tx)
    outputs = {channel.name: channel for each in chosen for channel in each.outputs}
    if missing := {output for each in chosen for output in each.writes} - outputs.keys():
        raise _impossible(f"the declaration of the channel {min(missing)} is not known", name, workflow)
    written = {output for each in registry.tasks(tx, present).values() for output in each.task.writes}
    own = {each: _declared(states[each].channel) for each, owner in owners.items() if owner == workflow}
    channels = {each: channel for each, channel in own.items() if each not in written}
    for each, channel in outputs.items():
        channels[each] = _restored(channel, own.get(each), name, workflow)
    tasks = [each.task for each in registry.tasks(tx).values() if each.workflow == workflow]
    tasks = [*(each for each in tasks if each.name not in present), *restored]
    for read in dict.fromkeys(read for task in tasks for read in (*task.reads, *task.sources)):
        if read not in channels and read in states and read not in written:
            channels[read] = _declared(states[read].channel)
        elif read not in channels:
            raise _impossible(f"the channel {read}, which is read, would not exist", name, workflow)
    try:
        definition = WorkflowDefinition(
            name=workflow,
            channels=tuple(channels.values()),
            tasks=tuple(tasks),
            bindings=tuple(_bindings(tx, workflow, present, restored)),
        )
    except DeclarationError as error:
        raise _impossible(str(error), name, workflow) from error
    return Declared(definition, {})


def _time(history: Sequence[VersionRecord], name: str, present: Sequence[str], version: int | None) -> datetime:
    """Return the time of the last registration that belongs to an earlier version of a task or view."""
    own = [each for each in history if each.task == name]
    if version is None:
        newest = {each.task: each.registered for each in history if each.task in present}
        end = max(newest.values())
    elif version not in {each.logic for each in own}:
        hint = f"The newest logic version is {own[-1].logic}"
        raise NotFound(f"there is no logic version {version}", task=name, hint=hint)
    elif version == own[-1].logic:
        raise DeclarationError(f"the logic version {version} is the present one", task=name, hint="Name an earlier one")
    else:
        end = min(each.registered for each in own if each.logic > version)
    earlier = [each.registered for each in history if each.registered < end]
    if not earlier or min(each.registered for each in own) > max(earlier):
        raise DeclarationError("the task has no earlier logic version", task=name, hint="It has not changed yet")
    return max(earlier)


def _needed(tasks: Mapping[str, Task], name: str) -> tuple[str, ...]:
    """Return a task among given ones, preceded by those whose output it reads: others were dropped before."""
    writers = {channel: task for task in tasks.values() for channel in task.writes}
    needed = {name: None}
    for each in (left := [name]):
        read = [writers[channel].name for channel in tasks[each].reads if channel in writers]
        left += [task for task in dict.fromkeys(read) if task not in needed]
        needed |= dict.fromkeys(read)
    return tuple(reversed(needed))


def _declared(channel: Channel) -> Channel:
    """Return a registered channel as it was declared: without the columns that its task has determined."""
    return replace(channel, schema=None) if channel.adopts else channel


def _restored(old: Channel, present: Channel | None, task: str, workflow: str) -> Channel:
    """Return an output as it was declared at an earlier version; what does not concern its rows stays."""
    if present is None:
        return old
    if present.checks != old.checks:
        raise _impossible(f"the checks of the channel {old.name} have changed since", task, workflow)
    return replace(present, schema=old.schema, encoding=old.encoding, adopts=old.adopts)


def _bindings(tx: Transaction, workflow: str, present: Sequence[str], restored: tuple[Task, ...]) -> Iterable[Binding]:
    """Yield the bindings of a workflow, with restored tasks instead of the present ones."""
    from kilonova.declare.workflow import implicit_binding

    for each in bindings.bindings(tx).values():
        if each.workflow != workflow:
            continue
        left = tuple(name for name in each.binding.tasks if name not in present)
        if len(left) == len(each.binding.tasks):
            yield each.binding
        elif each.binding.implicit:
            yield implicit_binding(each.binding.name, restored)
        else:
            yield replace(each.binding, tasks=(*left, *(task.name for task in restored)))


def _impossible(problem: str, task: str, workflow: str) -> DeclarationError:
    hint = f"Apply the file of the workflow {workflow} with the earlier definition"
    return DeclarationError(f"the earlier definition cannot be restored: {problem}", task=task, hint=hint)
