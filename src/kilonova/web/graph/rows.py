"""Arrangement of the parts of a graph in rows, and routing of lines around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kilonova.web.graph.geometry import Line, Path, Point, aside, joined, moved
from kilonova.web.graph.layers import LayerItem

_SHAPE = 1.8
"""Target ratio of width to height for the arrangement of unconnected parts."""

_WIDEST = 40
"""Maximum number of parts side by side."""


@dataclass(frozen=True, slots=True)
class _Spot:
    """Part in its row: its number there from 0, whether it is the last one, and its upper left corner."""

    part: LayerItem
    row: int
    index: int
    last: bool
    x: float
    y: float

    def path(self, line: Line) -> Path:
        """Return the points of a line within the part."""
        return moved(self.part.paths[line], self.x, self.y)


def side_by_side(parts: Sequence[LayerItem], lines: Iterable[Line], space: float) -> LayerItem:
    """Arrange parts in rows, the highest first, so that the whole has about the shape of a window.

    Args:
        parts: the parts; each has the paths of the lines that start or end at its boxes.
        lines: all lines.
        space: pixels between parts.
    """
    ordered = sorted(parts, key=lambda part: -part.height)
    widths = list(accumulate(part.width + space for part in ordered[:_WIDEST]))
    tries = [_in_rows(ordered, space, width) for width in widths] or [()]
    spots = min(tries, key=lambda found: abs(math.log(_ratio(found) / _SHAPE)))
    return _Rows(spots, space / 2).whole(list(lines))


def _in_rows(parts: Sequence[LayerItem], space: float, widest: float) -> tuple[_Spot, ...]:
    rows: list[list[tuple[LayerItem, float, float]]] = [[]]
    x = y = 0.0
    for part in parts:
        if rows[-1] and x + part.width > widest:
            x, y = 0.0, y + max(each.height for each, _, _ in rows[-1]) + space
            rows.append([])
        rows[-1].append((part, x, y))
        x += part.width + space
    return tuple(
        _Spot(part, number, index, index == len(row) - 1, x, y)
        for number, row in enumerate(rows)
        for index, (part, x, y) in enumerate(row)
    )


def _ratio(spots: Sequence[_Spot]) -> float:
    width, height = _extent(spots)
    return (width or 1.0) / (height or 1.0)


def _extent(spots: Sequence[_Spot]) -> tuple[float, float]:
    width = max((each.x + each.part.width for each in spots), default=0.0)
    return width, max((each.y + each.part.height for each in spots), default=0.0)


class _Rows:
    """Router of lines through the space between rows, between the parts of each, and around all of them.

    Args:
        spots: the positions of the parts.
        margin: half of the pixels between parts: lines keep to the half that is nearer to their start or end.
    """

    def __init__(self, spots: Sequence[_Spot], margin: float) -> None:
        self._spots = spots
        self._home = {name: each for each in spots for name in each.part.corners}
        self._margin = margin
        self._width, self._height = _extent(spots)
        self._tops: dict[int, float] = {each.row: each.y for each in spots}
        self._lows: dict[int, float] = {}
        for each in spots:
            self._lows[each.row] = max(self._lows.get(each.row, 0.0), each.y + each.part.height)

    def whole(self, lines: Sequence[Line]) -> LayerItem:
        """Return all parts as one, with the paths of all lines."""
        turns = (line for line in lines if self._turns(*self._ends(line)))
        turning = {line: number for number, line in enumerate(turns)}
        margin = self._margin if turning else 0.0
        left, right = -margin, self._width + margin
        paths: dict[Line, Path] = {}
        for line in lines:
            start, end = self._ends(line)
            points = [*start.path(line)] if start else []
            if line in turning:
                points += self._around(start, end, line, aside(turning[line], self._margin), left)
            if end and end is not start:
                points += end.path(line)
            if end is None:
                points.append((right, points[-1][1]))
            if start is None:
                points.insert(0, (left, points[0][1]))
            paths[line] = joined(points)
        corners: Mapping[str, Point] = {
            name: (x + each.x + margin, y + each.y + margin)
            for each in self._spots
            for name, (x, y) in each.part.corners.items()
        }
        return LayerItem(
            self._width + 2 * margin,
            self._height + 2 * margin,
            corners,
            {line: moved(path, margin, margin) for line, path in paths.items()},
        )

    def _ends(self, line: Line) -> tuple[_Spot | None, _Spot | None]:
        start, end = line
        return self._home[start.box] if start else None, self._home[end.box] if end else None

    def _turns(self, start: _Spot | None, end: _Spot | None) -> bool:
        """Return whether the path between two parts, or to or from outside, is not straight."""
        if start is None:
            return end is not None and end.index > 0
        return not start.last if end is None else start is not end

    def _around(self, start: _Spot | None, end: _Spot | None, line: Line, far: float, left: float) -> list[Point]:
        """Return the corners of a path from the right edge of one part to the left edge of another."""
        some = start or end
        assert some
        one, other = (start or some).row, (end or some).row
        down = one <= other
        first = self._lows[one] + far if down else self._tops[one] - far
        second = first if abs(one - other) < 2 else self._tops[other] - far if down else self._lows[other] + far
        points: list[Point] = []
        if start:
            out = start.x + start.part.width + far
            level = start.path(line)[-1][1]
            if end and start.row == end.row and end.index == start.index + 1:
                return [(out, level), (out, end.path(line)[0][1])]
            points += ((out, level), (out, first))
        if second != first:
            points += ((left + far, first), (left + far, second))
        if end:
            into = end.x - far
            points += ((into, second), (into, end.path(line)[0][1]))
        return points
