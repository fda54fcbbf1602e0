"""Simulation of a workflow under a scheduler (asynchronous scheduling, section 7).

Everything is modelled but the execution of tasks: what an invocation takes and writes is what its models say, times a
random factor whose average distance from 1 is 50%. The computers are elastic: an invocation that costs c hours of one
of them takes c divided by their number. Plans run one after another; data that arrive meanwhile are processed after.
Within a plan, as many invocations run at a time as there are workers, each once what it reads has been written.

The result is a pure function of the arguments. Measured are

- *freshness lag*: from the violation of a staleness bound of an output to its repair, in computer hours; a bound that
  is still violated at the end counts until then;
- *processing cost*: the sum over all invocations, in computer hours;
- *scheduling time*: the running time of the scheduler, if a timer is given.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from kilonova.model.bound import BoundState, StalenessBound
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.channel_limits import LimitCheck
from kilonova.schedule.asynchrony.data_block import BASE, BlockKey, DataBlock, key_of
from kilonova.schedule.asynchrony.execution_plan import (
    ChainStep,
    ConversionStep,
    ExecutionPlan,
    Invocation,
    TaskStep,
    UnmetOutput,
)
from kilonova.schedule.asynchrony.linear_model import LinearModel
from kilonova.schedule.asynchrony.provenance import ORIGIN, ArrivalTimes, PointSet, Provenance
from kilonova.schedule.asynchrony.pruning import Pruning
from kilonova.schedule.asynchrony.scenario import Arrival, Scenario, arrivals_of
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState
from kilonova.schedule.asynchrony.simulation_result import BoundSample, FreshnessLag, SimulatedRun, SimulationResult
from kilonova.schedule.asynchrony.state_changes import with_blocks
from kilonova.schedule.asynchrony.workflow_model import PortForm, WorkflowModel

_CLEANED = frozenset({Pruning.OLD_BLOCKS, Pruning.DELTA_CHAINS})
"""The passes by which blocks that are of no use any more are dropped for good."""

_SPREAD = 0.5 * math.sqrt(math.pi / 2)
"""Standard deviation of a normal distribution whose average distance from its mean is 0.5."""

_LEAST_FACTOR = 0.05


class PlanningScheduler(Protocol):
    """A scheduler that can be simulated."""

    def states(self, state: SchedulingState) -> tuple[BoundState, ...]:
        """Return the states of the bounds on outputs."""

    def plan(self, state: SchedulingState) -> ExecutionPlan:
        """Return what is to run now."""


def simulate(
    scenario: Scenario,
    scheduler: PlanningScheduler,
    *,
    start: datetime,
    duration: timedelta,
    seed: int,
    computers: int = 1000,
    workers: int = 1,
    noise: float = 1.0,
    timer: Callable[[], float] = lambda: 0.0,
) -> SimulationResult:
    """Simulate a workflow.

    Args:
        scenario: the workflow with its bounds and arrivals.
        scheduler: the scheduler.
        start: the beginning.
        duration: how long it lasts.
        seed: the seed of the random factors.
        computers: number of computers, all of which execute each invocation.
        workers: number of invocations that run at a time, at no loss of speed.
        noise: multiple of the usual noise; 0 for none.
        timer: returns a time in seconds, to measure the scheduler.
    """
    world = _World.begin(scenario, start, random.Random(seed), computers, workers, noise)
    arrivals = arrivals_of(scenario.feeds, start, duration)
    end, now, place = start + duration, start, 0
    decisions = unmet = 0
    reasons: dict[UnmetOutput, None] = {}
    seconds = 0.0
    while now < end:
        while place < len(arrivals) and arrivals[place].time <= now:
            world.receive(arrivals[place])
            place += 1
        state = world.state(now + timedelta.resolution)
        states = scheduler.states(state)
        began = timer()
        plan = scheduler.plan(state)
        seconds += timer() - began
        decisions += 1
        unmet += bool(plan.unmet)
        reasons |= dict.fromkeys(plan.unmet)
        if plan.invocations:
            now = world.execute(plan, state, scheduler, end)
            continue
        world.samples.append(BoundSample(now, states))
        due = [each.due for each in states if each.due is not None and each.due > now + timedelta.resolution]
        now = min([*due, *(arrival.time for arrival in arrivals[place : place + 1]), end])
    final = world.state(end)
    world.end(scheduler.states(final), end)
    return SimulationResult(
        runs=tuple(world.runs),
        lags=tuple(world.lags),
        samples=tuple(world.samples),
        decisions=decisions,
        scheduling_seconds=seconds,
        unmet=unmet,
        reasons=tuple(reasons),
        final=final,
    )


@dataclass(slots=True)
class _World:
    """The simulated workflow."""

    scenario: Scenario
    randomness: random.Random
    computers: int
    workers: int
    noise: float
    cleaner: AsynchronousScheduler
    blocks: dict[str, tuple[DataBlock, ...]]
    times: dict[str, ArrivalTimes]
    heads: dict[str, Provenance]
    cursors: dict[tuple[str, int], Provenance]
    runs: list[SimulatedRun] = field(default_factory=list)
    lags: list[FreshnessLag] = field(default_factory=list)
    samples: list[BoundSample] = field(default_factory=list)

    @classmethod
    def begin(
        cls, scenario: Scenario, start: datetime, randomness: random.Random, computers: int, workers: int, noise: float
    ) -> _World:
        """Return a workflow whose channels are empty, or up to date with what is stored."""
        workflow, stored = scenario.workflow, scenario.stored
        first: PointSet = ((1, 1),) if stored else ORIGIN
        reflected = {name: (first,) * len(each) for name, each in workflow.paths.items()}
        point = 1 if stored else 0
        begun = ArrivalTimes((1,), (start,)) if stored else ArrivalTimes()
        return cls(
            scenario,
            randomness,
            computers,
            workers,
            noise,
            AsynchronousScheduler(workflow, scenario.bounds),
            {
                name: (DataBlock(name, BASE, None, each, stored.get(name, 0.0), (point, point)),)
                for name, each in reflected.items()
            },
            {name: begun for name in workflow.paths if name not in workflow.writer},
            {name: reflected[name] for name in scenario.accepts},
            {
                (task.name, place): reflected[name]
                for task in workflow.tasks
                if any(port.form is PortForm.HELD for variant in task.variants for port in variant.ports)
                for place, name in enumerate(task.reads)
            },
        )

    def state(self, now: datetime) -> SchedulingState:
        """Return what the scheduler sees."""
        outputs = tuple(OutputState(name, self.scenario.accepts[name], head) for name, head in self.heads.items())
        return SchedulingState(
            now=now, times=dict(self.times), blocks=dict(self.blocks), outputs=outputs, cursors=dict(self.cursors)
        )

    def receive(self, arrival: Arrival) -> None:
        """Store rows that arrive."""
        known = self.times[arrival.channel]
        number = known.points[-1] + 1 if known.points else 1
        self.times[arrival.channel] = ArrivalTimes((*known.points, number), (*known.times, arrival.time))
        start: Provenance = (((number - 1, number - 1),),)
        target: Provenance = (((number, number),),)
        points = (number - 1, number)
        block = DataBlock(arrival.channel, arrival.kind, start, target, arrival.rows, points)
        self.blocks[arrival.channel] += (block,)

    def execute(
        self, plan: ExecutionPlan, state: SchedulingState, scheduler: PlanningScheduler, end: datetime
    ) -> datetime:
        """Execute a plan, and return when it has ended."""
        declared = LimitCheck(self.scenario.workflow.paths, self.times, state.now, self.cleaner.declared)
        bounds = scheduler.states(state)
        self.samples.append(BoundSample(state.now, bounds))
        done, cost, hours = self._executed(plan, (end - state.now) / timedelta(hours=1))
        for ended, block, invocation in done:
            now = state.now + timedelta(hours=ended)
            if now > end:
                break
            self._advance(invocation)
            after = with_blocks(self.state(state.now), [block], declared)
            self.blocks = dict(after.blocks)
            heads = {output.channel: output.head for output in after.outputs}
            if heads != self.heads:
                self.heads = heads
                bounds = self._record_repairs(bounds, scheduler.states(after), now)
        now = state.now + timedelta(hours=hours)
        self.blocks = dict(self.cleaner.candidates(self.state(state.now), self.blocks, _CLEANED))
        seen = min(now, end)
        self.samples.append(BoundSample(seen, scheduler.states(self.state(seen))))
        self.runs.append(SimulatedRun(state.now, now, cost, plan))
        return now

    def _advance(self, invocation: Invocation) -> None:
        """Move the cursors of a task to what it has read."""
        if isinstance(invocation.step, TaskStep):
            for place, read in enumerate(invocation.reads):
                cursor = invocation.step.task, place
                if read and cursor in self.cursors:
                    self.cursors[cursor] = read[-1].target

    def _executed(
        self, plan: ExecutionPlan, left: float
    ) -> tuple[list[tuple[float, DataBlock, Invocation]], float, float]:
        """Return what a plan writes, by the hours after which it is there; its cost, and its duration in hours.

        Args:
            plan: the plan.
            left: the hours after which no invocation begins.
        """
        done: list[tuple[float, DataBlock, Invocation]] = []
        rows: dict[BlockKey, float] = {}
        written: dict[BlockKey, float] = {}
        free = [0.0] * self.workers
        cost = 0.0
        for invocation in plan.invocations:
            key = key_of(invocation.writes)
            ready = max((written.get(key_of(each), 0.0) for port in invocation.reads for each in port), default=0.0)
            if isinstance(invocation.step, ChainStep):  # a way to read, which stores nothing
                self._invoke(invocation, rows)
                written[key] = ready
                continue
            began = max(ready, free[0])
            if began >= left:
                written[key] = math.inf
                continue
            block, own = self._invoke(invocation, rows)
            cost += own
            written[key] = began + own / self.computers
            heapq.heapreplace(free, written[key])
            done.append((written[key], block, invocation))
        return sorted(done, key=lambda each: each[0]), cost, max(free)

    def _record_repairs(
        self, before: tuple[BoundState, ...], after: tuple[BoundState, ...], now: datetime
    ) -> tuple[BoundState, ...]:
        """Record the violations that a block has repaired; return the states after it."""
        for was, has_become in zip(before, after, strict=True):
            if was.violated and has_become.due != was.due:
                self._record_lag(was, now)
        return after

    def _invoke(self, invocation: Invocation, rows: dict[BlockKey, float]) -> tuple[DataBlock, float]:
        """Return what an invocation writes, and its cost."""
        sizes = [rows.get(key_of(block), block.rows) for port in invocation.reads for block in port]
        cost_model, row_model = _models_of(self.scenario.workflow, invocation)
        written = max(0.0, row_model(sizes))
        if isinstance(invocation.step, TaskStep):
            written *= self._factor()
        cost = 0.0 if isinstance(invocation.step, ChainStep) else cost_model(sizes, written) * self._factor()
        block = invocation.writes
        rows[key_of(block)] = written
        return DataBlock(block.channel, block.kind, block.start, block.target, written), cost

    def _factor(self) -> float:
        """Return a random factor."""
        return max(_LEAST_FACTOR, 1.0 + self.noise * self.randomness.gauss(0.0, _SPREAD))

    def _record_lag(self, state: BoundState, until: datetime) -> None:
        """Record the end of a violation."""
        if isinstance(state.bound, StalenessBound) and state.due is not None:
            hours = (until - state.due) / timedelta(hours=1) * self.computers
            self.lags.append(FreshnessLag(state.bound, state.due, until, hours))

    def end(self, states: tuple[BoundState, ...], end: datetime) -> None:
        """Record the bounds that are still violated."""
        for each in states:
            if each.violated:
                self._record_lag(each, end)


def _models_of(workflow: WorkflowModel, invocation: Invocation) -> tuple[LinearModel, LinearModel]:
    """Return the cost and size models of an invocation."""
    match invocation.step:
        case TaskStep(task, variant):
            writer = workflow.writer[invocation.writes.channel]
            assert writer.name == task
            found = next(each for each in writer.variants if each.name == variant)
            return found.cost, found.rows
        case ConversionStep(channel, source, target):
            known = workflow.channel[channel].conversions
            conversion = next(each for each in known if (each.source, each.target) == (source, target))
            return conversion.cost, conversion.rows
        case ChainStep():
            return LinearModel(0.0, (0.0, 0.0)), LinearModel(0.0, (1.0, 1.0))
