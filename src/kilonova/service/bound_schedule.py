"""Schedule of runs that keep bounds: what starts now, what starts next and when, and what else was considered."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from kilonova.catalog.bound_observation import observe_bounds, without_repeated
from kilonova.catalog.database import Transaction
from kilonova.model.bound import describe_bound
from kilonova.schedule.asynchrony.execution_plan import ExecutionPlan, Invocation, TaskStep
from kilonova.schedule.bound_planning.planned_task import task_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledStep:
    """Step of a plan.

    Attributes:
        task: the task.
        variant: the variant by which it runs.
        binding: the binding that it belongs to; empty if a workflow has yet to declare it.
        writes: the channel that it writes.
        seconds: its estimated duration.
    """

    task: str
    variant: str
    binding: str
    writes: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativePlan:
    """Another way to keep the bounds of a channel.

    Attributes:
        channel: the channel.
        steps: its steps as text, in order.
        seconds: its estimated duration.
    """

    channel: str
    steps: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundObstacle:
    """Reason why bounds of a channel are not kept, or not by planned runs."""

    channel: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSchedule:
    """Schedule of runs that keep bounds.

    Attributes:
        steps: the steps of the present plan, or of the one that starts at `due`; none if nothing is to be done.
        bounds: the bounds that the plan keeps, as text.
        due: when the plan starts; None if it starts now, or there is none.
        starting: the bindings that start now; those that run already are left out.
        not_repeated: the bindings that would start, but have run with the same input, and failed or changed nothing.
        alternatives: other plans, the cheapest first, for each channel.
        obstacles: bounds that no plan keeps, and why.
        started_by_bounds: the tasks that run when a bound requires it, instead of whenever there is new input.
    """

    steps: tuple[ScheduledStep, ...] = ()
    bounds: tuple[str, ...] = ()
    due: datetime | None = None
    starting: tuple[str, ...] = ()
    not_repeated: tuple[str, ...] = ()
    alternatives: tuple[AlternativePlan, ...] = ()
    obstacles: tuple[BoundObstacle, ...] = ()
    started_by_bounds: tuple[str, ...] = ()


def bound_schedule(tx: Transaction, channels: Collection[str] | None = None) -> BoundSchedule:
    """Return the schedule of runs that keep bounds.

    Args:
        tx: an open transaction.
        channels: the channels whose alternatives and obstacles are returned; None for all.
    """
    observed = observe_bounds(tx)
    if observed is None:
        return BoundSchedule()
    from kilonova.schedule.bound_planning.bound_decision import decide_bound_runs  # numpy takes a while

    decision = decide_bound_runs(observed, alternatives=True)
    plan = decision.plan or decision.next_plan or ExecutionPlan()
    starting = tuple(run.binding for run in without_repeated(tx, decision.runs))
    unmet = [BoundObstacle(channel=each.channel, reason=each.reason) for each in plan.unmet]
    unplanned = [BoundObstacle(channel=each.bound.channel, reason=each.reason) for each in decision.unplanned]
    return BoundSchedule(
        steps=tuple(found for each in plan.invocations if (found := _step(each, observed.bindings)) is not None),
        bounds=tuple(map(describe_bound, plan.violated)),
        due=decision.next_check if decision.plan is None and plan.invocations else None,
        starting=starting,
        not_repeated=tuple(run.binding for run in decision.runs if run.binding not in starting),
        alternatives=tuple(
            AlternativePlan(channel=each.channel, steps=_tasks(each.steps), seconds=each.cost)
            for each in plan.alternatives
            if channels is None or each.channel in channels
        ),
        obstacles=tuple(each for each in (*unmet, *unplanned) if channels is None or each.channel in channels),
        started_by_bounds=tuple(sorted(decision.managed)),
    )


def _step(invocation: Invocation, bindings: Mapping[str, str]) -> ScheduledStep | None:
    """Return a step of a task; None for a conversion, which is part of the reading task."""
    if not isinstance(invocation.step, TaskStep):
        return None
    task = task_of(invocation.step.task)
    return ScheduledStep(
        task=task,
        variant=invocation.step.variant,
        binding=bindings.get(task, ""),
        writes=invocation.writes.channel,
        seconds=invocation.cost,
    )


def _tasks(steps: Collection[object]) -> tuple[str, ...]:
    return tuple(str(each) for each in steps if isinstance(each, TaskStep))
