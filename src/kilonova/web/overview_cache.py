"""Cache of the workflow's overview, reloaded only after new events."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from kilonova.catalog.read_models.overview import ChannelSummary, Overview, TaskSummary
from kilonova.service.formatting import row_count, size
from kilonova.service.queries import ProjectReader
from kilonova.web.formatting import counted


class OverviewCache:
    """Cache of a project's overview, shared by concurrent requests.

    Every change to the content of an overview is recorded as an event, except the progress of runs.
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
    text = f"{channel.name}: point {channel.point}, rows: {row_count(channel.rows)}, {size(channel.bytes)}"
    return f"{text}, {counted(channel.quarantined, 'file')} quarantined" if channel.quarantined else text


def channel_status(channel: ChannelSummary) -> str:
    """Return the status of a channel: a state for which pages have a mark."""
    if channel.quarantined:
        return "quarantined"
    return "writing" if channel.writing else "fresh" if channel.point else "empty"


def select_part(overview: Overview, names: Collection[str], tasks: Collection[str] | None = None) -> Overview:
    """Return the part of an overview with the named channels, and with the named tasks.

    If `tasks` is None, these are the tasks that write only the named channels.
    """
    if tasks is None:
        tasks = {name for name, task in overview.tasks.items() if set(task.writes) <= set(names)}
    return replace(
        overview,
        channels={name: each for name, each in overview.channels.items() if name in names},
        tasks={name: each for name, each in overview.tasks.items() if name in tasks},
    )


def neighbourhood(overview: Overview, names: Iterable[str], depth: int) -> Overview:
    """Return the part of an overview within `depth` tasks of the named channels, with all outputs of these tasks."""
    reads = [{each.channel for each in task.reads} for task in overview.tasks.values()]
    writes = [set(task.writes) for task in overview.tasks.values()]

    def follow(channels: set[str], start: list[set[str]], end: list[set[str]]) -> set[str]:
        """Return the channels at the end of the tasks that have one of the given ones at their start."""
        return set().union(*(there for here, there in zip(start, end, strict=True) if here & channels))

    found = set(names) & overview.channels.keys()
    found |= follow(found, writes, writes)
    reached = set(found)
    for start, end in ((writes, reads), (reads, writes)):
        front = found
        for _ in range(depth):
            front = follow(front, start, end) - reached
            front |= follow(front, writes, writes)
            reached |= front
    return select_part(overview, reached)
