"""The workflow as the planner sees it: channels, tasks with variants, and what each variant reads and writes.

A variant's *signature* says of each port which types of blocks it reads, and in which way (asynchronous scheduling,
2.3):

    form               reads                before   after
    BASE               B(T)                 T        T
    DELTA              Δ(T₁ ▷ T₂)           T₁       T₂
    BASE_AND_DELTA     B(T₁), Δ(T₁ ▷ T₂)    T₁       T₂
    HELD               B(T₁)                T₁       T₁
    NOTHING                                 ∅        ∅

where T₁ of HELD is what the task has read by the port so far: the channel is read as it was then.

With ⊕ over its ports, a variant writes B(⊕ after) or Δ(⊕ before ▷ ⊕ after). A *synchronous* variant requires both to
be consistent; an asynchronous one does not. So the join of Δ(T₁ ▷ T₂) with B(T₃) writes Δ(T₁ ⊕ T₃ ▷ T₂ ⊕ T₃), and a
one-sided union leaves the entries of the other side empty (3.3).

A *conversion* turns one block type of a channel into another, without a task (2.4).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from kilonova.errors import DeclarationError, closest_name
from kilonova.model.version import Path
from kilonova.schedule.asynchrony.data_block import BASE, BlockType, is_weak
from kilonova.schedule.asynchrony.linear_model import LinearModel


class PortForm(enum.Enum):
    """Kinds of blocks that a port reads together."""

    NOTHING = "nothing"
    BASE = "base"
    DELTA = "delta"
    BASE_AND_DELTA = "base and delta"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class PortSignature:
    """Signature of a port: the blocks that a variant reads by it.

    Attributes:
        form: the blocks that it reads together.
        delta: the type of the delta, for the forms with a delta.
    """

    form: PortForm
    delta: BlockType = BASE

    def __post_init__(self) -> None:
        assert (self.form in (PortForm.DELTA, PortForm.BASE_AND_DELTA)) == (self.delta != BASE)

    @property
    def block_count(self) -> int:
        """The number of blocks, counting a chain of deltas as one."""
        return {PortForm.BASE: 1, PortForm.DELTA: 1, PortForm.BASE_AND_DELTA: 2}.get(self.form, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantModel:
    """A variant of a task.

    Attributes:
        name: the name, unique within the task.
        ports: what it reads by each port of the task.
        produces: the type of the block that it writes.
        synchronous: whether what it combines must be consistent.
        keeps_monotone: whether a strong delta that it writes is monotone where all deltas that it reads are.
        cost: its cost, by the rows of the blocks that it reads and writes.
        rows: the rows that it writes, by those of the blocks that it reads.
    """

    name: str
    ports: tuple[PortSignature, ...]
    produces: BlockType
    synchronous: bool = False
    keeps_monotone: bool = False
    cost: LinearModel
    rows: LinearModel

    def __post_init__(self) -> None:
        count = sum(port.block_count for port in self.ports)
        if len(self.cost.per_input) != count or len(self.rows.per_input) != count:
            raise DeclarationError(
                f"variant {self.name} reads {count} blocks, and its cost or size model has another number of inputs",
                hint="Give one coefficient per block, a base before its delta",
            )
        if not count:
            raise DeclarationError(f"variant {self.name} reads nothing", hint="Let one of its ports read blocks")
        if self.produces != BASE and all(port.delta == BASE for port in self.ports):
            raise DeclarationError(
                f"variant {self.name} writes a delta, and reads none", hint="Let it write a base, or read a delta"
            )


@dataclass(frozen=True, slots=True)
class Conversion:
    """A converter of a channel: c^XY, which may read the old base as well (asynchronous scheduling, Figure 2).

    Attributes:
        source: type X of the blocks read: a base is converted to a delta by comparing it with an older one.
        target: type Y of the block written.
        cost: its cost, by the rows of the old base, if it is read, then of the block, and of the output.
        rows: the rows that it writes, by the same inputs.
    """

    source: BlockType
    target: BlockType
    cost: LinearModel
    rows: LinearModel

    @property
    def reads_base(self) -> bool:
        """Return whether the old base is read: by all converters but those from strong to weak deltas."""
        return BASE in (self.source, self.target) or is_weak(self.source)


@dataclass(frozen=True, slots=True)
class ChannelModel:
    """A channel, with the conversions between the types of its blocks."""

    name: str
    conversions: tuple[Conversion, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskModel:
    """A task: it reads channels by its ports, and writes one channel, by any of its variants.

    Attributes:
        name: the name.
        reads: the channel of each port.
        writes: the channel that it writes.
        variants: its variants, each with as many ports.
    """

    name: str
    reads: tuple[str, ...]
    writes: str
    variants: tuple[VariantModel, ...]

    def __post_init__(self) -> None:
        for variant in self.variants:
            if len(variant.ports) != len(self.reads):
                raise DeclarationError(
                    f"variant {variant.name} has {len(variant.ports)} ports", task=self.name, hint="Give one per input"
                )


@dataclass(frozen=True)
class WorkflowModel:
    """Channels and tasks; a channel that no task writes is a source.

    Raises:
        DeclarationError: names occur twice, a task names an unknown channel, a channel has two writers, or there is a
            cycle.
    """

    channels: tuple[ChannelModel, ...]
    tasks: tuple[TaskModel, ...]

    def __post_init__(self) -> None:
        if twice := _first_duplicate(channel.name for channel in self.channels):
            raise DeclarationError("the channel is declared twice", channel=twice, hint="Rename one of them")
        if twice := _first_duplicate(task.name for task in self.tasks):
            raise DeclarationError("the task is declared twice", task=twice, hint="Rename one of them")
        if twice := _first_duplicate(task.writes for task in self.tasks):
            raise DeclarationError("two tasks write the channel", channel=twice, hint="Combine them by a union")
        names = [channel.name for channel in self.channels]
        known = set(names)
        for task in self.tasks:
            for name in (*task.reads, task.writes):
                if name not in known:
                    hint = closest_name(name, names)
                    raise DeclarationError("there is no such channel", task=task.name, channel=name, hint=hint)
        assert self.order  # refuses cycles

    @cached_property
    def channel(self) -> Mapping[str, ChannelModel]:
        """The channels by name."""
        return {channel.name: channel for channel in self.channels}

    @cached_property
    def writer(self) -> Mapping[str, TaskModel]:
        """The task that writes each channel but the sources."""
        return {task.writes: task for task in self.tasks}

    @cached_property
    def readers(self) -> Mapping[str, tuple[TaskModel, ...]]:
        """The tasks that read each channel."""
        readers: dict[str, list[TaskModel]] = {channel.name: [] for channel in self.channels}
        for task in self.tasks:
            for name in dict.fromkeys(task.reads):
                readers[name].append(task)
        return {name: tuple(each) for name, each in readers.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The channels, each after those that it is computed from."""
        order: list[str] = []
        waiting = {task.name: len(set(task.reads)) for task in self.tasks}
        ready = [channel.name for channel in self.channels if channel.name not in self.writer]
        while ready:
            order.append(name := ready.pop())
            for task in self.readers[name]:
                waiting[task.name] -= 1
                if not waiting[task.name]:
                    ready.append(task.writes)
        if len(order) < len(self.channels):
            cyclic = next(name for name, count in waiting.items() if count)
            raise DeclarationError("the task reads what it writes", task=cyclic, hint="Remove a port of the cycle")
        return tuple(order)

    @cached_property
    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        """The paths from source channels to each channel, in the order of the ports that they come through."""
        paths: dict[str, tuple[Path, ...]] = {}
        for name in self.order:
            task = self.writer.get(name)
            if task is None:
                paths[name] = ((name,),)
            else:
                through = ((*path, task.name) for read in task.reads for path in paths[read])
                paths[name] = tuple(dict.fromkeys(through))
        return paths

    @cached_property
    def places_through(self) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
        """The place, among the paths of each channel that a task writes, of each path of each channel that it reads."""
        found: dict[str, dict[str, tuple[int, ...]]] = {}
        for task in self.tasks:
            places = {path: place for place, path in enumerate(self.paths[task.writes])}
            found[task.writes] = {
                read: tuple(places[(*path, task.name)] for path in self.paths[read]) for read in task.reads
            }
        return found

    def upstream(self, channels: Iterable[str]) -> frozenset[str]:
        """Return the channels that some channels are computed from, and these."""
        found: set[str] = set()
        waiting = list(channels)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                task = self.writer.get(name)
                waiting += task.reads if task else ()
        return frozenset(found)


def _first_duplicate(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
