"""Channels that a change of logic affects although their own tasks do not change: how they follow, and what breaks.

A task reads the changed output like any other new input, so that its own output follows at the next run. It cannot
follow if it reads a column that the output will not have any more.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kilonova.catalog.registry import TaskVersion
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.schema import KEPT, quoted
from kilonova.model.task import Task
from kilonova.model.workflow import WorkflowDefinition
from kilonova.query.properties import types
from kilonova.query.tree import channels, names, scans
from kilonova.query.view_tasks import change_of, known_of


class DownstreamEffect(enum.Enum):
    """DownstreamEffect of a change upstream on a channel."""

    INCREMENTAL = "incremental"
    FULL = "full"
    MAY_BREAK = "may break"
    BREAKS = "breaks"


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedChannel:
    """Channel downstream of a change, whose own task stays as it is.

    Attributes:
        channel: the channel.
        task: the task that writes it.
        workflow: the workflow of that task.
        reads: the affected channel that the task reads.
        effect: what becomes of it.
        detail: the same, as text for users.
    """

    channel: str
    task: str
    workflow: str
    reads: str
    effect: DownstreamEffect
    detail: str

    def to_dict(self) -> dict[str, Any]:
        """Return the value as a dictionary, for serialization."""
        return asdict(self) | {"effect": self.effect.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedOutput:
    """Task whose logic changes, as declared, and whether its output is migrated rather than recomputed."""

    task: Task
    migrated: bool


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns that a channel loses, or gets with another type, as text for users by their names."""

    removed: Mapping[str, str]
    retyped: Mapping[str, str]


_NONE = _Columns({}, {})


def affected_channels(
    changed: Sequence[ChangedOutput],
    workflow: WorkflowDefinition,
    registered: Mapping[str, TaskVersion],
    states: Mapping[str, ChannelState],
) -> tuple[AffectedChannel, ...]:
    """Return the channels downstream of changed tasks, nearest first.

    Args:
        changed: the tasks of a workflow whose logic changes.
        workflow: the workflow as declared.
        registered: the newest logic version of each registered task.
        states: the registered channels.
    """
    own = {item.task.name for item in changed}
    tasks = {task.name: (task, workflow.name) for task in workflow.tasks}
    tasks |= {
        name: (known.task, known.workflow) for name, known in registered.items() if known.workflow != workflow.name
    }
    inside = [item.task for item in changed if item.task.name in tasks and tasks[item.task.name][1] == workflow.name]
    columns = dict.fromkeys((name for item in changed for name in item.task.writes), _NONE)  # those of views elsewhere
    columns |= {name: each for task in inside for name, each in _changed_columns(task, workflow, states)}
    migrated = {name: item.migrated for item in changed for name in item.task.writes}
    readers: dict[str, list[tuple[Task, str]]] = {}
    for task, owner in tasks.values():
        for name in task.reads if task.name not in own else ():
            readers.setdefault(name, []).append((task, owner))
    found: dict[str, AffectedChannel] = {}
    front = list(columns)
    while front:
        reading = [(task, owner, name) for name in front for task, owner in readers.get(name, ())]
        front = []
        for task, owner, name in reading:
            effect, detail = _effect(task, name, columns.get(name, _NONE), owner != workflow.name, migrated[name])
            for channel in task.writes:
                worse = channel in found and _ORDER.index(effect) > _ORDER.index(found[channel].effect)
                if channel not in migrated:
                    front.append(channel)
                    migrated[channel] = effect is not DownstreamEffect.FULL
                if channel not in found or worse:
                    found[channel] = AffectedChannel(
                        channel=channel, task=task.name, workflow=owner, reads=name, effect=effect, detail=detail
                    )
    return tuple(found.values())


_ORDER = tuple(DownstreamEffect)
"""Effects, the harmless ones first."""


def _effect(task: Task, channel: str, columns: _Columns, foreign: bool, migrated: bool) -> tuple[DownstreamEffect, str]:
    """Return what becomes of the output of a task that reads a changed channel.

    A view of the changed workflow is declared with it, so that its columns are known to exist.
    """
    change = change_of(task)
    if change is not None:
        used = {name for scan in scans(change.tree) if scan.channel == channel for name, _ in scan.columns}
        lost = [text for name, text in columns.removed.items() if name in used]
        other = [text for name, text in columns.retyped.items() if name in used]
        if foreign and lost:
            return DownstreamEffect.BREAKS, f"cannot run: it reads {_listed(lost)}"
        if foreign and other:
            return DownstreamEffect.MAY_BREAK, f"may fail: it reads {_listed(other)}"
    elif (texts := [*columns.removed.values(), *columns.retyped.values()]) and (foreign or task.view is None):
        return DownstreamEffect.MAY_BREAK, f"fails if it uses {_listed(texts)}"
    if not any(port.channel == channel and port.mode.advances for each in task.variants for port in each.ports):
        return DownstreamEffect.FULL, "recomputed in full"
    if migrated:
        return DownstreamEffect.INCREMENTAL, "processes the changed rows"
    return DownstreamEffect.INCREMENTAL, "processes the rows that differ between the old and the new output"


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(texts[:-1]) + (" and " if len(texts) > 1 else "") + texts[-1]


def _changed_columns(
    task: Task, workflow: WorkflowDefinition, states: Mapping[str, ChannelState]
) -> Iterable[tuple[str, _Columns]]:
    """Yield the channels of a changed task, with the columns that each loses or gets with another type."""
    for name in task.writes:
        stored = states[name].stored_schema if name in states else None
        after = _columns(task, workflow.channel(name), workflow, states)
        if stored is None or after is None:
            yield name, _NONE
            continue
        before = {column.name: column.type for column in stored.columns if not column.name.startswith(KEPT)}
        yield (
            name,
            _Columns(
                {each: f"the column {each}, which {name} loses" for each in before if each not in after},
                {
                    each: f"the column {each}, which becomes {kind} instead of {before[each]}"
                    for each, kind in after.items()
                    if kind is not None and before.get(each, kind) != kind
                },
            ),
        )


def _columns(
    task: Task, channel: Channel, workflow: WorkflowDefinition, states: Mapping[str, ChannelState]
) -> Mapping[str, str | None] | None:
    """Return the columns of a channel as a changed task will write it, with types where they are known; None if not."""
    if channel.schema is not None:
        return {column.name: column.type for column in channel.schema.columns}
    if task.view is None:
        return None
    change = change_of(task)
    if change is None:
        from kilonova.query.syntax import selected_names  # it imports the parser

        variant = task.variants[0]
        text = variant.logic.text.format(**{port.name: quoted(port.channel) for port in variant.ports})
        return dict.fromkeys(selected_names(text)) or None
    read = {name: _channel(name, workflow, states) for name in channels(change.tree)}
    if any(each.schema is None for each in read.values()):
        return dict.fromkeys(name for name in names(change.tree) if not name.startswith(KEPT))
    found = types(change.tree, known_of(read))
    return {name: kind for name, kind in found.items() if not name.startswith(KEPT)}


def _channel(name: str, workflow: WorkflowDefinition, states: Mapping[str, ChannelState]) -> Channel:
    """Return a channel as it will be declared, with its present columns if those are not declared."""
    if workflow.declares(name) and (workflow.channel(name).schema is not None or name not in states):
        return workflow.channel(name)
    return states[name].current
