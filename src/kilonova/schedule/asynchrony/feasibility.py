"""Bounds that no plan can keep, found out before they are violated, and when the next run is due.

A staleness bound cannot be kept if no plan repairs it, or if the cheapest plan takes longer than the bound allows: data
that arrive as the plan starts are then staler than the limit before the next plan can end. A bound of 0 says "at once",
and is not compared with what plans take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kilonova.model.bound import ZERO, Bound, InconsistencyBound, StalenessBound, next_due
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.data_block import BlockType, DataBlock
from kilonova.schedule.asynchrony.provenance import ArrivalTimes
from kilonova.schedule.asynchrony.scheduling_state import SchedulingState


@dataclass(frozen=True, slots=True)
class ExpectedArrival:
    """A typical arrival on a source channel."""

    kind: BlockType
    rows: float


@dataclass(frozen=True, slots=True)
class InfeasibleBound:
    """A bound that cannot be kept, with the reason as text."""

    bound: Bound
    reason: str


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
) -> tuple[InfeasibleBound, ...]:
    """Return the staleness bounds that cannot be kept once data arrive on their sources.

    Args:
        scheduler: the scheduler with the bounds.
        state: the present state.
        expected: what arrives at a time, by source channel.
        time_per_cost: how long a plan of cost 1 takes.
    """
    found: list[InfeasibleBound] = []
    outputs = {output.channel for output in state.outputs}
    for bound in scheduler.bounds:
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
            found.append(InfeasibleBound(bound, reason))
    return tuple(found)


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
