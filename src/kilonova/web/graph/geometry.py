"""Boxes, and lines between them, before and after placement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

Point = tuple[float, float]
Size = tuple[float, float]
Path = tuple[Point, ...]
"""The points of a line."""

_BESIDE = 5
"""Number of parallel lines before one overlaps another."""


class PortPosition(NamedTuple):
    """Position where a line meets a box, in pixels below its upper edge."""

    box: str
    down: float


class Line(NamedTuple):
    """Line from the right edge of a box to the left edge of another.

    Without a start it comes from the left of all boxes, without an end it leads to their right.
    """

    start: PortPosition | None
    end: PortPosition | None


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Position and size, in pixels."""

    x: float
    y: float
    width: float
    height: float


def moved(path: Iterable[Point], x: float, y: float) -> Path:
    """Translate a path."""
    return tuple((a + x, b + y) for a, b in path)


def aside(number: int, room: float) -> float:
    """Return the distance of the numbered line from the edge that it runs along; parallel lines divide the room.

    >>> [aside(number, 24) for number in range(6)]
    [4.0, 8.0, 12.0, 16.0, 20.0, 4.0]
    """
    return room * (number % _BESIDE + 1) / (_BESIDE + 1)


def joined(points: Iterable[Point]) -> Path:
    """Return a path without consecutive duplicate points.

    >>> joined([(0, 0), (0, 0), (1, 0)])
    ((0, 0), (1, 0))
    """
    found: list[Point] = []
    for point in points:
        if not found or found[-1] != point:
            found.append(point)
    return tuple(found)
