"""Result of a simulation: runs, violations of bounds, and the states of the bounds over time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from datetime import datetime

from kilonova.model.bound import Bound, BoundState
from kilonova.schedule.asynchrony.execution_plan import ExecutionPlan, UnmetOutput
from kilonova.schedule.asynchrony.scheduling_state import SchedulingState


@dataclass(frozen=True, slots=True)
class FreshnessLag:
    """A violation of a staleness bound that was repaired.

    Attributes:
        bound: the bound.
        since: when it became violated.
        until: when it was repaired, or the end of the simulation.
        computer_hours: the time between them, in hours of all computers.
    """

    bound: Bound
    since: datetime
    until: datetime
    computer_hours: float


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A plan that was executed.

    Attributes:
        start: when it began.
        end: when it ended.
        cost: what it cost, in computer hours.
        plan: the plan.
    """

    start: datetime
    end: datetime
    cost: float
    plan: ExecutionPlan


@dataclass(frozen=True, slots=True)
class BoundSample:
    """The states of the bounds at a time."""

    time: datetime
    states: tuple[BoundState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """Result of a simulation.

    Attributes:
        runs: the executed plans.
        lags: the violations of staleness bounds.
        samples: the states of the bounds, before and after each run.
        decisions: number of decisions, those to do nothing included.
        scheduling_seconds: running time of the scheduler; 0 without a timer.
        unmet: number of decisions that found no plan for some output.
        reasons: why, without repetitions.
        final: the state at the end.
    """

    runs: tuple[SimulatedRun, ...]
    lags: tuple[FreshnessLag, ...]
    samples: tuple[BoundSample, ...]
    decisions: int
    scheduling_seconds: float
    unmet: int
    reasons: tuple[UnmetOutput, ...]
    final: SchedulingState

    @property
    def cost(self) -> float:
        """The processing cost, in computer hours."""
        return sum(run.cost for run in self.runs)

    @property
    def median_lag(self) -> float:
        """The median freshness lag, in computer hours; 0 if no bound was violated."""
        return statistics.median(lag.computer_hours for lag in self.lags) if self.lags else 0.0
