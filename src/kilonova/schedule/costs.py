"""Cost model of refreshing a relation, fitted to the durations of earlier runs.

A refresh method takes about

    machine · (overhead + per byte of the change · change + per byte of the whole · whole)

seconds, where the overhead is that of SQL of its shape (`kilonova.schedule.query_shape`). All factors have default
values and are fitted to the runs of the same task, with recent runs weighted most: the logarithms of the measured
durations are normally distributed around those of the estimates, the logarithms of the factors around those of the
defaults, and the maximum a posteriori factors are found by Gauss-Newton steps. So each run moves only the factors
that it is evidence for: one over a small change is no evidence for the cost of a byte. The size of change from which
recomputing is cheaper (Nova, Figure 5) results from the fit, and follows later changes.

Uncertain estimates are lowered (a lower confidence bound, as in bandit algorithms), and the weight of runs decays with
age: so a method that has not been used for long is tried again, and one slow run does not rule it out. The first run
of a method is not representative: Spark compiles then, and the JVM is cold. The overhead of a change is expected to be
larger then, and where the overhead is most of its duration, the run has little weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kilonova.model.run import CostSample, InputSize, RefreshMethod
from kilonova.schedule.query_shape import PLAIN, QueryShape, overhead

Vector = NDArray[np.float64]

_USUAL: dict[RefreshMethod, tuple[float, float]] = {
    RefreshMethod.INCREMENTAL: (1 / 15e6, 1 / 100e6),
    RefreshMethod.AFFECTED_GROUPS: (1 / 15e6, 1 / 30e6),
    RefreshMethod.FULL: (0.0, 1 / 25e6),
    RefreshMethod.FROM_SOURCES: (0.0, 1 / 25e6),
}
"""Default seconds per byte of Parquet, of the change and of the whole, on two cores."""

_WAYS = tuple(_USUAL)

_UNKNOWN = 0.7
"""Standard deviation of the logarithm of a factor, the machine's included, around its default."""

_NOISE = 0.15
"""Standard deviation of the logarithm of a run's duration around its estimate."""

_FADE = 0.92
"""Decay of the weights: a run's weight relative to that of the next newer run."""

_COUNTED = 200
"""Maximum number of runs to fit; the weights of older ones are negligible."""

_COLD: dict[RefreshMethod, float] = {
    RefreshMethod.INCREMENTAL: 2.0,
    RefreshMethod.AFFECTED_GROUPS: 2.0,
    RefreshMethod.FULL: 1.0,  # it compiles, but has no deltas to merge, and nothing to compare its result with
    RefreshMethod.FROM_SOURCES: 1.0,
}
"""Factor by which the overhead of a method's first run is larger."""

_COLD_NOISE = 0.5
"""Standard deviation of the logarithm of that overhead."""

_HOPE = 0.7
"""Number of standard deviations by which estimates are lowered."""

_TYPICAL = 20
"""Number of runs of a task that tell how fast the machine is."""

_STEPS = 15
"""Maximum number of Gauss-Newton steps; usually four or five suffice."""


class LinearCost(NamedTuple):
    """Cost of a refresh method: seconds that do not depend on the size, and per byte of the change and of the whole."""

    fixed: float
    change: float
    whole: float


@dataclass(frozen=True, slots=True, eq=False)
class CostModel:
    """Cost model of the refresh methods of a task.

    Attributes:
        factors: logarithms, relative to the defaults: of the machine, then three for each method.
        information: the inverse of their covariance.
        shape: the shape of the task's SQL.
    """

    factors: Vector
    information: Vector
    shape: QueryShape

    def seconds(self, method: RefreshMethod, input_size: InputSize) -> float:
        """Return how many seconds a task is estimated to take: the lower confidence bound.

        Args:
            method: any method but `INITIAL` and `MIGRATION`.
            input_size: the size of the input.
        """
        logarithm, gradient = _estimate(_row(method, input_size, self.shape)[None, :], self.factors)
        variance = gradient[0] @ np.linalg.solve(self.information, gradient[0])
        return float(np.exp(logarithm[0] - _HOPE * np.sqrt(variance)))

    def likely(self, method: RefreshMethod, input_size: InputSize) -> float:
        """Return how many seconds a task most likely takes: for work that is not repeated, so that trying is no use.

        Args:
            method: any method but `INITIAL` and `MIGRATION`.
            input_size: the size of the input.
        """
        logarithm, _ = _estimate(_row(method, input_size, self.shape)[None, :], self.factors)
        return float(np.exp(logarithm[0]))

    def linear(self, method: RefreshMethod, moved: int) -> LinearCost:
        """Return the most likely cost of a method, for any size of the input.

        Args:
            method: any method but `INITIAL` and `MIGRATION`.
            moved: the number of relations that have changed.

        >>> cost, size = fit(()).linear(RefreshMethod.FULL, 1), InputSize(change=0, whole=10**9)
        >>> cost.fixed + cost.whole * size.whole > fit(()).seconds(RefreshMethod.FULL, size)
        True
        """
        row = _row(method, InputSize(change=1, whole=1, moved=moved), self.shape) * np.exp(self.factors[1:])
        place = 3 * _WAYS.index(method)
        return LinearCost(*(float(each) for each in np.exp(self.factors[0]) * row[place : place + 3]))

    def crossover(self, input_size: InputSize) -> float | None:
        """Return the share of new data from which recomputing a relation is estimated to be cheaper (Nova, Figure 5).

        Args:
            input_size: the size of the whole input, and the number of relations assumed to change.

        Returns:
            The share, from 0 to 1; None if its change is cheaper even if everything is new.

        >>> fit(()).crossover(InputSize(change=0, whole=100_000_000)) is not None
        True
        """

        def dearer(share: float) -> bool:
            size = replace(input_size, change=round(share * input_size.whole))
            return self.seconds(RefreshMethod.INCREMENTAL, size) > self.seconds(RefreshMethod.FULL, size)

        if not dearer(1.0):
            return None
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if dearer(middle) else (middle, high)
        return high


