"""What bringing a relation up to date will take, learned from what earlier runs took.

A way of doing it takes about

    fixed + per byte of the change · change + per byte of the whole · whole

seconds. The three factors begin with what is usual and are fitted to the runs of the same task (least squares of
relative errors, recent runs first, drawn towards the beginning); so the size of change from which making anew is
cheaper (Nova, Figure 5) is found by itself, and followed when it moves.

The first time of a way counts as less than it took, and later not at all, because Spark compiles then; and a way is
hoped to take less the longer it has not been tried, so that now and then it is, and one bad time is not the last.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from kilonova.model.run import Extent, Taken, Way

Factors = tuple[float, float, float]

_USUAL: dict[Way, Factors] = {
    Way.INCREMENTAL: (0.8, 1 / 8e6, 1 / 150e6),
    Way.PARTITIONWISE: (1.0, 1 / 15e6, 1 / 30e6),
    Way.WHOLE: (0.6, 0.0, 1 / 25e6),
}
"""Seconds, and seconds per byte of Parquet, on two cores."""

_PULL = 0.3
"""How much the beginning counts, in runs."""

_FADE = 0.85
"""How much less a run counts than the next one."""

_FIRST = 0.6
"""What counts of the seconds of a way's first run while there is no other."""

_HOPE = 0.96
"""How much less a way is hoped to take with each run that goes another way."""


def estimated(way: Way, extent: Extent, taken: Sequence[Taken]) -> float:
    """How many seconds a task will take.

    Args:
        way: any but fresh.
        extent: how much there is to read.
        taken: what runs of the task took, newest first.

    >>> slow = [Taken(Way.WHOLE, Extent(change=0, whole=100_000_000), seconds=46.0)] * 5
    >>> round(estimated(Way.WHOLE, Extent(change=0, whole=100_000_000), slow))
    46
    """
    factors = _fitted(way, taken)
    known = sum(factor * size for factor, size in zip(factors, _sizes(extent), strict=True))
    since = next((place for place, item in enumerate(taken) if item.way is way), 0)
    return float(known * _HOPE**since)


def crossover(whole: int, taken: Sequence[Taken]) -> float | None:
    """From which share of new data on making a relation anew is estimated to be cheaper (Nova, Figure 5).

    Args:
        whole: how many bytes there are to read in all.
        taken: what runs of the task took, newest first.

    Returns:
        The share, from 0 to 1; None if its change is cheaper even where everything is new.

    >>> crossover(100_000_000, ()) is not None
    True
    """

    def dearer(share: float) -> bool:
        size = Extent(change=round(share * whole), whole=whole)
        return estimated(Way.INCREMENTAL, size, taken) > estimated(Way.WHOLE, size, taken)

    if not dearer(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if dearer(middle) else (middle, high)
    return high


def _sizes(extent: Extent) -> Factors:
    return 1.0, float(extent.change), float(extent.whole)


def _fitted(way: Way, taken: Sequence[Taken]) -> Factors:
    own = [item for item in taken if item.way is way and item.seconds > 0]
    own = own[:-1] or [replace(item, seconds=item.seconds * _FIRST) for item in own]
    usual = _USUAL[way]
    if not own:
        speed = _speed([item for item in taken if item.way in _USUAL and item.seconds > 0])
        return usual[0] * speed, usual[1] * speed, usual[2] * speed
    speed = _speed(own)
    start = [factor * speed for factor in usual]
    found = list(start)
    for _ in range(40):
        for place, begin in enumerate(start):
            if begin == 0:
                continue
            above, below = _PULL / begin, _PULL / begin**2
            for age, item in enumerate(own):
                sizes = _sizes(item.extent)
                weight = _FADE**age / item.seconds**2
                rest = sum(f * s for other, (f, s) in enumerate(zip(found, sizes, strict=True)) if other != place)
                above += weight * sizes[place] * (item.seconds - rest)
                below += weight * sizes[place] ** 2
            found[place] = max(0.0, above / below)
    return found[0], found[1], found[2]


def _speed(taken: Sequence[Taken]) -> float:
    """How much slower than usual runs were."""
    ratios = [
        item.seconds / sum(f * s for f, s in zip(_USUAL[item.way], _sizes(item.extent), strict=True))
        for item in taken[:8]
    ]
    return statistics.median(ratios) if ratios else 1.0
