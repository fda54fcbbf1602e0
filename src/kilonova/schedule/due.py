"""Tasks that are due: those whose cursors are behind the channels that they read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from kilonova.errors import InvalidState
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.required_columns import RequiredColumn, accepted_end, describe_columns, missing_columns
from kilonova.model.run import CostSample
from kilonova.model.task import Production, Task, Variant
from kilonova.model.workflow import WorkflowDefinition


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
        parts: of a view that may be computed from its sources, the states of the tasks of what it materializes, in
            their order.
        view: of a materialized relation, the state of its view if that is detached.
        previous: of a version that has not run, the earlier one whose output the task's channels hold; None if there is
            none that is live.
        continues: whether `previous` goes on until there is input that has the columns which this version requires.
        outputs: if `previous` goes on, the channels that the task writes as this version declares them.
        idle: the number of runs of its view since its last run, if the view is detached.
        replaced: the inputs that have replaced others since its last run, each with the one on which its cursor stands.
        machine: the logarithm of the machine's factor that runs of other tasks suggest: see `kilonova.schedule.costs`.
        grown: those of them that have all rows of the others.
        readers: the views and other tasks that read what is new in what the task, or its view, writes; None if that is
            not known.
    """

    task: Task
    logic: int
    started: bool
    cursors: Mapping[str, int]
    samples: tuple[CostSample, ...] = ()
    waits_until: datetime | None = None
    parts: tuple[TaskState, ...] = ()
    view: TaskState | None = None
    previous: TaskState | None = None
    continues: bool = False
    outputs: tuple[Channel, ...] = ()
    idle: int = 0
    replaced: Mapping[str, str] = field(default_factory=dict)
    machine: float = 0.0
    grown: frozenset[str] = frozenset()
    readers: frozenset[str] | None = None

    @property
    def migrations(self) -> tuple[Variant, ...]:
        """The variants that, one after the other, turn the existing output into that of this version."""
        if self.previous is None or not self.previous.started or self.previous.detached or self.previous.replaced:
            return ()
        found = self.task.migrations_from(self.previous.logic)
        return tuple(map(_renaming, found)) if self.readers == frozenset() else found

    @property
    def points(self) -> int:
        """The number of points that a run of it may write to each of its channels."""
        return 1 + len(self.migrations) + self.continues

    @property
    def detached(self) -> bool:
        """Return whether a view was last computed from its sources: it has no cursors on what it materializes."""
        read = {self.replaced.get(name, name) for name in self.task.reads}
        return self.started and self.task.from_sources is not None and not self.cursors.keys() >= read

    def cursor(self, channel: str) -> int:
        """Return the point up to which this version has read a channel; 0 of one that has replaced another."""
        return self.cursors.get(channel, 0)

    def replaced_at(self, channel: str) -> tuple[str, int]:
        """Return the channel that an input has replaced, and the point up to which it was read."""
        return self.replaced[channel], self.cursor(self.replaced[channel])

    def reached(self, channel: str) -> int:
        """Return the point up to which the task has read a channel: this version, or the one that it replaces."""
        return self.cursor(channel) if self.previous is None else self.previous.cursor(channel)


def _renaming(variant: Variant) -> Variant:
    """Return a migration as one that gives columns other names instead of writing them, if it has such columns.

    Tasks that read the changes of the output would not see these names in their new input.
    """
    found = variant.logic.renaming
    if found is None:
        return variant
    ports = tuple(port for port in variant.ports if port.name in found.ports)
    return replace(variant, ports=ports, productions=(Production.DELTA,), logic=found.logic)


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

    def among(self, names: Collection[str]) -> PlannerInput:
        """Return the same for some of the tasks only, with the channels of all."""
        if set(names) == self.versions.keys():
            return self
        tasks = tuple(task for task in self.workflow.tasks if task.name in names)
        versions = {name: states for name, states in self.versions.items() if name in names}
        return replace(self, workflow=replace(self.workflow, tasks=tasks), versions=versions)

    def without_schedules(self) -> PlannerInput:
        """Return the same without schedules that delay tasks."""
        versions = {name: tuple(map(_without_schedule, states)) for name, states in self.versions.items()}
        return replace(self, versions=versions)


def _without_schedule(state: TaskState) -> TaskState:
    previous = None if state.previous is None else replace(state.previous, waits_until=None)
    return replace(state, waits_until=None, previous=previous)


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
    """Return the point up to which a task reads each channel: the given one, or the newest one that readers are given.

    That is not before its cursor: where the points that it has read are withheld, it waits: see `withheld_input`.

    A channel is not read beyond the newest point that has the columns which the task requires.

    Raises:
        InvalidState: a given point is before the task's cursor, or not readable.
    """
    given = ends or {}
    ports = (port.channel for variant in state.task.variants for port in variant.ports)
    own = state.task.writes
    found = {
        name: channels[name].latest_readable if name in own else max(channels[name].latest_kept, state.cursor(name))
        for name in dict.fromkeys(ports)
    }
    for name in found.keys() & given.keys():
        end, first, last = given[name], state.cursor(name), found[name]
        if not first <= end <= last:
            raise InvalidState(
                f"it can be read only up to a point from {first}, the cursor, to {last}, the newest readable one",
                task=state.task.name,
                channel=name,
                point=end,
                hint="Choose a point in between",
            )
        found[name] = end
    for name in found.keys() & {*state.task.relies_on}:
        start = min(state.reached(name), found[name])
        accepted = accepted_end(state.task.requires, channels[name], start, found[name])
        if accepted is not None:
            found[name] = accepted
        elif state.started and name not in state.replaced:
            found[name] = start
    return found


