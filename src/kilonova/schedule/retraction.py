r"""Pure decision of how a faulty logic version is retracted (logic evolution, 2.2, footnote 3).

The points that it has touched are those whose version reflects it, in the channels of its task and all downstream. A
channel whose newest point is among them is repaired. Once the channels before it are, the version of its newest point
will be (V₁ \ V₂) ∪ V₃, if the task that writes it processes their changes; see `kilonova.model.version`. If nothing of
that reflects the faulty version, the changes are enough; else the task must recompute its output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kilonova.model.channel import ChannelState, PointState
from kilonova.model.version import Version
from kilonova.schedule.due import PlannerInput, TaskState


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
    repaired: dict[str, Version] = {}
    steps: dict[str, RepairStep] = {}
    for each in known.workflow.order():
        state = known.newest[each.name]
        for output in each.writes:
            own = known.channels[output]
            before = own.reflected(own.latest_readable)
            if logic not in before.logics(task) and not (recompute and each.name == task):
                continue
            if each.name == task:
                step = RepairStep.RECOMPUTE if recompute else _own_step(state, logic)
                after = before.with_logic(task, logic, logic + 1)
            else:
                step, after = _step(state, own, known.channels, repaired, (task, logic))
            if own.channel.several_writers and step is not RepairStep.CHANGES:
                step = RepairStep.DROP
            repaired[output] = after
            steps[each.name] = max(step, steps.get(each.name, step), key=tuple(RepairStep).index)
    touched = (_touched(name, state, task, logic) for name, state in sorted(known.channels.items()))
    return Retraction(
        task=task, logic=logic, touched=tuple(each for each in touched if each.points or each.newest), steps=steps
    )


def _own_step(state: TaskState, logic: int) -> RepairStep:
    if state.logic == logic:
        return RepairStep.REPLACE
    return RepairStep.RECOMPUTE if state.started else RepairStep.RUN


def _step(
    state: TaskState,
    own: ChannelState,
    channels: Mapping[str, ChannelState],
    repaired: Mapping[str, Version],
    faulty: tuple[str, int],
) -> tuple[RepairStep, Version]:
    """Return how a task downstream is repaired, and the version of its output then."""
    name, logic = state.task.name, state.logic
    ends = {
        read: repaired.get(read, channels[read].version(channels[read].latest_readable)).through(name, logic)
        for read in state.task.reads
    }
    whole = Version()
    for end in ends.values():
        whole = whole.joined(end)
    if not state.started:
        return RepairStep.RUN, whole
    if not any(variant.incremental for variant in state.task.variants):
        return RepairStep.CHANGES, whole
    after, computed = own.reflected(own.latest_readable), own.version(own.latest_readable)
    advancing = {port.channel for each in state.task.variants for port in each.ports if port.mode.advances}
    for read, end in ends.items():
        start = channels[read].version(state.cursor(read)).through(name, logic) if read in advancing else end
        after = after.advanced(start, end, computed)
    if faulty[1] in after.logics(faulty[0]):
        return RepairStep.RECOMPUTE, whole
    return RepairStep.CHANGES, after


def _touched(name: str, state: ChannelState, task: str, logic: int) -> TouchedChannel:
    filled = (point for point in state.points if point.state is PointState.FILLED)
    points = tuple(point.number for point in filled if logic in point.version.logics(task))
    newest = logic in state.reflected(state.latest_readable).logics(task)
    return TouchedChannel(channel=name, points=points, newest=newest)
