"""Layered layout of the boxes of a connected graph, from left to right.

A library computes the layers and the order within them; it does not support sizes, so positions are computed here: each
box is as near as possible to the boxes that it is connected to, a least-squares problem with a fixed order, layer by
layer. No line passes behind a box: a line through a layer has a lane there, and a line back passes below all boxes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fast_sugiyama import from_edges

from kilonova.web.graph.geometry import Line, Path, Point, PortPosition, Size, aside, joined

Edge = tuple[str, str]

Node = str | int
"""A box, or the passage of a line through a layer."""

_BETWEEN = 14.0
"""Pixels between boxes of one layer."""

_PASSAGE = 8.0
"""Height in pixels of the passage of a line between boxes."""

_SWEEPS = 10
"""Number of passes over the layers, alternately from the left and from the right."""

_GENTLE, _WIDEST = 0.35, 2.5
"""Horizontal pixels per vertical pixel of a line, and the maximum width as a multiple of the gap."""

_LARGE = 1500
"""Number of edges from which crossings are minimized less thoroughly, because that takes seconds."""


@dataclass(frozen=True, slots=True)
class LayerItem:
    """Placed boxes of a graph, in pixels.

    Attributes:
        corners: the upper left corner of each box.
        paths: the points of each line; lines from or to other boxes extend to the left or right edge.
    """

    width: float
    height: float
    corners: Mapping[str, Point]
    paths: Mapping[Line, Path]


def single_layer(name: str, size: Size, lines: Iterable[Line]) -> LayerItem:
    """Return a box that is connected to no other, with the lines that leave or reach it."""
    paths = {line: ((size[0], line.start.down),) for line in lines if line.start and line.start.box == name}
    paths |= {line: ((0.0, line.end.down),) for line in lines if line.end and line.end.box == name}
    return LayerItem(*size, {name: (0.0, 0.0)}, paths)


def assign_layers(edges: Sequence[Edge], sizes: Mapping[str, Size], lines: Sequence[Line], gap: float) -> LayerItem:
    """Place the boxes of one part.

    Args:
        edges: pairs of boxes, from and to; they are acyclic, and connect all boxes.
        sizes: the width and height of each box, in pixels.
        lines: the lines that start or end at these boxes.
        gap: minimum pixels between layers.
    """
    layers, follows = _ordered(edges)
    at = {node: index for index, layer in enumerate(layers) for node in layer}
    heights = {node: sizes[node][1] if isinstance(node, str) else _PASSAGE for node in at}
    bends = {(start, end): path for start in at if isinstance(start, str) for end, path in _passing(start, follows)}
    centres = _settled(layers, follows, heights)
    leaving = [line.start for line in lines if line.start and line.start.box in at and not _within(line.end, at)]
    entering = [line.end for line in lines if line.end and line.end.box in at and not _within(line.start, at)]
    ports = [*((port, True) for port in leaving), *((port, False) for port in entering)]
    lanes = _laned(layers, follows, heights, centres, ports)
    if lanes:
        centres = _settled(layers, follows, heights)
    turning = {line: number for number, line in enumerate(line for line in lines if _back(line, at))}
    margin = gap / 4 if turning else 0.0
    top = min(centres[node] - heights[node] / 2 for node in centres)
    low = max(centres[node] + heights[node] / 2 for node in centres) - top
    sides = _sides(layers, follows, centres, sizes, gap, margin)
    corners = {
        node: (sides[node][0], centres[node] - heights[node] / 2 - top) for node in centres if isinstance(node, str)
    }
    width, height = max(right for _, right in sides.values()) + margin, low + margin
    levels = {node: centre - top for node, centre in centres.items()}
    placed = _Placed(sizes, corners, sides, levels, bends, lanes, turning, margin, width, low)
    return LayerItem(width, height, corners, {line: placed.path(line) for line in lines})


def _sides(
    layers: Sequence[Sequence[Node]],
    follows: Mapping[Node, Sequence[Node]],
    centres: Mapping[Node, float],
    sizes: Mapping[str, Size],
    gap: float,
    margin: float,
) -> dict[Node, tuple[float, float]]:
    """Return the left and right side of each node's layer."""
    sides: dict[Node, tuple[float, float]] = {}
    x = margin
    for layer in layers:
        right = x + max((sizes[node][0] for node in layer if isinstance(node, str)), default=0.0)
        sides |= dict.fromkeys(layer, (x, right))
        steep = max((abs(centres[node] - centres[each]) for node in layer for each in follows.get(node, ())), default=0)
        x = right + max(gap, min(_GENTLE * steep, _WIDEST * gap))
    return sides


