"""Boxes, and lines between them, before they have places and afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

Point = tuple[float, float]
Size = tuple[float, float]
Way = tuple[Point, ...]
"""The points through which a line leads."""

_BESIDE = 5
"""How many lines lie beside each other before one lies on another."""


class Port(NamedTuple):
    """Where a line meets a box, so many pixels below its upper edge."""

    box: str
    down: float


class Line(NamedTuple):
    """A line from the right edge of a box to the left edge of another.

    Where it has no start or no end it comes from the left of all boxes, or leads to their right.
    """

    start: Port | None
    end: Port | None


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A place and a size, in pixels."""

    x: float
    y: float
    width: float
    height: float


def moved(way: Iterable[Point], x: float, y: float) -> Way:
    """A way somewhere else."""
    return tuple((a + x, b + y) for a, b in way)


def aside(number: int, room: float) -> float:
    """How far from an edge a line keeps that goes along it, where several do: each has some of the room for itself.

    >>> [aside(number, 24) for number in range(6)]
    [4.0, 8.0, 12.0, 16.0, 20.0, 4.0]
    """
    return room * (number % _BESIDE + 1) / (_BESIDE + 1)


def joined(points: Iterable[Point]) -> Way:
    """A way without points that come twice in a row.

    >>> joined([(0, 0), (0, 0), (1, 0)])
    ((0, 0), (1, 0))
    """
    found: list[Point] = []
    for point in points:
        if not found or found[-1] != point:
            found.append(point)
    return tuple(found)
