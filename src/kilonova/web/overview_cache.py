"""Cache of the workflow's overview, reloaded only after new events."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from kilonova.catalog.read_models.overview import ChannelSummary, Overview, TaskSummary
from kilonova.service.queries import ProjectReader
from kilonova.web.formatting import size


class OverviewCache:
    """Cache of a project's overview, shared by concurrent requests.

    Every change to the content of an overview is recorded as an event, except the progress of runs.

    Args:
        project: the project.
    """

    def __init__(self, project: ProjectReader) -> None:
        self._project = project
        self._lock = threading.Lock()
        self._last: Overview | None = None

    def overview(self) -> Overview:
        """Return the current overview."""
        with self._lock:
            if self._last is None or self._last.event != self._project.newest_event():
                self._last = self._project.overview()
            elif self._last.running:
                self._last = replace(self._last, running=self._project.running())
            return self._last


@dataclass(frozen=True, slots=True)
class StatusBadge:
    """Status badge: a state for which pages have a mark, and a text for people."""

    state: str
    text: str


def task_status(task: TaskSummary, overview: Overview) -> StatusBadge:
    """Return the status of a task."""
    binding = overview.bindings.get(task.binding)
    if task.running is not None:
        progress = overview.running.get(task.running)
        going = next((each for each in progress.going if each.step == task.name), None) if progress else None
        amount = f" {going.amount.done}/{going.amount.total}" if going and going.amount.total else ""
        return StatusBadge("running", f"running{amount}")
    if task.failed is not None:
        return StatusBadge("failed", f"run {task.failed} failed")
    behind = sum(each.behind for each in task.reads if each.drives)
    if binding is not None and binding.paused:
        return StatusBadge("paused", f"paused, {behind} behind" if behind else "paused")
    if task.due:
        return StatusBadge(
            "due", f"{behind} point{'' if behind == 1 else 's'} to read" if task.started else "not run yet"
        )
    if not task.started:
        return StatusBadge("empty", "no input yet")
    return StatusBadge("fresh", "up to date")


def describe_channel(channel: ChannelSummary) -> str:
    """Describe a channel in one line."""
    return f"{channel.name}: point {channel.point}, {channel.rows:,} rows, {size(channel.bytes)}"


def channel_status(channel: ChannelSummary) -> str:
    """Return the status of a channel: a state for which pages have a mark."""
    return "writing" if channel.writing else "fresh" if channel.point else "empty"


def select_part(overview: Overview, names: Collection[str], tasks: Collection[str] | None = None) -> Overview:
    """Return the part of an overview with some channels and tasks.

    Args:
        overview: the overview.
        names: the channels.
        tasks: the tasks; None for those that write only these channels.
    """
    chosen = {
        name: task
        for name, task in overview.tasks.items()
        if (all(channel in names for channel in task.writes) if tasks is None else name in tasks)
    }
    return replace(
        overview,
        channels={name: each for name, each in overview.channels.items() if name in names},
        tasks=chosen,
    )


def neighbourhood(overview: Overview, names: Iterable[str], depth: int) -> Overview:
    """Return the part of an overview within `depth` tasks of some channels, with all outputs of these tasks.

    Args:
        overview: the overview.
        names: the channels.
        depth: the number of tasks.
    """
    before: dict[str, set[str]] = {}
    after: dict[str, set[str]] = {}
    for task in overview.tasks.values():
        for channel in task.writes:
            before.setdefault(channel, set()).update(each.channel for each in task.reads)
        for each in task.reads:
            after.setdefault(each.channel, set()).update(task.writes)
    found = {name for name in names if name in overview.channels}
    together = {channel for task in overview.tasks.values() if found & set(task.writes) for channel in task.writes}
    start = found | together
    reached = set(start)
    for neighbours in (before, after):
        front = set(start)
        for _ in range(depth):
            front = {other for channel in front for other in neighbours.get(channel, ())} - reached
            front |= {
                channel for task in overview.tasks.values() if front & set(task.writes) for channel in task.writes
            }
            reached |= front
    return select_part(overview, reached)
