"""The workflow as it stands, looked at anew only when something has happened."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from kilonova.catalog.overview import ChannelGlance, Overview, TaskGlance
from kilonova.server.page.words import size
from kilonova.service.looking import Looking


class Glances:
    """Looks at a project, for all who ask at a time.

    Whatever changes what an overview shows is told as an event, but for how far runs have come.

    Args:
        project: the project.
    """

    def __init__(self, project: Looking) -> None:
        self._project = project
        self._lock = threading.Lock()
        self._last: Overview | None = None

    def overview(self) -> Overview:
        """How things stand now."""
        with self._lock:
            if self._last is None or self._last.event != self._project.newest_event():
                self._last = self._project.overview()
            elif self._last.running:
                self._last = replace(self._last, running=self._project.running())
            return self._last


@dataclass(frozen=True, slots=True)
class Standing:
    """How something stands: a word that pages have a mark for, and more of it for people."""

    state: str
    text: str


def standing(task: TaskGlance, overview: Overview) -> Standing:
    """How a task stands."""
    binding = overview.bindings.get(task.binding)
    if task.running is not None:
        headway = overview.running.get(task.running)
        going = next((each for each in headway.going if each.step == task.name), None) if headway else None
        amount = f" {going.amount.done}/{going.amount.total}" if going and going.amount.total else ""
        return Standing("running", f"running{amount}")
    if task.failed is not None:
        return Standing("failed", f"run {task.failed} failed")
    behind = sum(each.behind for each in task.reads if each.drives)
    if binding is not None and binding.paused:
        return Standing("paused", f"paused, {behind} behind" if behind else "paused")
    if task.due:
        return Standing("due", f"{behind} point{'' if behind == 1 else 's'} to read" if task.started else "has not run")
    if not task.started:
        return Standing("empty", "nothing to read yet")
    return Standing("fresh", "up to date")


def told(channel: ChannelGlance) -> str:
    """A channel in a line."""
    return f"{channel.name}: point {channel.point}, {channel.rows:,} rows, {size(channel.bytes)}"


def condition(channel: ChannelGlance) -> str:
    """How a channel stands: a word that pages have a mark for."""
    return "writing" if channel.writing else "fresh" if channel.point else "empty"


def part(overview: Overview, names: Collection[str], tasks: Collection[str] | None = None) -> Overview:
    """What an overview says of some channels and tasks.

    Args:
        overview: the overview.
        names: the channels.
        tasks: the tasks; None for those that write nothing but these channels.
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


def around(overview: Overview, names: Iterable[str], depth: int) -> Overview:
    """What lies around channels: so many tasks before and after them, and what writes the channels at the edge.

    Args:
        overview: the overview.
        names: the channels.
        depth: how many tasks.
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
    return part(overview, reached)
