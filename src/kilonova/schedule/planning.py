"""Planning of runs: the refresh method of each task that is due, what it reads, and the version of its output."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kilonova.errors import InvalidState, NotFound
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.encoding import Append, Changes, Custom, has_diff
from kilonova.model.read_plan import DeltaRead, DiffRead, ReadPlan, SnapshotRead
from kilonova.model.required_columns import RequiredColumn, accepted_end, as_required, missing_columns
from kilonova.model.run import InputSize, RefreshMethod
from kilonova.model.task import Mode, Port, Production, Task, Variant
from kilonova.model.version import Version
from kilonova.model.widening import is_wider
from kilonova.schedule.costs import fit
from kilonova.schedule.due import TaskState, continuing_version, read_ends
from kilonova.schedule.query_shape import shape_of


def limit_channels(
    channels: Mapping[str, ChannelState], ends: Mapping[str, int], required: Collection[RequiredColumn] = ()
) -> Mapping[str, ChannelState]:
    """Return the channels as a task sees them that reads them up to the given points and requires some columns.

    Raises:
        NotFound: one of the points has been collected.
    """
    seen = {name: as_required(required, channels[name].up_to(end)) for name, end in ends.items()}
    held_back = {name: each for name, each in seen.items() if each is not channels[name]}
    return {**channels, **held_back} if held_back else channels  # a run of many tasks has many channels


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
    state: TaskState,
    channels: Mapping[str, ChannelState],
    ends: Mapping[str, int] | None = None,
    expected: Mapping[str, int] | None = None,
    variant: str | None = None,
) -> VariantChoice:
    """Choose the variant of a task's logic version to run, its refresh method, and how far it reads.

    Choose the first incremental variant that can process the new input, in declared order; else one that recomputes the
    whole relation; else an incremental one from scratch. For a view choose the cheapest, unless the order of its
    variants prefers its change. Where the output is that of an earlier logic version, choose a migration of it, unless
    recomputing is cheaper.

    Args:
        state: the task.
        channels: the channels.
        ends: the points up to which to read channels; those not given are read to the newest readable point.
        expected: the sizes of changes that are not there yet, by channel.
        variant: the name of the variant to choose, if it can process the new input.

    Raises:
        InvalidState: a given point is before the task's cursor, or not readable.
        NotFound: a given point has been collected.
    """
    if (migration := _migration(state, channels, ends)) is not None:
        return migration
    ends = read_ends(state, channels, ends)
    channels = limit_channels(channels, ends, state.task.requires)
    whole = whole_variant(state.task)
    chosen, method, reason = _as_planned(variant, whole, state, channels) or _as_declared(whole, state, channels)
    choice = VariantChoice(state=state, variant=chosen, method=method, ends=ends, reason=reason)
    if method is RefreshMethod.INITIAL:
        return choice
    size = input_size(state, channels, expected=expected)
    estimates = _estimates(state, size, _methods(choice, whole, channels))
    choice = replace(choice, estimates=estimates)
    compared = chosen.logic.derived and chosen is not state.task.variants[0]
    return _cheapest(choice, whole) if compared and whole is not None else choice


_DELTA_FACTOR, _DELTA_SECONDS = 2.0, 1.0
"""How much longer than recomputing a migration may take if tasks outside of the view read its changes.

It publishes a delta, so that these are not recomputed.
"""

_SMALL = 4 << 20
"""Bytes that a migration may read without being compared with recomputing, which publishes the whole output again."""

_CLOSE = 0.9
"""From which part of the time of recomputing on a migration of a small output counts as taking as long.

