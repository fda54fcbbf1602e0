"""Planned tasks: the tasks that lead to bounded channels, as the planner sees them.

A view and the relations that are materialized for it are one planned task, because they run together; a task that
writes several channels is one planned task for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kilonova.model.version import Path
from kilonova.model.workflow import WorkflowDefinition
from kilonova.schedule.due import PlannerInput, TaskState

_OUTPUT = "→"
"""Text between the name of a task with several outputs and the channel, in the name of a planned task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """Task as the planner sees it.

    Attributes:
        name: its name.
        writes: the channel that it writes.
        reads: the channels that it reads, without its own.
        state: the state of the newest logic version of the task, or of the view.
        parts: of a view, the states of the tasks of what is materialized for it.
    """

    name: str
    writes: str
    reads: tuple[str, ...]
    state: TaskState
    parts: tuple[TaskState, ...] = ()

    @property
    def states(self) -> tuple[TaskState, ...]:
        """The states of all of its tasks."""
        return (*self.parts, self.state)

    @property
    def incremental(self) -> bool:
        """Return whether it may process changes: it has run, and from what is materialized."""
        return self.state.started and not self.state.detached and all(part.started for part in self.parts)

    def cursor(self, channel: str) -> int:
        """Return the point up to which it has read a channel: the least of its tasks' cursors."""
        readers = [state for state in self.states if channel in state.task.reads]
        return min((state.cursor(channel) for state in readers), default=self.state.cursor(channel))


def planned_tasks(known: PlannerInput, channels: Iterable[str]) -> Mapping[str, PlannedTask]:
    """Return the planned tasks that write some channels and all that these are computed from, by channel.

    Channels without a writer, and those with several, are left out.
    """
    newest, parts = known.newest, dict[str, list[TaskState]]()
    for name, state in newest.items():
        if state.task.view not in (None, name):
            parts.setdefault(state.task.view, []).append(state)
    found: dict[str, PlannedTask] = {}
    waiting = list(channels)
    while waiting:
        name = waiting.pop()
        writers = known.workflow.writers(name)
        if name in found or len(writers) != 1:
            continue
        task = writers[0].name
        found[name] = planned = _planned(newest[task], tuple(parts.get(task, ())), name)
        waiting += planned.reads
    return found


def _planned(state: TaskState, parts: tuple[TaskState, ...], channel: str) -> PlannedTask:
    task = state.task.name
    internal = {name for part in parts for name in part.task.writes}
    reads = dict.fromkeys(name for each in (*parts, state) for name in (*each.task.reads, *each.task.sources))
    several = len(state.task.writes) > 1
    return PlannedTask(
        name=f"{task}{_OUTPUT}{channel}" if several else task,
        writes=channel,
        reads=tuple(name for name in reads if name not in internal and name not in state.task.writes),
        state=state,
        parts=parts,
    )


def task_of(planned: str) -> str:
    """Return the name of the task, or of the view, of a planned task.

    >>> task_of("split→news"), task_of("score")
    ('split', 'score')
    """
    return planned.partition(_OUTPUT)[0]


def declared_path(path: Path) -> Path:
    """Return a path of planned tasks in the form in which bounds name it."""
    return (path[0], *map(task_of, path[1:]))


def obstacle(channel: str, workflow: WorkflowDefinition, planned: Mapping[str, PlannedTask]) -> str | None:
    """Return why no plan can be made for a channel; None if one can."""
    waiting, seen = [channel], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if len(workflow.writers(name)) > 1:
            return f"several tasks write {name}, so that it runs as its triggers say"
        waiting += planned[name].reads if name in planned else ()
    return None
