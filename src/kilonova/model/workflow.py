"""A workflow is channels and tasks, bipartite and acyclic; each channel is written by at most one task.

A task may read a channel that it writes itself (Nova, Figure 1: the hashes seen so far); that loop is no
cycle, because it reads what earlier runs left there.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from kilonova.errors import DeclarationError, closest
from kilonova.model.channel import Channel
from kilonova.model.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """Channels and the tasks between them.

    Raises:
        DeclarationError: a name occurs twice, a port or output dangles, a channel has two writers, or tasks
            form a cycle.
    """

    name: str
    channels: tuple[Channel, ...]
    tasks: tuple[Task, ...]

    def __post_init__(self) -> None:
        names = [channel.name for channel in self.channels]
        for name in names:
            if names.count(name) > 1:
                raise DeclarationError("the channel is declared twice", channel=name)
        writers: dict[str, str] = {}
        for task in self.tasks:
            if sum(other.name == task.name for other in self.tasks) > 1:
                raise DeclarationError("the task is declared twice", task=task.name)
            for channel in (*task.reads, *task.writes):
                if channel not in names:
                    raise DeclarationError(
                        "there is no such channel",
                        channel=channel,
                        task=task.name,
                        hint=closest(channel, names),
                    )
            for channel in task.writes:
                if channel in writers:
                    raise DeclarationError(
                        f"the channel already has a writer, {writers[channel]}",
                        channel=channel,
                        task=task.name,
                        hint="Let each task write a channel of its own, and join them in a third",
                    )
                writers[channel] = task.name
        self.order()

    def channel(self, name: str) -> Channel:
        """The channel of that name.

        Raises:
            DeclarationError: there is none.
        """
        for channel in self.channels:
            if channel.name == name:
                return channel
        raise DeclarationError("there is no such channel", channel=name)

    def writer(self, channel: str) -> Task | None:
        """The task that writes a channel; None for source channels."""
        return next((task for task in self.tasks if channel in task.writes), None)

    @property
    def sources(self) -> tuple[Channel, ...]:
        """The channels that no task writes."""
        return tuple(channel for channel in self.channels if self.writer(channel.name) is None)

    def order(self) -> tuple[Task, ...]:
        """The tasks, each after those whose output it reads.

        Raises:
            DeclarationError: they form a cycle.
        """
        graph = {
            task.name: sorted({w.name for c in task.reads if (w := self.writer(c)) and w.name != task.name})
            for task in self.tasks
        }
        try:
            names = list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            cycle = " → ".join(error.args[1])
            raise DeclarationError(
                f"the tasks form a cycle: {cycle}",
                hint="A task may read its own output, but not through another",
            ) from None
        return tuple(sorted(self.tasks, key=lambda task: names.index(task.name)))
