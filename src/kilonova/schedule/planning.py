"""Planning of runs: tasks that are due, the refresh method of each, and the version of its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from kilonova.errors import BrokenInvariant, InvalidState
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.encoding import Changes, Custom
from kilonova.model.read_plan import DeltaRead, DiffRead, ReadPlan, SnapshotRead
from kilonova.model.run import CostSample, InputSize, RefreshMethod
from kilonova.model.task import Mode, Port, Production, Task, Variant
from kilonova.model.version import Version
from kilonova.model.workflow import WorkflowDefinition
from kilonova.schedule.costs import fit
from kilonova.schedule.query_shape import shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """State of a logic version of a task.

    Attributes:
        task: the task at that logic version.
        logic: the number of the version.
        started: whether the version has run.
        cursors: the point up to which it has read each channel; absent ones are at 0.
        samples: the costs of the task's last runs, newest first.
        waits_until: the time until which its schedule delays it; None if it does not.
    """

    task: Task
    logic: int
    started: bool
    cursors: Mapping[str, int]
    samples: tuple[CostSample, ...] = ()
    waits_until: datetime | None = None

    def cursor(self, channel: str) -> int:
        """Return the point up to which this version has read a channel."""
        return self.cursors.get(channel, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerInput:
    """Tasks and channels at one moment, from which the planner decides.

    Attributes:
        workflow: the tasks, at their newest live logic versions, and their channels.
        versions: the states of the live logic versions of each task, newest first.
        channels: the states of the channels that these versions read or write.
    """

    workflow: WorkflowDefinition
    versions: Mapping[str, tuple[TaskState, ...]]
    channels: Mapping[str, ChannelState]

    @property
    def newest(self) -> dict[str, TaskState]:
        """The state of the newest live logic version of each task."""
        return {name: states[0] for name, states in self.versions.items()}

    def without_schedules(self) -> PlannerInput:
        """Return the same without schedules that delay tasks."""
        versions = {
            name: tuple(replace(state, waits_until=None) for state in states) for name, states in self.versions.items()
        }
        return replace(self, versions=versions)


def triggering_inputs(task: Task) -> tuple[str, ...]:
    """Return the channels whose new input makes a task due: those read by cursor, or all if there are none.

    A channel read with ALL beside one read by cursor is a lookup table (Nova, section 2): its changes do not make the
    task due.
    """
    ports = [port for variant in task.variants for port in variant.ports if port.channel not in task.writes]
    news = [port.channel for port in ports if port.mode.advances]
    return tuple(dict.fromkeys(news or [port.channel for port in ports]))


def read_ends(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return the point up to which a task reads each channel: the given one, or the newest readable one.

    Raises:
        InvalidState: a given point is before the task's cursor, or not readable.
    """
    given = ends or {}
    ports = (port.channel for variant in state.task.variants for port in variant.ports)
    found = {name: channels[name].latest_readable for name in ports}
    for name in found.keys() & given.keys():
        end, first, last = given[name], state.cursor(name), found[name]
        if not first <= end <= last:
            raise InvalidState(
                f"it can be read only up to a point from {first}, the cursor, to {last}, the newest readable one",
                task=state.task.name,
                channel=name,
                point=end,
            )
        found[name] = end
    return found


def limit_channels(channels: Mapping[str, ChannelState], ends: Mapping[str, int]) -> Mapping[str, ChannelState]:
    """Return the channels as a task sees them that reads them up to the given points.

    Raises:
        NotFound: one of the points has been collected.
    """
    seen = {name: channels[name].up_to(end) for name, end in ends.items()}
    held_back = {name: each for name, each in seen.items() if each is not channels[name]}
    return {**channels, **held_back} if held_back else channels  # a run of many tasks has many channels


