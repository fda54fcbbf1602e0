"""Positions of chart marks, in percent of the width and pixels of the height; templates draw them as SVG.

So charts are as wide as the available space while their text keeps its size, use the colours of the page, and are
accessible to screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True)
class Tick:
    """Position on an axis, with its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Linear scale, from the position `start` of the value `low` to the position `end` of the value `high`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of a value.

        >>> Scale(0, 10, 100, 0)(2.5), Scale(3, 3, 0, 100)(3)
        (75.0, 0.0)
        """
        if self.high == self.low:
            return float(self.start)
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 3)


def steps(high: float, count: int = 3, *, whole: bool = False) -> list[float]:
    """Return round values from 0 to at least `high`, in about `count` steps; integers if `whole`.

    >>> steps(7), steps(0.9), steps(0)
    ([0.0, 5.0, 10.0], [0.0, 0.5, 1.0], [0.0, 1.0])
    """
    if high <= 0:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(high / count))
    size *= next(factor for factor in (1, 2, 5, 10) if size * factor * count >= high)
    if whole:
        size = max(size, 1.0)
    return [round(size * number, 10) for number in range(math.ceil(high / size - 1e-9) + 1)]


_TIMES = (
    (timedelta(seconds=1), "%H:%M:%S"),
    (timedelta(seconds=5), "%H:%M:%S"),
    (timedelta(seconds=15), "%H:%M:%S"),
    (timedelta(minutes=1), "%H:%M"),
    (timedelta(minutes=5), "%H:%M"),
    (timedelta(minutes=15), "%H:%M"),
    (timedelta(hours=1), "%H:%M"),
    (timedelta(hours=3), "%d %b %H:%M"),
    (timedelta(hours=12), "%d %b %H:%M"),
    (timedelta(days=1), "%d %b"),
    (timedelta(days=7), "%d %b"),
    (timedelta(days=30), "%d %b %Y"),
    (timedelta(days=365), "%Y"),
)


def times(start: datetime, end: datetime, count: int = 6) -> list[Tick]:
    """Return round times between two, about `count` at most, with positions in percent.

    >>> [tick.label for tick in times(datetime(2024, 1, 1, 9, tzinfo=UTC), datetime(2024, 1, 1, 12, tzinfo=UTC))]
    ['09:00', '10:00', '11:00', '12:00']
    """
    step, pattern = next(((step, form) for step, form in _TIMES if (end - start) / step <= count), _TIMES[-1])
    scale = Scale(start.timestamp(), end.timestamp(), 0, 100)
    first = math.ceil(start.timestamp() / step.total_seconds())
    last = math.floor(end.timestamp() / step.total_seconds())
    return [
        Tick(scale(moment.timestamp()), moment.strftime(pattern))
        for number in range(first, last + 1)
        for moment in (datetime.fromtimestamp(number * step.total_seconds(), UTC),)
    ]


def lanes(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Return for each span the first lane where it overlaps no earlier one.

    >>> lanes([(0, 5), (1, 2), (3, 4), (5, 6)])
    [0, 1, 1, 0]
    """
    ends: list[float] = []
    found = []
    for start, end in spans:
        lane = next((number for number, busy in enumerate(ends) if busy <= start), len(ends))
        ends[lane : lane + 1] = [end]
        found.append(lane)
    return found
