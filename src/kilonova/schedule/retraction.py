r"""Pure decision of how a faulty logic version is retracted (logic evolution, 2.2, footnote 3).

The points that it has touched are those whose version reflects it, in the channels of its task and all downstream. A
channel is repaired if its newest point still reflects it, although later runs by other versions have perhaps changed
nothing (`kilonova.schedule.reflected_versions`). Once the channels before it are repaired, the version of its newest
point will be (V₁ \ V₂) ∪ V₃, if the task that writes it processes their changes; see `kilonova.model.version`. If
nothing of that reflects the faulty version, the changes are enough; else the task must recompute its output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kilonova.model.channel import ChannelState, PointState
from kilonova.model.version import Version
from kilonova.schedule.due import PlannerInput, TaskState
from kilonova.schedule.reflected_versions import reflected_versions


class RepairStep(StrEnum):
    """Way to repair the output of a task that reflects a faulty logic version."""

    REPLACE = "a new logic version migrates or recomputes its output"
    RUN = "its newest logic version, which has not run yet, migrates or recomputes its output"
    CHANGES = "it processes the changes of its inputs"
    RECOMPUTE = "it recomputes its output"
    DROP = "drop the channel, which has several writers, and apply the workflow again"


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedChannel:
    """Channel with points that reflect a faulty logic version.

    Attributes:
        channel: the channel.
        points: the points, in order, whose rows were computed by it, or from such rows.
        newest: whether the newest readable point reflects it: not if later runs by other versions changed nothing.
    """

    channel: str
    points: tuple[int, ...]
    newest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraction:
    """Retraction of a faulty logic version.

    Attributes:
        task: the task.
        logic: the logic version.
        touched: the channels that it has touched.
        steps: how the output of each task is repaired, inputs first.
    """

    task: str
    logic: int
    touched: tuple[TouchedChannel, ...]
    steps: Mapping[str, RepairStep]

    def tasks(self, step: RepairStep) -> tuple[str, ...]:
        """Return the tasks that are repaired in a way."""
        return tuple(task for task, own in self.steps.items() if own is step)


def plan_retraction(task: str, logic: int, known: PlannerInput, *, recompute: bool = False) -> Retraction:
    """Decide how the channels that a logic version of a task has touched are repaired.

    Args:
        task: the task.
        logic: the logic version.
        known: all tasks and channels.
        recompute: whether the output of the task itself is recomputed, although it may be, or was, migrated.
    """
    of = reflected_versions(known)
    reflected = {name: of(name, state.latest_readable) for name, state in known.channels.items()}
    ends = {name: _End(state.version(state.latest_readable), reflected[name]) for name, state in known.channels.items()}
    newest, steps = known.newest, dict[str, RepairStep]()
    for each in known.workflow.order():
        state = newest[each.name]
        for output in each.writes:
            own, before = known.channels[output], reflected[output]
            if logic not in before.logics(task) and not (recompute and each.name == task):
                continue
            if each.name == task:
                step = RepairStep.RECOMPUTE if recompute else _own_step(state, logic)
                after = before.with_logic(task, logic, logic + 1)
                end = _End(after, after)
            else:
                step, end = _step(state, own, known.channels, ends, (task, logic))
            if own.channel.several_writers and step is not RepairStep.CHANGES:
                step = RepairStep.DROP
            ends[output] = end
            steps[each.name] = max(step, steps.get(each.name, step), key=tuple(RepairStep).index)
    touched = (
        _touched(name, state, task, logic, newest=logic in reflected[name].logics(task))
        for name, state in sorted(known.channels.items())
    )
    return Retraction(
        task=task, logic=logic, touched=tuple(each for each in touched if each.points or each.newest), steps=steps
    )


class _End(NamedTuple):
    """Version of the newest point of a channel once it is repaired, and the newest version that it reflects."""

    version: Version
    reflected: Version

    def through(self, task: str, logic: int) -> _End:
        return _End(self.version.through(task, logic), self.reflected.through(task, logic))


def _own_step(state: TaskState, logic: int) -> RepairStep:
    if state.logic == logic:
        return RepairStep.REPLACE
    return RepairStep.RECOMPUTE if state.started else RepairStep.RUN


def _step(
    state: TaskState,
    own: ChannelState,
    channels: Mapping[str, ChannelState],
    ends: Mapping[str, _End],
    faulty: tuple[str, int],
) -> tuple[RepairStep, _End]:
    """Return how a task downstream is repaired, and the versions of its output then; see `planning.output_version`."""
    name, logic = state.task.name, state.logic
    read_ends = {read: ends[read].through(name, logic) for read in state.task.reads}

    def with_reflected(version: Version) -> _End:
        reflected = version
        for end in read_ends.values():
            reflected = reflected.relabelled(end.version, end.reflected)
        return _End(version, reflected)

    whole = Version()
    for end in read_ends.values():
        whole = whole.joined(end.version)
    if not state.started:
        return RepairStep.RUN, with_reflected(whole)
    if not any(variant.incremental for variant in state.task.variants):
        return RepairStep.CHANGES, with_reflected(whole)
    after, computed = own.reflected(own.latest_readable), own.version(own.latest_readable)
    advancing = {port.channel for each in state.task.variants for port in each.ports if port.mode.advances}
    for read, end in read_ends.items():
        start = channels[read].version(state.cursor(read)).through(name, logic) if read in advancing else end.version
        after = after.advanced(start, end.version, computed)
    changed = with_reflected(after)
    if faulty[1] in changed.reflected.logics(faulty[0]):
        return RepairStep.RECOMPUTE, with_reflected(whole)
    return RepairStep.CHANGES, changed


def _touched(name: str, state: ChannelState, task: str, logic: int, *, newest: bool) -> TouchedChannel:
    filled = (point for point in state.points if point.state is PointState.FILLED)
    points = tuple(point.number for point in filled if logic in point.version.logics(task))
    return TouchedChannel(channel=name, points=points, newest=newest)