It also reads the output to change it, which recomputing does not.
"""


def _migration(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None
) -> VariantChoice | None:
    """Return the choice that migrates the output of an earlier version, over the input that this version has read.

    None if there is no migration, or recomputing the output is cheaper.
    """
    previous = state.previous
    if not state.migrations or previous is None:
        return None
    if migration_obstacle(state, channels) is not None or _unaccepted(state.migrations[0], state, channels) is not None:
        return None
    migrated = _migrated_ends(state, previous, channels)
    declared = [column for column in state.task.requires if column.type is not None]  # others are null
    if any(missing_columns(declared, channels[name], migrated[name]) for name in state.task.migrated):
        return None
    if not _has_columns(state.task, channels, migrated):
        return None
    estimates = migration_estimates(state, channels, ends)
    full = estimates[RefreshMethod.FULL]
    others = state.readers is None or not state.readers <= {state.task.view}
    most = max(_DELTA_FACTOR * full, full + _DELTA_SECONDS) if others else full
    seconds, size = estimates[RefreshMethod.MIGRATION], _migrated_size(state, channels)
    as_dear = (
        seconds >= _CLOSE * most and channels[state.task.writes[0]].size <= _SMALL
    )  # a small output is soon written anew
    dearer = (seconds > most or as_dear) and size > _SMALL
    if dearer and (whole_variant(state.task) is not None or state.migrations[0].logic.derived):
        return None
    return VariantChoice(
        state=state,
        variant=state.migrations[0],
        method=RefreshMethod.MIGRATION,
        ends=migrated,
        reason=f"estimated at {estimates[RefreshMethod.MIGRATION]:.1f} s, {_NAMES[RefreshMethod.FULL]} at {full:.1f} s",
        estimates=estimates,
    )


def _has_columns(task: Task, channels: Mapping[str, ChannelState], ends: Mapping[str, int]) -> bool:
    """Return whether migrations find the columns that the task requires in channels that have got another key since.

    In others, columns that were declared later are null.
    """
    others = {name: ends[name] for name in task.migrated if channels[name].has_other_key(ends[name])}
    schemas = {name: limit_channels(channels, others)[name].schema_at(end) for name, end in others.items()}
    known = {name: {each.lower() for each in schema.names} for name, schema in schemas.items() if schema is not None}
    return all(each.name.lower() in known[each.channel] for each in task.requires if each.channel in known)


def migration_estimates(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> dict[RefreshMethod, float]:
    """Return how many seconds the migrations of an output most likely take, and recomputing it.

    No two migrations are alike, so that earlier ones tell nothing: a byte is estimated at what it costs to recompute.

    Args:
        state: a version with migrations.
        channels: the channels.
        ends: as for `choose`.
    """
    costs = fit(state.samples, shape_of(state.task))
    size = _migrated_size(state, channels)
    migrated = costs.likely(RefreshMethod.FULL, InputSize(change=0, whole=size)) if size else 0.0
    whole = input_size(state, limit_channels(channels, read_ends(state, channels, ends)))
    return {
        RefreshMethod.MIGRATION: migrated,
        RefreshMethod.FULL: costs.likely(RefreshMethod.FULL, whole),
    }


def _migrated_size(state: TaskState, channels: Mapping[str, ChannelState]) -> int:
    """Return how many bytes the migrations of an output read."""
    assert state.previous is not None
    seen = limit_channels(channels, _migrated_ends(state, state.previous, channels))
    return sum(
        int(seen[port.channel].size * variant.logic.cost_shares.get(port.channel, 1))
        for variant in reading_migrations(state, seen)
        for port in variant.ports
    )


REMOVAL_MIN = 8 << 20
"""Size in bytes of an output from which on rows are removed from it by a condition.

