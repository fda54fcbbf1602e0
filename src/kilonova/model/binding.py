"""A binding is a workflowette attached to channels: tasks that run atomically, and the triggers that start them.

A workflowette is a group of tasks with ports (Nova, section 2.3). Once its ports are attached to channels nothing of
it is left but tasks with names of their own, so that whatever works with tasks works with bound ones. A task belongs to
one binding; one that is put into none is a binding by itself, which its news start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kilonova.errors import DeclarationError, closest
from kilonova.model.channel import Channel
from kilonova.model.encoding import described
from kilonova.model.task import Mode
from kilonova.model.trigger import After, Arrival, Trigger, simple, spinning


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A bound workflowette.

    Attributes:
        name: unique within a catalog.
        tasks: the tasks that run as one run.
        triggers: what starts it, any of them.
        workflowette: the workflowette that is bound; empty for tasks that were put together in their workflow.
        priority: what is higher goes first where not everything can run at once.
        queue: for how many seconds it may wait for others that read the same, so as to read it once; None if it does
            not wait.
        alone: whether it is a task that was put into no binding.
    """

    name: str
    tasks: tuple[str, ...]
    triggers: tuple[Trigger, ...] = ()
    workflowette: str = ""
    priority: int = 0
    queue: float | None = None
    alone: bool = False

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise DeclarationError(
                f"{self.name!r} is not a name",
                hint="Use letters, digits and underscores, starting with a letter",
            )
        if not self.tasks:
            raise DeclarationError("there are no tasks in it", binding=self.name)


def refuse_impossible(
    bindings: Iterable[Binding], channels: Iterable[str], writes: Mapping[str, Iterable[str]]
) -> None:
    """Refuse bindings that cannot be together.

    Args:
        bindings: all bindings.
        channels: the names of all channels.
        writes: the channels that each task writes.

    Raises:
        DeclarationError: a name or a task occurs twice, a trigger names what is not there, or triggers would start each
            other without end.
    """
    every = tuple(bindings)
    names, known = Counter(binding.name for binding in every), set(channels)
    owner: dict[str, str] = {}
    for binding in every:
        if names[binding.name] > 1:
            raise DeclarationError("there are two bindings of this name", binding=binding.name)
        if not binding.alone and binding.name in writes:
            raise DeclarationError("a task has this name", binding=binding.name, hint="Call it otherwise")
        for task in binding.tasks:
            if task not in writes:
                raise DeclarationError(
                    "there is no such task", binding=binding.name, task=task, hint=closest(task, list(writes))
                )
            if task in owner:
                raise DeclarationError(
                    f"the task is in {owner[task]} already",
                    binding=binding.name,
                    task=task,
                    hint="A task belongs to one binding; to use it twice, bind a workflowette twice",
                )
            owner[task] = binding.name
        for item in (item for trigger in binding.triggers for item in simple(trigger)):
            if isinstance(item, Arrival) and item.channel not in known:
                raise DeclarationError(
                    "its trigger waits for a channel that is not there",
                    binding=binding.name,
                    channel=item.channel,
                    hint=closest(item.channel, sorted(known)),
                )
            if isinstance(item, After) and item.binding not in names:
                raise DeclarationError(
                    f"its trigger waits for the binding {item.binding}, which is not there",
                    binding=binding.name,
                    hint=closest(item.binding, sorted(names)),
                )
    written = {each.name: [channel for task in each.tasks for channel in writes[task]] for each in every}
    cycle = spinning({each.name: each.triggers for each in every}, written)
    if cycle:
        raise DeclarationError(
            f"triggers would start each other without end: {' is started by '.join((*cycle, cycle[0]))}",
            binding=cycle[0],
            hint="Let one of them wait for a time, or for data from outside",
        )


def refuse_misfit(port: Channel, channel: Channel, modes: Iterable[Mode], written: bool) -> None:
    """Refuse to attach a channel to a port that it does not fit.

    Columns are the same, in any order. The encoding is, where a task sees it: where it reads what is new as it came,
    or writes.

    Args:
        port: the port, as the workflowette declares it.
        channel: the channel.
        modes: how the workflowette's tasks read the port.
        written: whether one of them writes it.

    Raises:
        DeclarationError: it does not fit.
    """
    if port.schema is not None and channel.schema is not None:
        wanted = {column.name: column.type for column in port.schema.columns}
        given = {column.name: column.type for column in channel.schema.columns}
        for name, kind in wanted.items():
            if name not in given:
                raise DeclarationError(
                    f"it has no column {name}, which the port {port.name} has", channel=channel.name, column=name
                )
            if given[name] != kind:
                raise DeclarationError(
                    f"it is {given[name]}, but the port {port.name} has {kind}", channel=channel.name, column=name
                )
        for name in given:
            if name not in wanted:
                raise DeclarationError(
                    f"the port {port.name} does not have this column",
                    channel=channel.name,
                    column=name,
                    hint="Bind a view of the channel that leaves it out",
                )
    if (written or Mode.NEW in modes) and port.encoding != channel.encoding:
        raise DeclarationError(
            f"its changes come as {described(channel.encoding)}, those of the port {port.name} as "
            f"{described(port.encoding)}",
            channel=channel.name,
            hint="Declare both in the same way"
            + ("" if written else ", or read the port with kn.Changes, which is the same for all encodings"),
        )
