"""A binding is a workflowette attached to channels: tasks that run atomically, and the triggers that start them.

A workflowette is a group of tasks with ports (Nova, section 2.3). Once its ports are attached to channels, only tasks
with names of their own remain, so that all code that works with tasks also works with bound ones. A task belongs to one
binding; a task without a declared binding forms an implicit one, which new input starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kilonova.errors import DeclarationError, closest_name
from kilonova.model.channel import Channel
from kilonova.model.encoding import describe_encoding
from kilonova.model.task import Mode
from kilonova.model.trigger import ArrivalTrigger, RunTrigger, Trigger, conditions_of, find_trigger_cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A bound workflowette.

    Attributes:
        name: the name, unique within a catalog.
        tasks: the tasks that run as one run.
        triggers: the triggers; any of them starts the binding.
        workflowette: the workflowette that is bound; empty for tasks that were grouped in their workflow.
        priority: bindings with a higher priority run first where not everything can run at once.
        merge_window: seconds for which it may wait for other bindings that read the same data, to read it once; None
            if it does not wait.
        implicit: whether it consists of a single task without a declared binding.
    """

    name: str
    tasks: tuple[str, ...]
    triggers: tuple[Trigger, ...] = ()
    workflowette: str = ""
    priority: int = 0
    merge_window: float | None = None
    implicit: bool = False

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise DeclarationError(
                f"{self.name!r} is not a valid name",
                hint="Use letters, digits and underscores, starting with a letter",
            )
        if not self.tasks:
            raise DeclarationError("the binding has no tasks", binding=self.name, hint="Name at least one task")


def validate_bindings(
    bindings: Iterable[Binding], channels: Iterable[str], writes: Mapping[str, Iterable[str]]
) -> None:
    """Check that bindings are valid together.

    Args:
        bindings: all bindings.
        channels: the names of all channels.
        writes: the channels that each task writes.

    Raises:
        DeclarationError: a name or a task occurs twice, a trigger names something that does not exist, or triggers
            would start each other endlessly.
    """
    every = tuple(bindings)
    names, known = Counter(binding.name for binding in every), set(channels)
    owner: dict[str, str] = {}
    for binding in every:
        if names[binding.name] > 1:
            raise DeclarationError(
                "the binding is declared twice", binding=binding.name, hint="Rename or remove one of them"
            )
        if not binding.implicit and binding.name in writes:
            raise DeclarationError("a task already has this name", binding=binding.name, hint="Rename one of them")
        for task in binding.tasks:
            if task not in writes:
                raise DeclarationError(
                    "there is no such task", binding=binding.name, task=task, hint=closest_name(task, list(writes))
                )
            if task in owner:
                raise DeclarationError(
                    f"the task already belongs to the binding {owner[task]}",
                    binding=binding.name,
                    task=task,
                    hint="A task belongs to one binding; to use it twice, bind a workflowette twice",
                )
            owner[task] = binding.name
        for item in (item for trigger in binding.triggers for item in conditions_of(trigger)):
            if isinstance(item, ArrivalTrigger) and item.channel not in known:
                raise DeclarationError(
                    "the trigger refers to a channel that does not exist",
                    binding=binding.name,
                    channel=item.channel,
                    hint=closest_name(item.channel, sorted(known)),
                )
            if isinstance(item, RunTrigger) and item.binding not in names:
                raise DeclarationError(
                    f"the trigger refers to the binding {item.binding}, which does not exist",
                    binding=binding.name,
                    hint=closest_name(item.binding, sorted(names)),
                )
    written = {each.name: [channel for task in each.tasks for channel in writes[task]] for each in every}
    cycle = find_trigger_cycle({each.name: each.triggers for each in every}, written)
    if cycle:
        raise DeclarationError(
            f"the triggers form a cycle: {' is started by '.join((*cycle, cycle[0]))}",
            binding=cycle[0],
            hint="Start one of them by time, or by data in a source channel",
        )


def validate_attachment(port: Channel, channel: Channel, modes: Iterable[Mode], written: bool) -> None:
    """Check that a channel can be attached to a port.

    The columns must be the same, in any order. The encoding must be the same where a task depends on it: where it reads
    the channel in mode NEW, or writes it.

    Args:
        port: the port, as the workflowette declares it.
        channel: the channel.
        modes: the modes in which the workflowette's tasks read the port.
        written: whether one of them writes it.

    Raises:
        DeclarationError: the channel does not fit the port.
    """
    if port.schema is not None and channel.schema is not None:
        wanted = {column.name: column.type for column in port.schema.columns}
        given = {column.name: column.type for column in channel.schema.columns}
        for name, kind in wanted.items():
            if name not in given:
                raise DeclarationError(
                    f"the channel has no column {name}, which the port {port.name} requires",
                    channel=channel.name,
                    column=name,
                    hint="Attach another channel, or a view of it with this column",
                )
            if given[name] != kind:
                raise DeclarationError(
                    f"the column has type {given[name]}, but the port {port.name} requires {kind}",
                    channel=channel.name,
                    column=name,
                    hint="Attach a view of the channel that casts the column",
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
            f"the channel has the encoding {describe_encoding(channel.encoding)}, but the port {port.name} has "
            f"{describe_encoding(port.encoding)}",
            channel=channel.name,
            hint="Declare both with the same encoding"
            + ("" if written else ", or read the port with kn.Changes, which is the same for all encodings"),
        )
