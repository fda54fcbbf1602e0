"""What bringing a relation up to date will take, learned from what earlier runs took.

A way of doing it takes about

    machine · (overhead + per byte of the change · change + per byte of the whole · whole)

seconds, where the overhead is that of SQL of its shape (`kilonova.schedule.shapes`). All factors begin with what is
usual and are fitted to the runs of the same task, recent runs first: the logarithms of what was taken are normally
distributed around those of the estimates, the logarithms of the factors around those of the usual ones, and the most
probable factors are found by Gauss-Newton steps. So each run moves what it
says something about: one over a small change says nothing about what a byte costs. The size of change from which
making anew is cheaper (Nova, Figure 5) is found by itself, and followed when it moves.

What is little known is hoped to be less (a bound below the estimate, as bandits have it), and runs are forgotten with
time: so a way that has not been tried for long is tried again, and one bad time is not the last. The first time of a
way is no price: Spark compiles then, and the Java machine is cold. It is expected to have several times the overhead,
and says little where that is most of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kilonova.model.run import Extent, Taken, Way
from kilonova.schedule.shapes import PLAIN, Shape, overhead

Vector = NDArray[np.float64]

_USUAL: dict[Way, tuple[float, float]] = {
    Way.INCREMENTAL: (1 / 15e6, 1 / 100e6),
    Way.PARTITIONWISE: (1 / 15e6, 1 / 30e6),
    Way.WHOLE: (0.0, 1 / 25e6),
}
"""Seconds per byte of Parquet, of the change and of the whole, on two cores."""

_WAYS = tuple(_USUAL)

_UNKNOWN = 0.7
"""How far a factor may be from the usual one, and the machine too: the deviation of its logarithm."""

_NOISE = 0.15
"""How far a run may be from its estimate."""

_FADE = 0.92
"""How much less a run counts than the next one."""

_COUNTED = 200
"""How many runs count; what is left of older ones is nothing."""

_COLD = 3.0
"""How many times the overhead a way's first run has."""

_COLD_NOISE = 0.8
"""How far that may be from it."""

_HOPE = 0.7
"""By how many deviations what is estimated is hoped to be less."""

_STEPS = 15
"""Gauss-Newton steps at most; mostly four or five are enough."""


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """What the ways of doing a task take.

    Attributes:
        factors: logarithms, relative to what is usual: of the machine, then three for each way.
        information: the inverse of their covariance.
        shape: the shape of the task's SQL.
    """

    factors: Vector
    information: Vector
    shape: Shape

    def seconds(self, way: Way, extent: Extent) -> float:
        """How many seconds a task will take, by hope.

        Args:
            way: any but fresh.
            extent: how much there is to read.
        """
        logarithm, gradient = _estimated(_row(way, extent, self.shape)[None, :], self.factors)
        variance = gradient[0] @ np.linalg.solve(self.information, gradient[0])
        return float(np.exp(logarithm[0] - _HOPE * np.sqrt(variance)))

    def crossover(self, extent: Extent) -> float | None:
        """From which share of new data on making a relation anew is estimated to be cheaper (Nova, Figure 5).

        Args:
            extent: how much there is to read in all, and how many relations are taken to change.

        Returns:
            The share, from 0 to 1; None if its change is cheaper even where everything is new.

        >>> learned(()).crossover(Extent(change=0, whole=100_000_000)) is not None
        True
        """

        def dearer(share: float) -> bool:
            size = replace(extent, change=round(share * extent.whole))
            return self.seconds(Way.INCREMENTAL, size) > self.seconds(Way.WHOLE, size)

        if not dearer(1.0):
            return None
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if dearer(middle) else (middle, high)
        return high


def learned(taken: Sequence[Taken], shape: Shape = PLAIN) -> Costs:
    """What is learned from earlier runs.

    Args:
        taken: what runs of the task took, newest first.
        shape: the shape of the task's SQL.

    >>> slow = [Taken(Way.WHOLE, Extent(change=0, whole=100_000_000), seconds=46.0)] * 9
    >>> round(learned(slow).seconds(Way.WHOLE, slow[0].extent))
    44
    """
    runs = [(age, item) for age, item in enumerate(taken[:_COUNTED]) if item.way in _USUAL and item.seconds > 0]
    firsts = set({item.way: age for age, item in runs}.values())
    count = 1 + 3 * len(_WAYS)
    prior = np.full(count, _UNKNOWN**-2)
    factors, information = np.zeros(count), np.diag(prior)
    if not runs:
        return Costs(factors, information, shape)
    rows = np.array([_row(item.way, item.extent, shape) for _, item in runs])
    cold = np.array([age in firsts for age, _ in runs])
    rows[cold, ::3] *= _COLD
    noise = np.hypot(_NOISE, np.where(cold, _COLD_NOISE * rows[:, ::3].sum(axis=1) / rows.sum(axis=1), 0.0))
    seconds = np.log([item.seconds for _, item in runs])
    weights = _FADE ** np.array([age for age, _ in runs]) * noise**-2
    for _ in range(_STEPS):
        logarithms, gradients = _estimated(rows, factors)
        weighted = gradients.T * weights
        information = weighted @ gradients + np.diag(prior)
        step = np.linalg.solve(information, weighted @ (seconds - logarithms) - prior * factors)
        largest = float(np.abs(step).max())
        factors = factors + step / max(1.0, largest)
        if largest < 1e-3:
            break
    return Costs(factors, information, shape)


def _row(way: Way, extent: Extent, shape: Shape) -> Vector:
    """What each factor contributes in seconds where all is as usual."""
    row = np.zeros((len(_WAYS), 3))
    change, whole = _USUAL[way]
    row[_WAYS.index(way)] = overhead(way, shape, extent.moved), change * extent.change, whole * extent.whole
    return row.ravel()


def _estimated(rows: Vector, factors: Vector) -> tuple[Vector, Vector]:
    """The logarithms of what runs are estimated to take, and their gradients."""
    parts = rows * np.exp(factors[1:])
    sums = parts.sum(axis=1, keepdims=True)
    gradients = np.hstack([np.ones_like(sums), parts / sums])
    return factors[0] + np.log(sums[:, 0]), gradients
