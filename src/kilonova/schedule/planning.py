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
from kilonova.model.task import Mode, Port, Production, Query, Task, Variant
from kilonova.model.version import Version
from kilonova.model.workflow import WorkflowDefinition
from kilonova.schedule.costs import fit
from kilonova.schedule.query_shape import shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """Progress of a task.

    Attributes:
        task: the task at its newest logic version.
        logic: that version.
        started: whether that version has run.
        cursors: the point up to which it has read each channel; absent ones are at 0.
        taken: the costs of its last runs, newest first.
        waits_until: the time until which its schedule delays it; None if it does not.
    """

    task: Task
    logic: int
    started: bool
    cursors: Mapping[str, int]
    taken: tuple[CostSample, ...] = ()
    waits_until: datetime | None = None

    def cursor(self, channel: str) -> int:
        """Return the point up to which the task has read a channel."""
        return self.cursors.get(channel, 0)


def triggering_inputs(task: Task) -> tuple[str, ...]:
    """Return the channels whose new input makes a task due: those read by cursor, or all if there are none.

    A channel read with ALL beside one read by cursor is a lookup table (Nova, section 2): its changes do not make the
    task due.
    """
    ports = [port for variant in task.variants for port in variant.ports if port.channel not in task.writes]
    news = [port.channel for port in ports if port.mode.advances]
    return tuple(dict.fromkeys(news or [port.channel for port in ports]))


def due_reason(progress: TaskState, states: Mapping[str, ChannelState]) -> str | None:
    """Return why a task is due; None if it is not, or if its schedule delays it."""
    if progress.waits_until is not None:
        return None
    channels = triggering_inputs(progress.task)
    if not progress.started:
        if any(states[name].latest_distinct for name in channels):
            return "its logic has not run yet"
        return None
    for name in channels:
        state = states[name]
        cursor = progress.cursor(name)
        if not state.is_equivalent(cursor, state.latest_readable):
            return f"{name} advanced from point {cursor} to {state.latest_distinct}"
    return None