def withheld_input(state: TaskState, channels: Mapping[str, ChannelState]) -> str | None:
    """Return a channel of which all points from the task's cursor on are withheld, so that it cannot run; else None."""
    others = (name for name in state.task.reads if name not in state.task.writes)
    return next((name for name in others if channels[name].latest_kept < state.cursor(name)), None)


def missing_inputs(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> tuple[RequiredColumn, ...]:
    """Return the required columns for which a logic version that has not run waits; none if it can run."""
    if state.started:
        return ()
    required = state.task.requires
    found: list[RequiredColumn] = []
    for name in state.task.relies_on:
        channel, start = channels[name], state.reached(name)
        end = max(start, (ends or {}).get(name, channel.latest_kept))
        accepted = accepted_end(required, channel, start, end)
        if accepted is None or missing_columns(required, channel, accepted):
            found += missing_columns(required, channel, end)
    return tuple(found)


def continuing_version(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> TaskState | None:
    """Return the version that goes on while a newer one waits; None if there is none that accepts its inputs."""
    earlier = state.previous if state.continues else None
    return None if earlier is None or missing_inputs(earlier, channels, ends) else earlier


def version_in_force(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> TaskState | None:
    """Return the logic version of a task that processes its input next (logic evolution, 3.3.1).

    It is the newest one, unless that requires columns which the input does not have yet: then the one that it replaces
    goes on. The newest version takes over only if it reads all channels as far as the other one.

    Args:
        state: the newest live logic version.
        channels: the channels.
        ends: as for `due_reason`.

    Returns:
        The version; None if there is none: the newest one waits, and there is no other.
    """
    if not state.task.requires or state.started:
        return state
    earlier = continuing_version(state, channels, ends)
    if missing_inputs(state, channels, ends):
        return earlier
    if earlier is None:
        return state
    mine, others = read_ends(state, channels, ends), read_ends(earlier, channels, ends)
    common = mine.keys() & others.keys()
    behind = any(channels[name].settled(mine[name]) < channels[name].settled(others[name]) for name in common)
    return earlier if behind else state


def schema_alert(state: TaskState, channels: Mapping[str, ChannelState]) -> str | None:
    """Return why a task waits or stops because columns that it requires are missing, as text; None if none is.

    Args:
        state: its newest live logic version.
        channels: the channels.
    """
    found = []
    version = version_in_force(state, channels)
    if version is not state:
        goes_on = "" if version is None else f": version {version.logic} goes on until then"
        missing = describe_columns(missing_inputs(state, channels) or state.task.requires)
        found.append(f"logic version {state.logic} waits for data with {missing}{goes_on}")
    if version is not None and version.task.requires:
        for name, end in read_ends(version, channels).items():
            newest = channels[name].latest_kept
            if end < newest and not channels[name].is_equivalent(end, newest):
                missing = describe_columns(missing_columns(version.task.requires, channels[name], newest))
                after = channels[name].settled(end)
                found.append(f"stops after point {after} of {name}: version {version.logic} requires {missing}")
    return "; ".join(found) or None


def due_reason(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> str | None:
    """Return why a task is due; None if it is not, if its schedule delays it, or if what it has read is withheld.

    What a detached view materializes is not needed, and so not due, until the view itself is.

    Args:
        state: the task.
        channels: the channels.
        ends: the points up to which channels would be read; those not given are read to the newest readable point.

    Raises:
        InvalidState: a given point is before the task's cursor, or not readable.
    """
    version = version_in_force(state, channels, ends)
    if version is None or version.waits_until is not None or withheld_input(version, channels) is not None:
        return None
    return new_input(state, channels, ends)


def new_input(
    state: TaskState, channels: Mapping[str, ChannelState], ends: Mapping[str, int] | None = None
) -> str | None:
    """Return why a task would be due without a schedule; None if it would not."""
    if state.view is not None and new_input(state.view, channels, ends) is None:
        return None
    version = version_in_force(state, channels, ends)
    if version is None:
        return None
    state, ends = version, read_ends(version, channels, ends)
    inputs = state.task.sources if state.detached else triggering_inputs(state.task)
    if not state.started:
        output = state.previous is not None and state.previous.started  # which may have to become empty
        some = output or any(channels[name].settled(ends[name]) for name in inputs)
        return "its logic has not run yet" if some else None
    for name in inputs:
        if name in state.replaced:
            return f"{name} replaces its input {state.replaced[name]}"
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