@dataclass(frozen=True, slots=True)
class _Placed:
    """Placed boxes and passages of one part.

    Attributes:
        sides: the left and right side of each node's layer.
        levels: the vertical centre of each node.
        bends: the passages of each edge through layers.
        lanes: the passages of each line that leaves (True) or enters (False) the part at a port.
        turning: the lines that lead back to an earlier layer, with their numbers.
        margin: the space for these beside and below the boxes.
        low: the lower end of the boxes.
    """

    sizes: Mapping[str, Size]
    corners: Mapping[str, Point]
    sides: Mapping[Node, tuple[float, float]]
    levels: Mapping[Node, float]
    bends: Mapping[tuple[str, str], Sequence[Node]]
    lanes: Mapping[tuple[PortPosition, bool], Sequence[Node]]
    turning: Mapping[Line, int]
    margin: float
    width: float
    low: float

    def path(self, line: Line) -> Path:
        """Return the points of a line, as far as it is in the part."""
        start = line.start if line.start and line.start.box in self.corners else None
        end = line.end if line.end and line.end.box in self.corners else None
        points: list[Point] = []
        if start:
            left, y = self.corners[start.box]
            points += ((left + self.sizes[start.box][0], y + start.down), (self.sides[start.box][1], y + start.down))
        if start and end and line in self.turning:
            far = aside(self.turning[line], self.margin)
            right, left = self.sides[start.box][1] + far, self.sides[end.box][0] - far
            points += ((right, points[-1][1]), (right, self.low + far), (left, self.low + far))
            points.append((left, self.corners[end.box][1] + end.down))
        elif start and end:
            points += self._past(self.bends[start.box, end.box])
        elif start:
            points += self._past(self.lanes[start, True])
            points.append((self.width, points[-1][1]))
        elif end:
            points += self._past(self.lanes[end, False])
            points.insert(0, (0.0, points[0][1] if points else self.corners[end.box][1] + end.down))
        if end:
            left, y = self.corners[end.box]
            points.append((left, y + end.down))
        return joined(points)

    def _past(self, nodes: Iterable[Node]) -> Iterable[Point]:
        return ((side, self.levels[node]) for node in nodes for side in self.sides[node])


def _laned(
    layers: Sequence[list[Node]],
    follows: dict[Node, list[Node]],
    heights: dict[Node, float],
    centres: dict[Node, float],
    ports: Iterable[tuple[PortPosition, bool]],
) -> dict[tuple[PortPosition, bool], list[Node]]:
    """Add lanes to the layers that lines pass which leave or enter the part.

    Lanes, as level as their boxes, are added to all arguments but `ports`, which are the starts of the lines that
    leave, with True, and the ends of those that enter, with False. Returned are the passages of each port's line
    through the layers, from left to right.
    """
    at = {node: index for index, layer in enumerate(layers) for node in layer}
    lanes: dict[tuple[PortPosition, bool], list[Node]] = {}
    for port, out in dict.fromkeys(ports):
        first, last = (at[port.box] + 1, len(layers)) if out else (0, at[port.box])
        lane: list[Node] = [-len(heights) - 1 - number for number in range(last - first)]
        for index, node in zip(range(first, last), lane, strict=True):
            centres[node], heights[node] = centres[port.box], _PASSAGE
            layers[index].insert(bisect_left(layers[index], centres[port.box], key=centres.__getitem__), node)
        for one, other in pairwise([port.box, *lane] if out else [*lane, port.box]):
            follows.setdefault(one, []).append(other)
        lanes[port, out] = lane
    return lanes


def _within(port: PortPosition | None, at: Mapping[Node, int]) -> bool:
    return port is not None and port.box in at


def _back(line: Line, at: Mapping[Node, int]) -> bool:
    """Return whether a line leads back to an earlier layer."""
    start, end = line
    return bool(start and end and start.box in at and end.box in at and at[start.box] >= at[end.box])


def _passing(start: str, follows: Mapping[Node, Sequence[Node]]) -> Iterable[tuple[str, list[Node]]]:
    """Yield the successors of a box, each with the passages of the edge to it through layers."""
    for end in follows.get(start, ()):
        nodes: list[Node] = []
        while not isinstance(end, str):
            nodes.append(end)
            end = follows[end][0]
        yield end, nodes