Smaller outputs are read and merged without Spark, which evaluates conditions.
"""


def removal_condition(variant: Variant, state: TaskState, channels: Mapping[str, ChannelState]) -> str | None:
    """Return the condition of the rows that a migration removes, if its delta is to hold only that.

    Otherwise the delta holds the rows: for tasks that read the changes of the output, and where the output is small.

    Args:
        variant: the variant.
        state: the task.
        channels: the channels.
    """
    if variant.logic.removal is None or state.readers is None or state.readers:
        return None
    return variant.logic.removal if channels[state.task.writes[0]].size >= REMOVAL_MIN else None


def reading_migrations(state: TaskState, channels: Mapping[str, ChannelState]) -> list[Variant]:
    """Return the migrations of an output that read rows: not those that drop columns, or record a condition."""
    return [
        variant
        for variant in state.migrations
        if variant.logic.reads_rows and removal_condition(variant, state, channels) is None
    ]


def migration_obstacle(state: TaskState, channels: Mapping[str, ChannelState]) -> str | None:
    """Return why the output of an earlier version cannot be migrated: what a migration reads has been collected."""
    if not state.migrations or state.previous is None:
        return None
    migrated = _migrated_ends(state, state.previous, channels)
    try:
        seen = limit_channels(channels, migrated)
        for name in dict.fromkeys(port.channel for variant in state.migrations for port in variant.ports):
            seen[name].snapshot(migrated[name])
    except NotFound as error:
        return f"{error.channel}: {error.problem}"
    return None


def remaining_ends(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> dict[str, int] | None:
    """Return how far the version that goes on still reads before a newer one takes over (logic evolution, 3.3.1).

    It finishes the input without the columns that the newer version requires: of each channel that has such points,
    up to the last of them that it accepts.

    Args:
        state: the newer version, which takes over.
        channels: the channels.
        ends: as for `choose`.

    Returns:
        The points up to which it reads all channels; None if it has read all such input, or nothing at all.
    """
    earlier = None if state.started else continuing_version(state, channels, ends)
    if earlier is None or not earlier.started:
        return None
    newest = read_ends(earlier, channels, ends)
    last = {}
    for name in newest.keys() & {*state.task.relies_on}:
        channel, start = channels[name], earlier.cursor(name)
        given = (point.number for point in reversed(channel.readable_points) if not point.withheld)
        for number in (number for number in given if start < number <= newest[name]):
            if missing_columns(state.task.requires, channel, number):
                accepted = accepted_end(earlier.task.requires, channel, start, number)
                if accepted is not None and not channel.is_equivalent(start, accepted):
                    last[name] = accepted
                break
    return {**newest, **last} if last else None


def _migrated_ends(state: TaskState, previous: TaskState, channels: Mapping[str, ChannelState]) -> dict[str, int]:
    """Return the point up to which a migration reads each channel: the one up to which the earlier version has."""
    read = {port.channel for variant in state.migrations for port in variant.ports}
    inputs = {*state.task.reads, *read} - {*state.task.writes}
    newest = {name: channels[name].latest_readable for name in (*inputs, *state.task.writes)}
    return newest | {name: point for name, point in previous.cursors.items() if name in inputs}


def full_choice(choice: VariantChoice) -> VariantChoice | None:
    """Return the choice of the variant that recomputes a task's output; None if there is none, or it is chosen."""
    whole = whole_variant(choice.state.task)
    if whole is None or choice.method.renews or choice.method is RefreshMethod.MIGRATION:
        return None
    return replace(choice, variant=whole, method=RefreshMethod.FULL)


def full_refresh_choice(choice: VariantChoice) -> VariantChoice | None:
    """Return the choice that recomputes an output that derived logic maintains; None if it does so already."""
    whole = whole_variant(choice.state.task)
    if choice.method.renews or not choice.variant.logic.derived:
        return None
    if whole is None:
        return replace(choice, variant=choice.state.task.variants[0], method=RefreshMethod.INITIAL)
    return replace(choice, variant=whole, method=RefreshMethod.FULL)


def _as_declared(
    whole: Variant | None, state: TaskState, channels: Mapping[str, ChannelState]
) -> tuple[Variant, RefreshMethod, str]:
    """Return the variant to run regardless of costs, its refresh method and the reason."""
    variants = state.task.variants
    reason = "the task has no incremental variant"
    if state.detached:
        reason = "the view was last computed from its sources"
    elif state.started:
        for variant in variants:
            if variant is not whole and variant is not state.task.from_sources:
                obstacle = _unaccepted(variant, state, channels) or _obstacle(variant, state, channels)
                if obstacle is None:
                    return variant, RefreshMethod.INCREMENTAL, f"variant {variant.name} processes only the new input"
                reason = f"{obstacle}, which {variant.name} does not support"
    else:
        reason = "first run" if state.logic == 0 else f"logic version {state.logic} is new"
    return (variants[0], RefreshMethod.INITIAL, reason) if whole is None else (whole, RefreshMethod.FULL, reason)


def _as_planned(
    name: str | None, whole: Variant | None, state: TaskState, channels: Mapping[str, ChannelState]
) -> tuple[Variant, RefreshMethod, str] | None:
    """Return the variant of a name, its refresh method and the reason; None if it cannot process the new input."""
    variant = next((each for each in state.task.variants if each.name == name), None)
    if variant is None or not state.started or state.detached:
        return None
    if variant is whole:
        return whole, RefreshMethod.FULL, "planned to keep bounds"
    if _obstacle(variant, state, channels) is not None:
        return None
    return variant, RefreshMethod.INCREMENTAL, "planned to keep bounds"


WORTH_TRYING = 1.5
"""Factor by which the estimate of a method may exceed the lowest one for it to be tried, if it never was."""


