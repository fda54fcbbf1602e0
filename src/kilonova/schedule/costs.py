"""What bringing a relation up to date will take, learned from what earlier runs took.

A way of doing it takes about

    machine · (fixed + per byte of the change · change + per byte of the whole · whole)

seconds. All factors begin with what is usual and are fitted to the runs of the same task, recent runs first: the
logarithms of what was taken are normally distributed around those of the estimates, the logarithms of the factors
around those of the usual ones, and the most probable factors are found by Gauss-Newton steps. So each run moves what it
says something about: one over a small change says nothing about what a byte costs. The size of change from which
making anew is cheaper (Nova, Figure 5) is found by itself, and followed when it moves.

What is little known is hoped to be less (a bound below the estimate, as bandits have it), and runs are forgotten with
time: so a way that has not been tried for long is tried again, and one bad time is not the last. The first time of a
way counts as less than it took, because Spark compiles then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kilonova.model.run import Extent, Taken, Way

Vector = NDArray[np.float64]

_USUAL: dict[Way, tuple[float, float, float]] = {
    Way.INCREMENTAL: (0.4, 1 / 15e6, 1 / 100e6),
    Way.PARTITIONWISE: (0.5, 1 / 15e6, 1 / 30e6),
    Way.WHOLE: (0.4, 0.0, 1 / 25e6),
}
"""Seconds, and seconds per byte of Parquet, on two cores."""

_WAYS = tuple(_USUAL)

_UNKNOWN = 0.7
"""How far a factor may be from the usual one, and the machine too: the deviation of its logarithm."""

_NOISE = 0.15
"""How far a run may be from its estimate."""

_FADE = 0.92
"""How much less a run counts than the next one."""

_COUNTED = 200
"""How many runs count; what is left of older ones is nothing."""

_FIRST = 0.6
"""What counts of the seconds of a way's first run."""

_FIRST_NOISE = 0.3
"""How far a way's first run may be from its estimate."""

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
    """

    factors: Vector
    information: Vector

    def seconds(self, way: Way, extent: Extent) -> float:
        """How many seconds a task will take, by hope.

        Args:
            way: any but fresh.
            extent: how much there is to read.
        """
        logarithm, gradient = _estimated(_row(way, extent)[None, :], self.factors)
        variance = gradient[0] @ np.linalg.solve(self.information, gradient[0])
        return float(np.exp(logarithm[0] - _HOPE * np.sqrt(variance)))

    def crossover(self, whole: int) -> float | None:
        """From which share of new data on making a relation anew is estimated to be cheaper (Nova, Figure 5).

        Args:
            whole: how many bytes there are to read in all.

        Returns:
            The share, from 0 to 1; None if its change is cheaper even where everything is new.

        >>> learned(()).crossover(100_000_000) is not None
        True
        """

        def dearer(share: float) -> bool:
            size = Extent(change=round(share * whole), whole=whole)
            return self.seconds(Way.INCREMENTAL, size) > self.seconds(Way.WHOLE, size)

        if not dearer(1.0):
            return None
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if dearer(middle) else (middle, high)
        return high


def learned(taken: Sequence[Taken]) -> Costs:
    """What is learned from earlier runs.

    Args:
        taken: what runs of the task took, newest first.

    >>> slow = [Taken(Way.WHOLE, Extent(change=0, whole=100_000_000), seconds=46.0)] * 9
    >>> round(learned(slow).seconds(Way.WHOLE, slow[0].extent))
    43
    """
    runs = [(age, item) for age, item in enumerate(taken[:_COUNTED]) if item.way in _USUAL and item.seconds > 0]
    firsts = set({item.way: age for age, item in runs}.values())
    count = 1 + 3 * len(_WAYS)
    prior = np.full(count, _UNKNOWN**-2)
    factors, information = np.zeros(count), np.diag(prior)
    if not runs:
        return Costs(factors, information)
    rows = np.array([_row(item.way, item.extent) for _, item in runs])
    seconds = np.log([item.seconds * (_FIRST if age in firsts else 1) for age, item in runs])
    weights = np.array([_FADE**age * (_FIRST_NOISE if age in firsts else _NOISE) ** -2 for age, _ in runs])
    for _ in range(_STEPS):
        logarithms, gradients = _estimated(rows, factors)
        weighted = gradients.T * weights
        information = weighted @ gradients + np.diag(prior)
        step = np.linalg.solve(information, weighted @ (seconds - logarithms) - prior * factors)
        largest = float(np.abs(step).max())
        factors = factors + step / max(1.0, largest)
        if largest < 1e-3:
            break
    return Costs(factors, information)


def _row(way: Way, extent: Extent) -> Vector:
    """What each factor contributes in seconds where all is as usual."""
    row = np.zeros((len(_WAYS), 3))
    row[_WAYS.index(way)] = np.array(_USUAL[way]) * (1.0, extent.change, extent.whole)
    return row.ravel()


def _estimated(rows: Vector, factors: Vector) -> tuple[Vector, Vector]:
    """The logarithms of what runs are estimated to take, and their gradients."""
    parts = rows * np.exp(factors[1:])
    sums = parts.sum(axis=1, keepdims=True)
    gradients = np.hstack([np.ones_like(sums), parts / sums])
    return factors[0] + np.log(sums[:, 0]), gradients