def _ordered(edges: Sequence[Edge]) -> tuple[list[list[Node]], dict[Node, list[Node]]]:
    """Return the layers of a part of a graph, each in order, and the successors of each node, layer by layer.

    The library receives one part at a time, because with several it uses the numbers of other parts' boxes for
    passages; and numbers instead of names, because it iterates over a set of them.
    """
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    numbers = {name: number for number, name in enumerate(names)}
    hard = len(edges) <= _LARGE
    [(positions, _, _, tied)] = from_edges(
        [(numbers[start], numbers[end]) for start, end in edges],
        dummy_vertices=True,
        vertex_spacing=1,
        crossing_minimization="barycenter" if hard else "median",
        transpose=hard,
    )

    def node(number: str | int) -> Node:
        return names[int(number)] if int(number) < len(names) else int(number)

    layers: dict[float, list[tuple[float, Node]]] = {}
    for number, (x, y) in positions:
        layers.setdefault(y, []).append((x, node(number)))
    follows: dict[Node, list[Node]] = {}
    for start, end in tied or ():
        follows.setdefault(node(start), []).append(node(end))
    top_first = sorted(layers, reverse=_falls(layers, follows))
    ordered = [[each for _, each in sorted(layers[y], key=lambda pair: pair[0])] for y in top_first]
    _uncross(ordered, follows)
    return ordered, follows


def _uncross(layers: Sequence[list[Node]], follows: Mapping[Node, Sequence[Node]]) -> None:
    """Swap neighbours in a layer while that reduces the number of crossings: the library stops earlier."""
    before = _turned(follows)
    at = {node: index for layer in layers for index, node in enumerate(layer)}
    for _ in range(_SWEEPS):
        swapped = False
        for layer in layers:
            for index in range(len(layer) - 1):
                one, other = layer[index : index + 2]
                saved = 0
                for ties in (follows, before):
                    far = sorted(at[node] for node in ties.get(other, ()))
                    for node in ties.get(one, ()):
                        saved += bisect_left(far, at[node]) + bisect_right(far, at[node]) - len(far)
                if saved > 0:
                    layer[index], layer[index + 1] = other, one
                    at[other], at[one] = index, index + 1
                    swapped = True
        if not swapped:
            return


def _turned(follows: Mapping[Node, Sequence[Node]]) -> dict[Node, list[Node]]:
    """Return the predecessors of each node."""
    before: dict[Node, list[Node]] = {}
    for start, ends in follows.items():
        for end in ends:
            before.setdefault(end, []).append(start)
    return before


def _falls(layers: Mapping[float, Sequence[tuple[float, Node]]], follows: Mapping[Node, Sequence[Node]]) -> bool:
    """Return whether successors are in a layer with a smaller coordinate."""
    at = {node: y for y, nodes in layers.items() for _, node in nodes}
    return sum(at[end] - at[start] for start, ends in follows.items() for end in ends) < 0


def _settled(
    layers: Sequence[Sequence[Node]], follows: Mapping[Node, Sequence[Node]], heights: Mapping[Node, float]
) -> dict[Node, float]:
    """Return the vertical centre of each box and passage."""
    before = _turned(follows)
    centres: dict[Node, float] = {}
    for layer in layers:
        wanted = [_mean(before.get(node, ()), centres, index * 40.0) for index, node in enumerate(layer)]
        centres |= zip(layer, _kept_apart(wanted, [heights[node] for node in layer]), strict=True)
    for sweep in range(_SWEEPS):
        towards = (follows, before)[sweep % 2]
        for layer in list(layers)[:: -1 if sweep % 2 == 0 else 1]:
            wanted = [_mean(towards.get(node, ()), centres, centres[node]) for node in layer]
            centres |= zip(layer, _kept_apart(wanted, [heights[node] for node in layer]), strict=True)
    return centres


def _mean(others: Sequence[Node], centres: Mapping[Node, float], otherwise: float) -> float:
    return sum(centres[each] for each in others) / len(others) if others else otherwise


def _kept_apart(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Return the centres nearest to the wanted ones, by least squares, for boxes one below the other.

    The pool-adjacent-violators algorithm: overlapping boxes are grouped around their mean.

    >>> _kept_apart([0.0, 0.0], [10.0, 10.0])
    [-12.0, 12.0]
    """
    offsets, below = [0.0], 0.0
    for one, other in pairwise(heights):
        below += (one + other) / 2 + _BETWEEN
        offsets.append(below)
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        mean, count = want - offset, 1
        while pools and pools[-1][0] > mean:
            other, many = pools.pop()
            mean, count = (mean * count + other * many) / (count + many), count + many
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]