def _cheapest(incremental: VariantChoice, whole: Variant) -> VariantChoice:
    """Return the cheapest choice for a view that can process the new input.

    A method that was never used is used once if it may be the cheapest: estimates without a sample do not improve.
    """
    costs = incremental.estimates
    tried = {sample.method for sample in incremental.state.samples}
    limit = WORTH_TRYING * min(costs.values())
    best = min(costs, key=lambda method: (method in tried or costs[method] > limit, costs[method]))
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
    full = (RefreshMethod.FULL,) if accepts_bases(declared.state.task, channels) else ()
    if RefreshMethod.AFFECTED_GROUPS not in methods:
        return (*methods, *full)
    own = channels[declared.state.task.writes[0]]
    there = own.snapshot(own.latest_readable).complete
    several = sum(block.statistics.rows for block in there.blocks) > 1
    groups = several and there.schema is not None and there.schema.state_columns.columns
    return (*(each for each in methods if each is not RefreshMethod.AFFECTED_GROUPS or groups), *full)


def _estimates(state: TaskState, size: InputSize, methods: Sequence[RefreshMethod]) -> Mapping[RefreshMethod, float]:
    costs = fit(state.samples, shape_of(state.task), state.idle, state.machine)
    return {each: costs.seconds(each, size) for each in methods}


def input_size(
    state: TaskState,
    channels: Mapping[str, ChannelState],
    method: RefreshMethod | None = None,
    expected: Mapping[str, int] | None = None,
) -> InputSize:
    """Return the size of a task's input, if it reads the channels to the newest readable point.

    Args:
        state: the task.
        channels: the channels.
        method: the refresh method, by which views may read other channels.
        expected: as for `choose`.
    """
    change = whole = moved = 0
    for name in state.task.sources if method is RefreshMethod.FROM_SOURCES else state.task.reads:
        channel = channels[name]
        if name in state.replaced:
            change, moved = change + channel.size + channels[state.replaced[name]].size, moved + 1
            whole += channel.size
            continue
        if expected is not None and name in expected:
            change, whole, moved = change + expected[name], whole + channel.size, moved + 1
            continue
        end = channel.latest_readable
        start = min(state.cursor(name), end)
        path = channel.path(start, end)
        whole += channel.size
        moved += not channel.is_equivalent(start, end)
        change += channel.size if path is None else sum(block.statistics.bytes for block in path)
    return InputSize(change=change, whole=whole, moved=moved)


def whole_variant(task: Task) -> Variant | None:
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
        if port.channel in state.replaced:
            if (problem := _replacement_obstacle(port, state, channels)) is not None:
                return problem
            continue
        if start > end:
            continue
        if port.mode is Mode.INSERTS and channel.may_remove(start, end):
            return f"rows of {port.channel} may have been removed"
        if port.mode is Mode.NEW and not channel.can_say(start, end):
            return f"{port.channel} was rewritten since point {start}"
        if start and port.mode is not Mode.ALL and channel.has_other_key(start):
            return f"{port.channel} had another key at point {start}"
        if (problem := _other_column(port, start, state, channel)) is not None:
            return problem
    return None


def _other_column(port: Port, start: int, state: TaskState, channel: ChannelState) -> str | None:
    """Return why the rows before a point cannot be compared with those of now, by the columns that a task reads.

    They can if these have their types, or wider ones, and none has the name that another one had. What a task in Python
    reads of them is not known; those that read new rows alone do not read rows of before.
    """
    if state.task.view is None and port.mode in (Mode.NEW, Mode.ALL):
        return None
    before, after = channel.written_schema(start) if start else None, channel.schema_at(channel.latest_readable)
    if before is None or after is None or channel.is_equivalent(start, channel.latest_readable):
        return None
    read = {each.name.lower() for each in state.task.requires if each.channel == port.channel}
    known = {column.identity: column.type for column in before.columns}
    named = {column.name.lower(): column for column in before.columns}
    for column in after.columns:
        if state.task.view is not None and column.name.lower() not in read:
            continue
        former = named.get(column.name.lower(), column)
        old = known.get(column.identity, former.type)
        if state.task.view is not None and old != column.type and not is_wider(column.type, old):
            return f"the type of the column {column.name} of {port.channel} has changed"
        if former.identity != column.identity:
            return f"{port.channel} has another column {column.name} than at point {start}"
    return None


