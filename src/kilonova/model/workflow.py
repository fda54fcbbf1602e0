"""A workflow is channels and tasks, bipartite and acyclic; each channel has one writer, unless declared otherwise.

Several writers of one channel write deltas to it, each run at points of its own.

A task may read a channel that it writes itself (Nova, Figure 1: the hashes seen so far); that loop is no
cycle, because the task reads the output of earlier runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from kilonova.errors import DeclarationError, closest_name
from kilonova.model.binding import Binding
from kilonova.model.bound import Bound
from kilonova.model.channel import Channel
from kilonova.model.column_rules import STRICT
from kilonova.model.task import Production, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDefinition:
    """Channels and the tasks between them, with their bindings and bounds.

    The paths of bounds are as declared: see `kilonova.model.workflow_path`.

    Raises:
        DeclarationError: a name occurs twice, a port or output refers to no channel, a channel that is not declared to
            have several writers has two, or has one although it ingests a watched directory, a task does to a channel
            with several writers what only a single writer may do, or tasks form a cycle.
    """

    name: str
    channels: tuple[Channel, ...]
    tasks: tuple[Task, ...]
    bindings: tuple[Binding, ...] = ()
    bounds: tuple[Bound, ...] = ()
    _channels: Mapping[str, Channel] = field(init=False, repr=False, compare=False)
    _writers: Mapping[str, tuple[Task, ...]] = field(init=False, repr=False, compare=False)
    _readers: Mapping[str, list[Task]] = field(init=False, repr=False, compare=False)
    _order: tuple[Task, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = {channel.name: channel for channel in self.channels}
        if twice := _repeated(channel.name for channel in self.channels):
            raise DeclarationError("the channel is declared twice", channel=twice, hint="Rename or remove one of them")
        if twice := _repeated(task.name for task in self.tasks):
            raise DeclarationError("the task is declared twice", task=twice, hint="Rename or remove one of them")
        writers: dict[str, tuple[Task, ...]] = {}
        for task in self.tasks:
            for channel in (*task.reads, *task.writes):
                if channel not in names:
                    raise DeclarationError(
                        "there is no such channel",
                        channel=channel,
                        task=task.name,
                        hint=closest_name(channel, list(names)),
                    )
            for channel in task.writes:
                several = names[channel].several_writers
                if several:
                    _check_grouped(task, channel)
                elif channel in writers:
                    raise DeclarationError(
                        f"the channel already has a writer, {writers[channel][0].name}",
                        channel=channel,
                        task=task.name,
                        hint="Declare the channel with several_writers=True, or let each task write one of its own",
                    )
                if names[channel].watch is not None and not several:
                    raise DeclarationError(
                        "the channel ingests the files of a watched directory, so no task can write it",
                        channel=channel,
                        task=task.name,
                        hint="Declare it with several_writers=True, or let the task write a channel of its own",
                    )
                if names[channel].sequence_by is not None:
                    raise DeclarationError(
                        "the channel has sequence_by, which orders ingested rows, so no task can write it",
                        channel=channel,
                        task=task.name,
                        hint="Declare it without sequence_by, or let the task write a channel of its own",
                    )
                if names[channel].rules != STRICT and not several:
                    raise DeclarationError(
                        "the channel has rules for the columns of ingested rows, so no task can write it",
                        channel=channel,
                        task=task.name,
                        hint="Declare it without rules, or let the task write a channel of its own",
                    )
                writers[channel] = (*writers.get(channel, ()), task)
        readers: dict[str, list[Task]] = {}
        for task in self.tasks:
            for channel in task.reads:
                readers.setdefault(channel, []).append(task)
        object.__setattr__(self, "_channels", names)
        object.__setattr__(self, "_writers", writers)
        object.__setattr__(self, "_readers", readers)
        object.__setattr__(self, "_order", self._sorted())

    def channel(self, name: str) -> Channel:
        """Return the channel of that name.

        Raises:
            DeclarationError: there is no such channel.
        """
        if name not in self._channels:
            hint = closest_name(name, list(self._channels))
            raise DeclarationError("there is no such channel", channel=name, hint=hint)
        return self._channels[name]

    def declares(self, channel: str) -> bool:
        """Return whether there is a channel of that name."""
        return channel in self._channels

    def writers(self, channel: str) -> tuple[Task, ...]:
        """Return the tasks that write a channel; none for source channels."""
        return self._writers.get(channel, ())

    @property
    def sources(self) -> tuple[Channel, ...]:
        """The channels that no task writes."""
        return tuple(channel for channel in self.channels if not self.writers(channel.name))

    def downstream(self, task: Task) -> tuple[Task, ...]:
        """Return the tasks that read the output of a task, directly or through other tasks; nearest first."""
        reached: dict[str, Task] = {}
        front = [task]
        while front:
            after = [reader for item in front for channel in item.writes for reader in self._readers.get(channel, ())]
            found = {item.name: item for item in after if item.name not in reached and item.name != task.name}
            front = list(found.values())  # each once: the paths to a task may be very many
            reached |= found
        return tuple(reached.values())

    def order(self) -> tuple[Task, ...]:
        """Return the tasks, each after those whose output it reads."""
        return self._order

    def _sorted(self) -> tuple[Task, ...]:
        by_name = {task.name: task for task in self.tasks}
        graph = {task.name: sorted({w.name for c in task.reads for w in self.writers(c)}) for task in self.tasks}
        try:
            return tuple(by_name[name] for name in TopologicalSorter(graph).static_order())
        except CycleError as error:
            cycle = " → ".join(error.args[1])
            raise DeclarationError(
                f"the tasks form a cycle: {cycle}",
                hint="A task may read its own output, but not through another",
            ) from None


def _check_grouped(task: Task, channel: str) -> None:
    """Check that a task does nothing to a channel that requires being its only writer.

    Raises:
        DeclarationError: the task would replace the rows of other writers, or read them as its own.
    """
    for variant in task.variants:
        if variant.productions[task.writes.index(channel)] is Production.BASE:
            raise DeclarationError(
                f"the variant {variant.name} writes a base, which would erase what other writers have written",
                channel=channel,
                task=task.name,
                hint="Return a kn.Delta, or write a channel with one writer",
            )
        if any(port.channel == channel for port in variant.ports):
            raise DeclarationError(
                f"the variant {variant.name} reads the channel that it writes, which also has rows of other writers",
                channel=channel,
                task=task.name,
                hint="Keep the state that it needs in a channel that only it writes",
            )


def _repeated(names: Iterable[str]) -> str | None:
    """Return a name that occurs twice, if there is one."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