def fit(taken: Sequence[CostSample], shape: QueryShape = PLAIN, idle: int = 0, machine: float = 0.0) -> CostModel:
    """Fit a cost model to earlier runs.

    Args:
        taken: the costs of runs of the task, newest first.
        shape: the shape of the task's SQL.
        idle: the number of runs since the newest of them for which the task was not needed; they count as their age.
        machine: the logarithm of the machine's factor that runs of other tasks suggest.

    >>> slow = [CostSample(RefreshMethod.FULL, InputSize(change=0, whole=100_000_000), seconds=46.0)] * 9
    >>> round(fit(slow).seconds(RefreshMethod.FULL, slow[0].input_size))
    44
    """
    runs = [(age, item) for age, item in enumerate(taken[:_COUNTED]) if item.method in _USUAL and item.seconds > 0]
    firsts = set({item.method: age for age, item in runs}.values())
    count = 1 + 3 * len(_WAYS)
    prior, expected = np.full(count, _UNKNOWN**-2), np.zeros(count)
    expected[0] = machine
    factors, information = expected, np.diag(prior)
    if not runs:
        return CostModel(factors, information, shape)
    rows = np.array([_row(item.method, item.input_size, shape) for _, item in runs])
    cold = np.array([age in firsts for age, _ in runs])
    rows[cold, ::3] *= [_COLD[method] for method in _WAYS]
    noise = np.hypot(_NOISE, np.where(cold, _COLD_NOISE * rows[:, ::3].sum(axis=1) / rows.sum(axis=1), 0.0))
    seconds = np.log([item.seconds for _, item in runs])
    weights = _FADE ** np.array([idle + age for age, _ in runs]) * noise**-2
    for _ in range(_STEPS):
        logarithms, gradients = _estimate(rows, factors)
        weighted = gradients.T * weights
        information = weighted @ gradients + np.diag(prior)
        step = np.linalg.solve(information, weighted @ (seconds - logarithms) - prior * (factors - expected))
        largest = float(np.abs(step).max())
        factors = factors + step / max(1.0, largest)
        if largest < 1e-3:
            break
    return CostModel(factors, information, shape)


def machine_factor(tasks: Iterable[tuple[Sequence[CostSample], QueryShape]]) -> float:
    """Return the logarithm of the factor by which this machine is slower than the defaults.

    Args:
        tasks: the costs of the runs of each task, newest first, and the shape of its SQL.

    >>> fast = [CostSample(RefreshMethod.FULL, InputSize(change=0, whole=100_000_000), seconds=1.1)] * 9
    >>> round(float(np.exp(machine_factor([(fast, PLAIN)] * 9))), 2)
    0.29
    """
    ratios: list[float] = []
    for taken, shape in tasks:
        by_method: dict[RefreshMethod, list[float]] = {}
        for item in taken[:_TYPICAL]:
            if item.method in _USUAL and item.seconds > 0:
                usual = float(_row(item.method, item.input_size, shape).sum())
                by_method.setdefault(item.method, []).append(float(np.log(item.seconds / usual)))
        ratios += (float(np.median(each)) for each in by_method.values())
    return sum(ratios) / (1 + len(ratios))


def _row(method: RefreshMethod, input_size: InputSize, shape: QueryShape) -> Vector:
    """Return the seconds that each factor contributes at its default."""
    row = np.zeros((len(_WAYS), 3))
    change, whole = _USUAL[method]
    row[_WAYS.index(method)] = (
        overhead(method, shape, input_size.moved),
        change * input_size.change,
        whole * input_size.whole,
    )
    return row.ravel()


def _estimate(rows: Vector, factors: Vector) -> tuple[Vector, Vector]:
    """Return the logarithms of the estimated durations of runs, and their gradients."""
    parts = rows * np.exp(factors[1:])
    sums = parts.sum(axis=1, keepdims=True)
    gradients = np.hstack([np.ones_like(sums), parts / sums])
    return factors[0] + np.log(sums[:, 0]), gradients