def _unaccepted(variant: Variant, state: TaskState, channels: Mapping[str, ChannelState]) -> str | None:
    """Return why readers of what a variant writes do not accept its blocks; None if they do."""
    for name, production in zip(state.task.writes, variant.productions, strict=True):
        if production is Production.DELTA and channels[name].channel.accepts == "base":
            return f"readers of {name} accept only bases"
    return None


def accepts_bases(task: Task, channels: Mapping[str, ChannelState]) -> bool:
    """Return whether readers of all channels that a task writes accept bases.

    Args:
        task: the task.
        channels: the channels.
    """
    return all(channels[name].channel.accepts != "delta" for name in task.writes)


def _replacement_obstacle(port: Port, state: TaskState, channels: Mapping[str, ChannelState]) -> str | None:
    """Return why a port cannot read the difference between a channel and the one that it replaces; None if it can."""
    old, point = state.replaced_at(port.channel)
    encodings = {channels[old].channel.encoding, encoding := channels[port.channel].channel.encoding}
    if port.mode is Mode.INSERTS and port.channel not in state.grown:
        return f"rows of {old}, which {port.channel} replaces, may have been removed"
    alike = len(encodings) == 1 or (port.mode is not Mode.NEW and encodings <= {Append(), Changes()})
    if not alike or (port.mode is Mode.NEW and not has_diff(encoding)):
        return f"{port.channel} replaces {old}, and its encoding cannot express the difference"
    try:
        channels[old].snapshot(point)
    except NotFound as error:
        return f"{old}: {error.problem}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortInput:
    """Input of a port: the change from `start` to `end` or the snapshot at one of them, and its blocks.

    Of a channel that has replaced another one, it is the change from that to `end`; `start` is 0 then.
    """

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
    channel = as_required(choice.state.task.requires, channels[port.channel].up_to(choice.ends[port.channel]))
    encoding = channel.channel.encoding
    schema = channel.schema_at(channel.latest_readable)
    empty = SnapshotRead(at=0, schema=schema, encoding=encoding, base=None, deltas=())
    reading: ReadPlan
    if port.channel in choice.state.replaced and not fresh and port.mode is not Mode.ALL:
        old, point = choice.state.replaced_at(port.channel)
        before = channels[old].snapshot(point)
        if port.mode is Mode.OLD:
            return PortInput(port=port, start=0, end=end, reading=replace(before, schema=schema))
        stored = encoding if port.mode is Mode.NEW else Changes()
        reading = DiffRead(old=before, new=channel.snapshot(end), encoding=stored)
        return PortInput(port=port, start=0, end=end, reading=reading)
    match port.mode:
        case Mode.ALL if choice.method is RefreshMethod.MIGRATION and port.channel in choice.state.task.writes:
            reading = channel.as_written(end)
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
    A view that is computed from its sources has read nothing of what it materializes, which detaches it.
    If the run replaces the whole output, all of it is new input.
    """
    task = choice.state.task
    direct = choice.method is RefreshMethod.FROM_SOURCES
    read = [(channel, choice.ends[channel]) for channel in (task.sources if direct else task.reads)]
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

    """
    task, logic = choice.state.task, choice.state.logic
    own = channels[output]
    before = computed = own.committed.by(task.name)
    if not own.channel.several_writers:
        before, computed = own.reflected(own.latest_readable), own.version(own.latest_readable)
    migrated = choice.method is RefreshMethod.MIGRATION
    renewed = migrated or is_rewritten(choice, own.channel)
    version = Version() if renewed else before
    for name in task.reads if migrated else ():
        version = version.joined(channels[name].version(choice.ends[name]).through(task.name, logic))
    for each in () if migrated else inputs:
        if each.port.channel in task.writes or each.port.mode is Mode.OLD:
            continue
        channel = channels[each.port.channel]
        end = channel.version(each.end).through(task.name, logic)
        if renewed:
            version = version.joined(end)
        else:
            if each.port.mode.advances:
                start = channel.version(each.start).through(task.name, logic)
                version = version.advanced(start, end, computed)
            else:
                version = version.advanced(end, end)
    read = [channels[name].version(channels[name].latest_readable) for name in {*task.reads, *task.sources}]
    kept = (point.version for point in own.readable_points)
    return version.with_detached(before, read).without_ended(kept)
