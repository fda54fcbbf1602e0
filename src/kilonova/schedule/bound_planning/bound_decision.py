"""Decision on what runs because of bounds, and when the next run is due because of which bound.

A bound that is violated is repaired at once. One that will be violated by time is repaired before: its plan starts
earlier than that by somewhat more than the plan is estimated to take.

Of a plan those runs start whose input is stored. A run starts only with the whole of its binding, and reads no further
than the plan says, channel by channel: where tasks of a binding would read a channel up to different points, up to the
last of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kilonova.model.bound import Bound, BoundState, InconsistencyBound, StalenessBound, next_due
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.execution_plan import ExecutionPlan, Invocation, TaskStep
from kilonova.schedule.asynchrony.feasibility import TIMED_RUNS, ExpectedArrival, InfeasibleBound, infeasible_bounds
from kilonova.schedule.asynchrony.provenance import Provenance
from kilonova.schedule.asynchrony.scheduling_state import SchedulingState
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel
from kilonova.schedule.bound_planning.bound_observation import BoundObservation
from kilonova.schedule.bound_planning.bound_run import BoundRun
from kilonova.schedule.bound_planning.planned_task import (
    PlannedTask,
    declared_path,
    obstacle,
    planned_tasks,
    task_of,
)
from kilonova.schedule.bound_planning.stored_state import scheduling_state
from kilonova.schedule.bound_planning.task_models import SEPARATOR, workflow_model

_MARGIN = 1.5
"""Factor by which a plan may take longer than estimated, and still end in time."""

_SPARE = timedelta(seconds=2)
"""Time that a run needs to start."""


_Points = Mapping[tuple[str, Provenance], tuple[int, int] | None]
"""The points of stored blocks, by channel and provenance."""


@dataclass(frozen=True, slots=True)
class UnplannedBound:
    """Bound for which no plan can be made, and why."""

    bound: Bound
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundDecision:
    """Decision on what runs because of bounds.

    Attributes:
        runs: the runs to start now.
        plan: the plan that they are part of; None if nothing is to run.
        states: the states of the planned bounds.
        next_bound: the bound that starts the next run if no data arrive; None if time alone starts none.
        next_check: when that is; when it is violated, if that run starts now.
        next_plan: the plan of that run, as expected now.
        unplanned: the bounds for which no plan can be made.
        managed: the tasks that run because of bounds.
    """

    runs: tuple[BoundRun, ...] = ()
    plan: ExecutionPlan | None = None
    states: tuple[BoundState, ...] = ()
    next_bound: Bound | None = None
    next_check: datetime | None = None
    next_plan: ExecutionPlan | None = None
    unplanned: tuple[UnplannedBound, ...] = ()
    managed: frozenset[str] = frozenset()


def decide_bound_runs(observed: BoundObservation, *, alternatives: bool = False) -> BoundDecision:
    """Return what runs because of bounds.

    Args:
        observed: the tasks and channels, and all bounds.
        alternatives: whether the plan lists alternatives, which takes longer.
    """
    return _Decision.of(observed, alternatives=alternatives).decide()


def slow_bounds(
    observed: BoundObservation, bounds: Iterable[StalenessBound], arrivals: Mapping[str, ExpectedArrival]
) -> tuple[InfeasibleBound, ...]:
    """Return bounds on staleness that are shorter than what it takes to process an arrival.

    Bounds whose tasks have not run a few times are left out: nothing is known about them.

    Args:
        observed: the tasks and channels, and all bounds.
        bounds: the bounds to check.
        arrivals: what arrives at a time, by source channel, in bytes.
    """
    return _Decision.of(observed).slow(bounds, arrivals)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    observed: BoundObservation
    planned: Mapping[str, PlannedTask]
    scheduler: AsynchronousScheduler
    declared: Mapping[Bound, Bound]
    """The bound as declared for each bound of the scheduler."""
    unplanned: tuple[UnplannedBound, ...]

    @classmethod
    def of(cls, observed: BoundObservation, *, alternatives: bool = False) -> _Decision:
        workflow, channels = observed.known.workflow, observed.known.channels
        every = planned_tasks(observed.known, {bound.channel for bound in observed.bounds})
        obstacles = {each.channel: obstacle(each.channel, workflow, every) for each in observed.bounds}
        unplanned = [UnplannedBound(each, why) for each in observed.bounds if (why := obstacles[each.channel])]
        stale = {each.channel for each in observed.bounds if isinstance(each, StalenessBound)}
        planned = planned_tasks(observed.known, {name for name in stale if not obstacles[name]})
        model = workflow_model(planned, channels)
        declared: dict[Bound, Bound] = {}
        for bound in observed.bounds:
            if bound.channel not in planned or obstacles[bound.channel]:
                continue
            if (own := _in_model(bound, model)) is None:
                unplanned.append(UnplannedBound(bound, "no task leads along its path any more"))
            else:
                declared[own] = bound
        return cls(
            observed=observed,
            planned=planned,
            scheduler=AsynchronousScheduler(model, tuple(declared), alternatives=alternatives),
            declared=declared,
            unplanned=tuple(unplanned),
        )

    def slow(
        self, bounds: Iterable[StalenessBound], arrivals: Mapping[str, ExpectedArrival]
    ) -> tuple[InfeasibleBound, ...]:
        by_name = {task.name: task for task in self.planned.values()}
        wanted = set(bounds)
        known = [
            own
            for own, declared in self.declared.items()
            if declared in wanted
            and isinstance(own, StalenessBound)
            and all(len(state.samples) >= TIMED_RUNS for name in own.path[1:] for state in by_name[name].states)
        ]
        outputs = dict.fromkeys(each.channel for each in known)
        state = scheduling_state(self.observed, self.planned, self.scheduler.workflow, outputs)
        found = infeasible_bounds(self.scheduler, state, arrivals, timedelta(seconds=1), known)
        return tuple(replace(each, bound=self.declared[each.bound]) for each in found if each.needed is not None)

    def decide(self) -> BoundDecision:
        outputs = dict.fromkeys(each.channel for each in self.declared if isinstance(each, StalenessBound))
        state = scheduling_state(self.observed, self.planned, self.scheduler.workflow, outputs)
        states = self.scheduler.states(state)
        done = BoundDecision(
            states=tuple(replace(each, bound=self.declared[each.bound]) for each in states),
            unplanned=self.unplanned,
            managed=frozenset(each.task.name for task in self.planned.values() for each in task.states),
        )
        plan = self.scheduler.plan(state)
        done, soon = self._with_next(done, state, states)
        if plan.violated:
            return self._with_runs(done, plan, state)
        return done if soon is None else self._with_runs(done, soon, state)

    def _with_next(
        self, done: BoundDecision, state: SchedulingState, states: Iterable[BoundState]
    ) -> tuple[BoundDecision, ExecutionPlan | None]:
        """Return the decision with the bound that is violated next, and its plan if that has to start now."""
        due = next_due(each for each in states if not each.violated)
        if due is None or due.due is None:
            return done, None
        plan = self.scheduler.plan(replace(state, now=due.due))
        start = due.due - _SPARE - timedelta(seconds=_MARGIN * plan.cost)
        done = replace(done, next_bound=self.declared[due.bound], next_plan=self._as_declared(plan))
        if start > state.now:
            return replace(done, next_check=start), None
        return replace(done, next_check=due.due), plan

    def _with_runs(self, done: BoundDecision, plan: ExecutionPlan, state: SchedulingState) -> BoundDecision:
        """Return the decision with the runs of a plan whose input is stored, and whose bindings do not run."""
        by_binding: dict[str, list[Invocation]] = defaultdict(list)
        for each in plan.invocations:
            name = self.observed.bindings.get(task_of(each.step.task)) if isinstance(each.step, TaskStep) else None
            if name is not None:
                by_binding[name].append(each)
        written = {each.writes.channel: name for name, mine in by_binding.items() for each in mine}
        points = {(each.channel, each.target): each.points for blocks in state.blocks.values() for each in blocks}
        bounds = tuple(self.declared[each] for each in plan.violated)
        runs = [
            self._run(name, mine, bounds, points)
            for name, mine in by_binding.items()
            if name not in self.observed.running and self._is_ready(name, mine, written)
        ]
        return replace(done, plan=self._as_declared(plan), runs=tuple(runs))

    def _as_declared(self, plan: ExecutionPlan) -> ExecutionPlan:
        """Return a plan with its bounds as declared."""
        return replace(plan, violated=tuple(self.declared[each] for each in plan.violated))

    def _is_ready(self, binding: str, invocations: Iterable[Invocation], written: Mapping[str, str]) -> bool:
        """Return whether all that a binding reads is stored, or written by itself."""
        read = {block.channel for each in invocations for port in each.reads for block in port if block.points is None}
        return all(written.get(channel, binding) == binding for channel in read)

    def _run(
        self, binding: str, invocations: Iterable[Invocation], bounds: tuple[Bound, ...], points: _Points
    ) -> BoundRun:
        until: dict[str, int] = {}
        logics: dict[str, int] = {}
        variants: dict[str, str] = {}
        by_name = {task.name: task for task in self.planned.values()}
        own = {each.writes.channel for each in invocations}
        for each in invocations:
            assert isinstance(each.step, TaskStep)
            task = by_name[each.step.task]
            logics |= {state.task.name: state.logic for state in task.states}
            if len(task.state.task.variants) > 1 and task.state.task.view is None and task.incremental:
                variants[task.state.task.name] = each.step.variant.partition(SEPARATOR)[0]
            for name, blocks in zip(task.reads, each.reads, strict=True):
                ends = [found[1] for block in blocks if (found := points.get((name, block.target))) is not None]
                if name not in own:
                    until[name] = max((*ends, self._cursor(binding, name), until.get(name, 0)))
        return BoundRun(
            binding=binding,
            until=until,
            logics=logics,
            variants=variants,
            bounds=bounds,
            cost=sum(each.cost for each in invocations),
        )

    def _cursor(self, binding: str, channel: str) -> int:
        """Return the point up to which the tasks of a binding have read a channel: the last of their cursors."""
        every = self.observed.known.newest.values()
        mine = (each for each in every if self.observed.bindings.get(each.task.name) == binding)
        return max(
            (each.cursor(channel) for each in mine if channel in (*each.task.reads, *each.task.sources)), default=0
        )


def _in_model(bound: Bound, model: WorkflowModel) -> Bound | None:
    """Return a bound with its path as in the model; None if there is no such path."""
    if isinstance(bound, InconsistencyBound):
        return bound
    found = [path for path in model.paths[bound.channel] if declared_path(path) == bound.path]
    return replace(bound, path=found[0]) if found else None
