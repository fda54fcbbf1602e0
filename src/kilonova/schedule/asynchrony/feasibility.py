"""Bounds that no plan can keep, found out before they are violated, and when the next run is due.

A staleness bound cannot be kept if no plan repairs it, or if the cheapest plan takes longer than the bound allows: data
that arrive as the plan starts are then staler than the limit before the next plan can end. A bound of 0 says "at once",
and is not compared with what plans take.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from kilonova.model.bound import ZERO, Bound, InconsistencyBound, StalenessBound, next_due
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockType, DataBlock
from kilonova.schedule.asynchrony.provenance import ArrivalTimes
from kilonova.schedule.asynchrony.scenario import Feed, Scenario
from kilonova.schedule.asynchrony.scheduling_state import SchedulingState
from kilonova.schedule.asynchrony.simulation import simulate
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel

_ROUNDS = 3
"""Number of arrivals on each source before bounds are said to be impossible."""

TIMED_RUNS = 3
"""Number of runs after which it is known how long a task takes."""

_EVERY_TYPE = frozenset({BASE, STRONG, MONOTONE})


@dataclass(frozen=True, slots=True)
class ExpectedArrival:
    """A typical arrival on a source channel."""

    kind: BlockType
    rows: float


@dataclass(frozen=True, slots=True)
class InfeasibleBound:
    """A bound that cannot be kept.

    Attributes:
        bound: the bound.
        reason: why, as text.
        needed: how long the cheapest plan takes, if that is the reason; None if there is no plan.
    """

    bound: Bound
    reason: str
    needed: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a run is due.

    Attributes:
        bound: the bound because of which it is due.
        violated: when the bound is violated if nothing runs.
        start: when a run has to start in order to end before that.
    """

    bound: Bound
    violated: datetime
    start: datetime


def infeasible_bounds(
    scheduler: AsynchronousScheduler,
    state: SchedulingState,
    expected: Mapping[str, ExpectedArrival],
    time_per_cost: timedelta,
    among: Collection[Bound] | None = None,
) -> tuple[InfeasibleBound, ...]:
    """Return the staleness bounds that cannot be kept once data arrive on their sources.

    Args:
        scheduler: the scheduler with the bounds.
        state: the present state.
        expected: what arrives at a time, by source channel.
        time_per_cost: how long a plan of cost 1 takes.
        among: the bounds of the scheduler to check; None for all.
    """
    found: list[InfeasibleBound] = []
    outputs = {output.channel for output in state.outputs}
    for bound in scheduler.bounds if among is None else among:
        if not isinstance(bound, StalenessBound) or bound.channel not in outputs or bound.path[0] not in expected:
            continue
        strict = replace(bound, limit=ZERO)
        others = tuple(each for each in scheduler.bounds if _restricts(each, outputs))
        source = bound.path[0]
        plan = replace(scheduler, bounds=(strict, *others)).plan(_with_arrival(state, source, expected[source]))
        duration = plan.cost * time_per_cost
        if plan.unmet:
            found.append(InfeasibleBound(bound, plan.unmet[0].reason))
        elif ZERO < bound.limit < duration:
            reason = f"it would take {_hours(duration)}, the bound is {_hours(bound.limit)}"
            found.append(InfeasibleBound(bound, reason, duration))
    return tuple(found)


@lru_cache(maxsize=1000)  # a transaction under the writers' lock decides what was decided before it
def unkeepable_reason(channel: str, workflow: WorkflowModel, bounds: tuple[Bound, ...]) -> str | None:
    """Return why the bounds of a channel cannot be kept on any machine, however fast; None if they can.

    The planner is given small arrivals on all sources in turn, further apart than every limit. If it finds no plan any
    more, after each source has had several of them, there is none.

    Args:
        channel: the channel.
        workflow: the tasks that it is computed from.
        bounds: the bounds on it and on these tasks' channels.
    """
    known = list(bounds)
    if not any(isinstance(each, StalenessBound) and each.channel == channel for each in known):
        known += (StalenessBound(channel=channel, path=path, limit=ZERO) for path in workflow.paths[channel])
    sources = list(dict.fromkeys(path[0] for path in workflow.paths[channel]))
    apart = 2 * max(each.limit for each in known) + timedelta(hours=1)
    feeds = (
        Feed(name, MONOTONE, 1.0, len(sources) * apart, first=(1 + place) * apart, initial=1.0)
        for place, name in enumerate(sources)
    )
    scenario = Scenario(
        workflow=workflow,
        bounds=tuple(known),
        accepts={each.channel: _EVERY_TYPE for each in known},
        feeds=tuple(feeds),
    )
    scheduler = AsynchronousScheduler(workflow, scenario.bounds)
    start, duration = datetime(2000, 1, 1, tzinfo=UTC), (_ROUNDS * len(sources) + 0.5) * apart
    final = simulate(scenario, scheduler, start=start, duration=duration, seed=1, computers=1, noise=0.0).final
    return next((each.reason for each in scheduler.plan(final).unmet if each.channel == channel), None)


def next_deadline(
    scheduler: AsynchronousScheduler, state: SchedulingState, time_per_cost: timedelta
) -> Deadline | None:
    """Return when the next run is due and why; None if time alone violates no bound.

    Args:
        scheduler: the scheduler with the bounds.
        state: the present state.
        time_per_cost: how long a plan of cost 1 takes.
    """
    first = next_due(scheduler.states(state))
    if first is None or first.due is None:
        return None
    plan = scheduler.plan(replace(state, now=max(first.due, state.now)))
    return Deadline(first.bound, first.due, first.due - plan.cost * time_per_cost)


def _restricts(bound: Bound, outputs: set[str]) -> bool:
    """Return whether a bound restricts what may be read or written, and starts no run by itself."""
    return isinstance(bound, InconsistencyBound) or bound.channel not in outputs


def _with_arrival(state: SchedulingState, source: str, arrival: ExpectedArrival) -> SchedulingState:
    """Return a state after one more arrival on a source."""
    known = state.times[source]
    last = known.points[-1] if known.points else 0
    block = DataBlock(source, arrival.kind, (((last, last),),), (((last + 1, last + 1),),), arrival.rows)
    return replace(
        state,
        now=state.now + timedelta.resolution,
        times={**state.times, source: ArrivalTimes((*known.points, last + 1), (*known.times, state.now))},
        blocks={**state.blocks, source: (*state.blocks.get(source, ()), block)},
    )


def _hours(time: timedelta) -> str:
    """Return a time in hours, or in minutes if it is shorter.

    >>> _hours(timedelta(minutes=84)), _hours(timedelta(minutes=12)), _hours(timedelta(hours=1))
    ('1.4 h', '12 min', '1 h')
    """
    hours = time / timedelta(hours=1)
    return f"{hours:.3g} h" if hours >= 1 else f"{60 * hours:.3g} min"