def due_tasks(
    workflow: WorkflowDefinition, progress: Mapping[str, TaskState], states: Mapping[str, ChannelState]
) -> tuple[str, ...]:
    """Return the tasks that are due and those that may become due after them, in the order to run them."""
    chosen: dict[str, None] = {}
    for task in workflow.order():
        writers = {writer.name for channel in task.reads for writer in workflow.writers(channel)}
        held = progress[task.name].waits_until is not None
        if not held and (due_reason(progress[task.name], states) or not writers.isdisjoint(chosen)):
            chosen[task.name] = None
    return tuple(chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantChoice:
    """Variant to run, its refresh method, and the reason.

    Attributes:
        variant: the variant.
        method: the refresh method.
        reason: the reason, as text for users.
        estimates: the estimated seconds of that method and of the alternatives; empty for `FRESH`.
    """

    variant: Variant
    method: RefreshMethod
    reason: str
    estimates: Mapping[RefreshMethod, float] = field(default_factory=dict)


def choose(progress: TaskState, states: Mapping[str, ChannelState]) -> VariantChoice:
    """Choose the variant of a task's newest logic version to run, and its refresh method.

    Choose the first incremental variant that can process the new input, in declared order; else one that recomputes the
    whole relation; else an incremental one from scratch. For a view choose the cheapest, unless the order of its
    variants prefers its change.
    """
    variants = progress.task.variants
    whole = next((variant for variant in variants if _makes_whole(variant, progress.task)), None)
    declared = _as_declared(whole, progress, states)
    if declared.method is RefreshMethod.INITIAL:
        return declared
    size, known = input_size(progress, states), fit(progress.taken, shape_of(progress.task))
    costs = {method: known.seconds(method, size) for method in _methods(declared, whole, progress, states)}
    choice = replace(declared, estimates=costs)
    weighed = isinstance(declared.variant.logic, Query) and declared.variant is not variants[0]
    return _cheapest(choice, whole) if weighed and whole is not None else choice


def full_refresh_choice(progress: TaskState, choice: VariantChoice) -> VariantChoice | None:
    """Return the choice that recomputes a view instead of maintaining it; None if it does so already, or cannot."""
    whole = next((variant for variant in progress.task.variants if _makes_whole(variant, progress.task)), None)
    if whole is None or choice.method.renews or not isinstance(choice.variant.logic, Query):
        return None
    return replace(choice, variant=whole, method=RefreshMethod.FULL)


def _as_declared(whole: Variant | None, progress: TaskState, states: Mapping[str, ChannelState]) -> VariantChoice:
    """Return the choice regardless of costs."""
    variants = progress.task.variants
    if not progress.started:
        reason = "first run" if progress.logic == 0 else f"logic version {progress.logic} is new"
        if whole is not None:
            return VariantChoice(variant=whole, method=RefreshMethod.FULL, reason=reason)
        return VariantChoice(variant=variants[0], method=RefreshMethod.INITIAL, reason=reason)
    obstacle = ""
    for variant in variants:
        if variant is whole:
            continue
        hindrance = _obstacle(variant, progress, states)
        if hindrance is None:
            return VariantChoice(
                variant=variant,
                method=RefreshMethod.INCREMENTAL,
                reason=f"variant {variant.name} processes only the new input",
            )
        obstacle = f"{hindrance}, which {variant.name} does not support"
    if whole is not None:
        return VariantChoice(
            variant=whole, method=RefreshMethod.FULL, reason=obstacle or "the task has no incremental variant"
        )
    return VariantChoice(variant=variants[0], method=RefreshMethod.INITIAL, reason=obstacle)


def _cheapest(news: VariantChoice, whole: Variant) -> VariantChoice:
    """Return the cheapest choice for a view that can process the new input."""
    costs = news.estimates
    best = min(costs, key=lambda method: costs[method])
    others = ", ".join(
        f"{_NAMES[method]} at {seconds:.1f} s" for method, seconds in costs.items() if method is not best
    )
    variant = whole if best is RefreshMethod.FULL else news.variant
    return replace(news, variant=variant, method=best, reason=f"estimated at {costs[best]:.1f} s, {others}")


_NAMES = {
    RefreshMethod.INCREMENTAL: "an incremental refresh",
    RefreshMethod.AFFECTED_GROUPS: "recomputing the affected groups",
    RefreshMethod.FULL: "a full refresh",
}


def _methods(
    declared: VariantChoice, whole: Variant | None, progress: TaskState, states: Mapping[str, ChannelState]
) -> tuple[RefreshMethod, ...]:
    """Return the refresh methods that are possible for a task.

    Groups of a view that stores sums for them can also be recomputed one by one, if there are several; groups without
    sums are recomputed so by the incremental method.
    """
    if declared.method is RefreshMethod.FULL or whole is None:
        return (declared.method,)
    if not isinstance(declared.variant.logic, Query):
        return (declared.method, RefreshMethod.FULL)
    state = states[progress.task.name]
    there = state.snapshot(state.latest_readable).complete
    several = sum(block.statistics.rows for block in there.blocks) > 1
    groups = several and there.schema is not None and there.schema.state_columns.columns
    return (RefreshMethod.INCREMENTAL, *((RefreshMethod.AFFECTED_GROUPS,) if groups else ()), RefreshMethod.FULL)


def input_size(progress: TaskState, states: Mapping[str, ChannelState]) -> InputSize:
    """Return the size of a task's input."""
    change = whole = moved = 0
    for name in progress.task.reads:
        state = states[name]
        cursor = min(progress.cursor(name), state.latest_readable)
        everything = state.size
        path = state.path(cursor, state.latest_readable)
        whole += everything
        moved += not state.is_equivalent(cursor, state.latest_readable)
        change += everything if path is None else sum(block.statistics.bytes for block in path)
    return InputSize(change=change, whole=whole, moved=moved)


def _makes_whole(variant: Variant, task: Task) -> bool:
    return all(production is Production.BASE for production in variant.productions) and all(
        port.mode is Mode.ALL and port.channel not in task.writes for port in variant.ports
    )


def _obstacle(variant: Variant, progress: TaskState, states: Mapping[str, ChannelState]) -> str | None:
    """Return why a variant cannot process the change of its inputs; None if it can."""
    for port in variant.ports:
        state = states[port.channel]
        start, end = progress.cursor(port.channel), state.latest_readable
        if start > end:
            continue
        if port.mode is Mode.INSERTS and state.may_remove(start, end):
            return f"rows of {port.channel} may have been removed"
        if port.mode is Mode.NEW and not state.can_say(start, end):
            return f"{port.channel} was rewritten since point {start}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortInput:
    """Input of a port: the change from `start` to `end` or the snapshot at one of them, and its blocks."""

    port: Port
    start: int
    end: int
    reading: ReadPlan


def port_inputs(
    choice: VariantChoice, progress: TaskState, states: Mapping[str, ChannelState]
) -> tuple[PortInput, ...]:
    """Return the input of each port of the chosen variant, in the order of its parameters.

    Raises:
        NotFound: the input of a port has been garbage collected.
    """
    return tuple(port_input(port, choice, progress, states) for port in choice.variant.ports)


def port_input(port: Port, choice: VariantChoice, progress: TaskState, states: Mapping[str, ChannelState]) -> PortInput:
    """Return the input of a port of the chosen variant; in a run from scratch the task's own outputs are empty.

    Raises:
        NotFound: it has been garbage collected.
    """
    state = states[port.channel]
    fresh = choice.method is RefreshMethod.INITIAL
    end = 0 if fresh and port.channel in progress.task.writes else state.latest_readable
    start = 0 if fresh else min(progress.cursor(port.channel), end)
    reading: ReadPlan
    match port.mode:
        case Mode.ALL | Mode.OLD if end == 0:
            reading = _nothing(state)
        case Mode.ALL:
            reading = state.snapshot(end)
        case Mode.OLD if start == 0:
            reading = _nothing(state)
        case Mode.OLD:
            reading = replace(state.snapshot(start), schema=state.schema_at(end))
        case Mode.NEW | Mode.CHANGES | Mode.INSERTS if end == 0:
            encoding = state.channel.encoding if port.mode is Mode.NEW else Changes()
            reading = DeltaRead(start=0, end=0, schema=_nothing(state).schema, encoding=encoding, deltas=())
        case Mode.NEW if start == 0 and not isinstance(state.channel.encoding, Custom):
            reading = DiffRead(old=_nothing(state), new=state.snapshot(end), encoding=state.channel.encoding)
        case Mode.NEW:
            reading = state.delta(start, end)
        case Mode.CHANGES | Mode.INSERTS:
            reading = state.changes(start, end)
    return PortInput(port=port, start=start, end=end, reading=reading)


def advanced_cursors(
    choice: VariantChoice, progress: TaskState, states: Mapping[str, ChannelState]
) -> tuple[tuple[str, int], ...]:
    """Return the points up to which a task has read its channels after a run of the chosen variant.

    Of its own outputs it has read the points before the run: what the run itself writes is new input of the next run.
    If the run replaces the whole output, all of it is new input.

    Args:
        choice: the chosen variant.
        progress: the task.
        states: the channels as it read them, without its own writes.
    """
    read = [(channel, states[channel].latest_readable) for channel in progress.task.reads]
    own = [(channel, 0 if choice.method.renews else states[channel].latest_readable) for channel in progress.task.loops]
    return (*read, *own)


def is_rewritten(choice: VariantChoice, task: Task, channel: Channel) -> bool:
    """Return whether a run replaces the whole output; never so if the channel has several writers."""
    base = choice.variant.productions[task.writes.index(channel.name)] is Production.BASE
    return not channel.several_writers and (choice.method.renews or base)


def check_rewritable(choice: VariantChoice, progress: TaskState, states: Mapping[str, ChannelState]) -> None:
    """Check that a task can be recomputed: not if it has written to a channel of several writers.

    Raises:
        InvalidState: the task must be recomputed from scratch, but has written to a channel of several writers.
    """
    task = progress.task.name
    for name in progress.task.writes:
        state = states[name]
        if choice.method.renews and state.channel.several_writers and state.committed.by(task).entries:
            raise InvalidState(
                f"the task would have to recompute its output, but the channel has other writers: {choice.reason}",
                channel=name,
                hint="Drop the channel and apply the workflow again, so that all its writers start from scratch",
            )


def _nothing(state: ChannelState) -> SnapshotRead:
    """Return the empty relation, with the newest schema."""
    schema = state.schema_at(state.latest_readable)
    return SnapshotRead(at=0, schema=schema, encoding=state.channel.encoding, base=None, deltas=())


def output_version(
    choice: VariantChoice,
    progress: TaskState,
    fed: Sequence[PortInput],
    states: Mapping[str, ChannelState],
    channel: str,
) -> Version:
    """Return the version of a task's output; with several writers, that of its own share: see `kilonova.model.version`.

    Args:
        choice: the chosen variant.
        progress: the task.
        fed: the inputs of its ports.
        states: the channels before the run of the task.
        channel: the output.

    Raises:
        BrokenInvariant: it would be behind the channel's frontier (logic evolution, 4.1).
    """
    task, logic = progress.task.name, progress.logic
    own = states[channel]
    before = own.committed.by(task) if own.channel.several_writers else own.version(own.latest_readable)
    renewed = is_rewritten(choice, progress.task, own.channel)
    version = Version() if renewed else before
    for feed in fed:
        if feed.port.channel in progress.task.writes or feed.port.mode is Mode.OLD:
            continue
        state = states[feed.port.channel]
        end = state.version(feed.end).through(task, logic)
        if renewed:
            version = version.joined(end)
        else:
            start = state.version(feed.start).through(task, logic) if feed.port.mode.advances else end
            version = version.advanced(start, end)
    if version.is_behind(before):
        raise BrokenInvariant(f"the output would go back from {before} to {version}").with_context(task=task)
    return version