def due_reason(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> str | None:
    """Return why a task is due; None if it is not, or if its schedule delays it.

    Args:
        state: the task.
        channels: the channels.
        ends: the points up to which channels would be read; those not given are read to the newest readable point.

    Raises:
        InvalidState: a given point is before the task's cursor, or not readable.
    """
    if state.waits_until is not None:
        return None
    ends = read_ends(state, channels, ends)
    inputs = triggering_inputs(state.task)
    if not state.started:
        return "its logic has not run yet" if any(channels[name].settled(ends[name]) for name in inputs) else None
    for name in inputs:
        cursor, end = state.cursor(name), ends[name]
        if not channels[name].is_equivalent(cursor, end):
            return f"{name} advanced from point {cursor} to {channels[name].settled(end)}"
    return None


def due_version(
    versions: Sequence[TaskState], channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> tuple[TaskState, str] | None:
    """Return the first of the logic versions of a task that is due, and why; None if none is."""
    reasons = ((state, due_reason(state, channels, ends)) for state in versions)
    return next(((state, reason) for state, reason in reasons if reason is not None), None)


def due_tasks(known: PlannerInput, until: Mapping[str, int] | None = None) -> tuple[TaskState, ...]:
    """Return the tasks that are due and those that may become due after them, in the order to run them.

    A run executes one logic version of a task: the newest live one that is due.

    Args:
        known: the tasks and channels.
        until: the points up to which channels would be read; of those that a returned task writes, all is read.

    Raises:
        InvalidState: one of these points is before a task's cursor, or not readable.
    """
    chosen: dict[str, TaskState] = {}
    ends = dict(until or {})
    for task in known.workflow.order():
        versions = [state for state in known.versions[task.name] if state.waits_until is None]
        due = due_version(versions, known.channels, ends)
        writers = {writer.name for channel in task.reads for writer in known.workflow.writers(channel)}
        if due is not None or (versions and not writers.isdisjoint(chosen)):
            chosen[task.name] = state = versions[0] if due is None else due[0]
            ends = {name: end for name, end in ends.items() if name not in state.task.writes}
    return tuple(chosen.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantChoice:
    """Variant of a task to run, its refresh method, how far it reads, and the reason.

    Attributes:
        state: the state of the task's logic version before the run.
        variant: the variant.
        method: the refresh method.
        ends: the point up to which the run reads each channel that the task reads, whichever its variant.
        reason: the reason, as text for users.
        estimates: the estimated seconds of that method and of the alternatives; empty for `INITIAL`.
    """

    state: TaskState
    variant: Variant
    method: RefreshMethod
    ends: Mapping[str, int]
    reason: str
    estimates: Mapping[RefreshMethod, float] = field(default_factory=dict)

    def production(self, channel: str) -> Production:
        """Return what the variant produces for a channel that the task writes."""
        return self.variant.productions[self.state.task.writes.index(channel)]


def choose(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> VariantChoice:
    """Choose the variant of a task's logic version to run, its refresh method, and how far it reads.

    Choose the first incremental variant that can process the new input, in declared order; else one that recomputes the
    whole relation; else an incremental one from scratch. For a view choose the cheapest, unless the order of its
    variants prefers its change.

    Args:
        state: the task.
        channels: the channels.
        ends: the points up to which to read channels; those not given are read to the newest readable point.

    Raises:
        InvalidState: a given point is before the task's cursor, or not readable.
        NotFound: a given point has been collected.
    """
    ends = read_ends(state, channels, ends)
    channels = limit_channels(channels, ends)
    whole = _whole_variant(state.task)
    variant, method, reason = _as_declared(whole, state, channels)
    choice = VariantChoice(state=state, variant=variant, method=method, ends=ends, reason=reason)
    if method is RefreshMethod.INITIAL:
        return choice
    size, costs = input_size(state, channels), fit(state.samples, shape_of(state.task))
    estimates = {each: costs.seconds(each, size) for each in _methods(choice, whole, channels)}
    choice = replace(choice, estimates=estimates)
    compared = variant.logic.derived and variant is not state.task.variants[0]
    return _cheapest(choice, whole) if compared and whole is not None else choice


def full_refresh_choice(choice: VariantChoice) -> VariantChoice | None:
    """Return the choice that recomputes a view instead of maintaining it; None if it does so already, or cannot."""
    whole = _whole_variant(choice.state.task)
    if whole is None or choice.method.renews or not choice.variant.logic.derived:
        return None
    return replace(choice, variant=whole, method=RefreshMethod.FULL)


def _as_declared(
    whole: Variant | None, state: TaskState, channels: Mapping[str, ChannelState]
) -> tuple[Variant, RefreshMethod, str]:
    """Return the variant to run regardless of costs, its refresh method and the reason."""
    variants = state.task.variants
    reason = "the task has no incremental variant"
    if state.started:
        for variant in variants:
            if variant is not whole:
                obstacle = _obstacle(variant, state, channels)
                if obstacle is None:
                    return variant, RefreshMethod.INCREMENTAL, f"variant {variant.name} processes only the new input"
                reason = f"{obstacle}, which {variant.name} does not support"
    else:
        reason = "first run" if state.logic == 0 else f"logic version {state.logic} is new"
    return (variants[0], RefreshMethod.INITIAL, reason) if whole is None else (whole, RefreshMethod.FULL, reason)


def _cheapest(incremental: VariantChoice, whole: Variant) -> VariantChoice:
    """Return the cheapest choice for a view that can process the new input."""
    costs = incremental.estimates
    best = min(costs, key=costs.__getitem__)
    others = ", ".join(f"{_NAMES[each]} at {seconds:.1f} s" for each, seconds in costs.items() if each is not best)
    variant = whole if best is RefreshMethod.FULL else incremental.variant
    return replace(incremental, variant=variant, method=best, reason=f"estimated at {costs[best]:.1f} s, {others}")


_NAMES = {
    RefreshMethod.INCREMENTAL: "an incremental refresh",
    RefreshMethod.AFFECTED_GROUPS: "recomputing the affected groups",
    RefreshMethod.FULL: "a full refresh",
}


def _methods(
    declared: VariantChoice, whole: Variant | None, channels: Mapping[str, ChannelState]
) -> tuple[RefreshMethod, ...]:
    """Return the refresh methods that are possible for a task.

    Groups of a view that stores sums for them can also be recomputed one by one, if there are several; groups without
    sums are recomputed so by the incremental method.
    """
    if declared.method is RefreshMethod.FULL or whole is None:
        return (declared.method,)
    methods = declared.variant.logic.methods
    if RefreshMethod.AFFECTED_GROUPS not in methods:
        return (*methods, RefreshMethod.FULL)
    own = channels[declared.state.task.writes[0]]
    there = own.snapshot(own.latest_readable).complete
    several = sum(block.statistics.rows for block in there.blocks) > 1
    groups = several and there.schema is not None and there.schema.state_columns.columns
    return (*(each for each in methods if each is not RefreshMethod.AFFECTED_GROUPS or groups), RefreshMethod.FULL)


def input_size(state: TaskState, channels: Mapping[str, ChannelState]) -> InputSize:
    """Return the size of a task's input, if it reads the channels to the newest readable point."""
    change = whole = moved = 0
    for name in state.task.reads:
        channel = channels[name]
        end = channel.latest_readable
        start = min(state.cursor(name), end)
        path = channel.path(start, end)
        whole += channel.size
        moved += not channel.is_equivalent(start, end)
        change += channel.size if path is None else sum(block.statistics.bytes for block in path)
    return InputSize(change=change, whole=whole, moved=moved)


def _whole_variant(task: Task) -> Variant | None:
    """Return the first variant that recomputes the whole relation from whole relations; None if there is none."""
    for variant in task.variants:
        if all(production is Production.BASE for production in variant.productions) and all(
            port.mode is Mode.ALL and port.channel not in task.writes for port in variant.ports
        ):
            return variant
    return None


def _obstacle(variant: Variant, state: TaskState, channels: Mapping[str, ChannelState]) -> str | None:
    """Return why a variant cannot process the change of its inputs; None if it can."""
    for port in variant.ports:
        channel = channels[port.channel]
        start, end = state.cursor(port.channel), channel.latest_readable
        if start > end:
            continue
        if port.mode is Mode.INSERTS and channel.may_remove(start, end):
            return f"rows of {port.channel} may have been removed"
        if port.mode is Mode.NEW and not channel.can_say(start, end):
            return f"{port.channel} was rewritten since point {start}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortInput:
    """Input of a port: the change from `start` to `end` or the snapshot at one of them, and its blocks."""

    port: Port
    start: int
    end: int
    reading: ReadPlan


def port_inputs(choice: VariantChoice, channels: Mapping[str, ChannelState]) -> tuple[PortInput, ...]:
    """Return the input of each port of the chosen variant, in the order of its parameters.

    Raises:
        NotFound: the input of a port has been garbage collected.
    """
    return tuple(port_input(port, choice, channels) for port in choice.variant.ports)


def port_input(port: Port, choice: VariantChoice, channels: Mapping[str, ChannelState]) -> PortInput:
    """Return the input of a port of the chosen variant; in a run from scratch the task's own outputs are empty.

    Raises:
        NotFound: it has been garbage collected.
    """
    fresh = choice.method is RefreshMethod.INITIAL
    end = 0 if fresh and port.channel in choice.state.task.writes else choice.ends[port.channel]
    start = 0 if fresh else min(choice.state.cursor(port.channel), end)
    channel = channels[port.channel].up_to(choice.ends[port.channel])
    encoding = channel.channel.encoding
    schema = channel.schema_at(channel.latest_readable)
    empty = SnapshotRead(at=0, schema=schema, encoding=encoding, base=None, deltas=())
    reading: ReadPlan
    match port.mode:
        case Mode.ALL:
            reading = channel.snapshot(end) if end else empty
        case Mode.OLD:
            reading = replace(channel.snapshot(start), schema=channel.schema_at(end)) if start else empty
        case Mode.NEW | Mode.CHANGES | Mode.INSERTS if end == 0:
            stored = encoding if port.mode is Mode.NEW else Changes()
            reading = DeltaRead(start=0, end=0, schema=schema, encoding=stored, deltas=())
        case Mode.NEW if start == 0 and not isinstance(encoding, Custom):
            reading = DiffRead(old=empty, new=channel.snapshot(end), encoding=encoding)
        case Mode.NEW:
            reading = channel.delta(start, end)
        case Mode.CHANGES | Mode.INSERTS:
            reading = channel.changes(start, end)
    return PortInput(port=port, start=start, end=end, reading=reading)


def advanced_cursors(choice: VariantChoice) -> tuple[tuple[str, int], ...]:
    """Return the points up to which a task has read its channels after a run of the chosen variant.

    Of its own outputs it has read the points before the run: what the run itself writes is new input of the next run.
    If the run replaces the whole output, all of it is new input.
    """
    task = choice.state.task
    read = [(channel, choice.ends[channel]) for channel in task.reads]
    own = [(channel, 0 if choice.method.renews else choice.ends[channel]) for channel in task.loops]
    return (*read, *own)


def is_rewritten(choice: VariantChoice, channel: Channel) -> bool:
    """Return whether a run replaces the whole output; never so if the channel has several writers."""
    base = choice.production(channel.name) is Production.BASE
    return not channel.several_writers and (choice.method.renews or base)


def check_rewritable(choice: VariantChoice, channels: Mapping[str, ChannelState]) -> None:
    """Check that a task can be recomputed: not if it has written to a channel of several writers.

    Raises:
        InvalidState: the task must be recomputed from scratch, but has written to a channel of several writers.
    """
    task = choice.state.task
    for name in task.writes:
        own = channels[name]
        if choice.method.renews and own.channel.several_writers and own.committed.by(task.name).entries:
            raise InvalidState(
                f"the task would have to recompute its output, but the channel has other writers: {choice.reason}",
                channel=name,
                hint="Drop the channel and apply the workflow again, so that all its writers start from scratch",
            )


def output_version(
    choice: VariantChoice, inputs: Sequence[PortInput], channels: Mapping[str, ChannelState], output: str
) -> Version:
    """Return the version of a task's output; with several writers, that of its own share: see `kilonova.model.version`.

    Args:
        choice: the chosen variant of the task.
        inputs: the inputs of its ports.
        channels: the channels before the run of the task.
        output: the channel that it writes.

    Raises:
        BrokenInvariant: it would be behind the channel's frontier (logic evolution, 4.1).
    """
    task, logic = choice.state.task, choice.state.logic
    own = channels[output]
    before = own.committed.by(task.name) if own.channel.several_writers else own.version(own.latest_readable)
    renewed = is_rewritten(choice, own.channel)
    version = Version() if renewed else before
    for each in inputs:
        if each.port.channel in task.writes or each.port.mode is Mode.OLD:
            continue
        channel = channels[each.port.channel]
        end = channel.version(each.end).through(task.name, logic)
        if renewed:
            version = version.joined(end)
        else:
            start = channel.version(each.start).through(task.name, logic) if each.port.mode.advances else end
            version = version.advanced(start, end)
    if version.is_behind(before):
        raise BrokenInvariant(f"the output would go back from {before} to {version}").with_context(task=task.name)
    return version
