"""Where the boxes of a graph go, from left to right, and by where its edges lead around them.

Layers and the order within them are found by a library; it knows nothing of sizes, so places are found here: each box
as near as possible to those that it is tied to, which is a least-squares problem with an order to keep, layer by layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from fast_sugiyama import from_edges

Point = tuple[float, float]
Edge = tuple[str, str]
Size = tuple[float, float]

_BETWEEN = 14.0
"""Pixels between boxes of one layer."""

_PASSAGE = 8.0
"""Pixels that an edge takes where it leads past boxes."""

_SWEEPS = 10
"""How often the layers are gone through, alternately from the left and from the right."""

_SHAPE = 1.8
"""How many times as wide as high parts that are not tied to each other are laid out together."""

_WIDEST = 40
"""How many parts are tried side by side at most."""

_LARGE = 1500
"""With how many edges crossings are no longer looked for so hard, because that takes seconds."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the boxes of a graph are.

    Attributes:
        width: of the whole, in pixels.
        height: of the whole.
        corners: the upper left corner of each box.
        bends: points through which edges lead on their way, two for each layer that they pass; without those that pass
            none.
    """

    width: float
    height: float
    corners: Mapping[str, Point]
    bends: Mapping[Edge, tuple[Point, ...]] = field(default_factory=dict)


def placed(sizes: Mapping[str, Size], edges: Iterable[Edge], gap: float) -> Placed:
    """Place boxes.

    Args:
        sizes: the width and height of each box, in pixels.
        edges: from which box to which, each once; none to itself. Where they form a cycle, some lead back.
        gap: pixels between layers.

    >>> two = placed({"a": (10, 10), "b": (10, 30)}, [("a", "b")], gap=5)
    >>> two.width, two.height, two.corners["b"]
    (25.0, 30.0, (15.0, 0.0))
    """
    tied = list(dict.fromkeys(edges))
    within = {name for edge in tied for name in edge}
    loose = [name for name in sizes if name not in within]
    back = _back(tied)
    forth = dict.fromkeys(edge[::-1] if edge in back else edge for edge in tied)
    parts = [_part(*_layered(part), sizes, gap) for part in _parts(forth)]
    parts += [Placed(*sizes[name], {name: (0.0, 0.0)}) for name in loose]
    found = _together(parts, gap)
    bends = found.bends
    turned = {edge: bends[edge[::-1]][::-1] for edge in tied if edge in back and edge[::-1] in bends}
    return replace(found, bends={edge: bends[edge] for edge in tied if edge in bends} | turned)


def _back(edges: Iterable[Edge]) -> set[Edge]:
    """The edges that lead back to where a walk has come from: without them there is no cycle.

    >>> _back([("a", "b"), ("b", "c"), ("c", "a")])
    {('c', 'a')}
    """
    follows: dict[str, list[str]] = {}
    for one, other in edges:
        follows.setdefault(one, []).append(other)
    found: set[Edge] = set()
    seen: set[str] = set()
    for root in follows:
        way = {root: iter(follows[root])} if root not in seen else {}
        while way:
            name = next(reversed(way))
            seen.add(name)
            end = next(way[name], None)
            if end is None:
                del way[name]
            elif end in way:
                found.add((name, end))
            elif end not in seen:
                way[end] = iter(follows.get(end, ()))
    return found


def _parts(edges: Iterable[Edge]) -> list[list[Edge]]:
    """The edges of each part of a graph that is not tied to the others.

    >>> _parts([("a", "b"), ("c", "d"), ("b", "e")])
    [[('a', 'b'), ('b', 'e')], [('c', 'd')]]
    """
    every = list(edges)
    above: dict[str, str] = {}

    def top(name: str) -> str:
        while above.setdefault(name, name) != name:
            above[name] = name = above[above[name]]
        return name

    for start, end in every:
        above[top(end)] = top(start)
    found: dict[str, list[Edge]] = {}
    for edge in every:
        found.setdefault(top(edge[0]), []).append(edge)
    return list(found.values())


Node = str | int
"""A box, or where an edge passes a layer."""


def _layered(edges: Sequence[Edge]) -> tuple[list[list[Node]], dict[Node, list[Node]]]:
    """The layers of a part of a graph, each in order, and what follows what, layer by layer.

    The library is given one part at a time, because where it is given several it uses the numbers of boxes of others
    for passages; and numbers instead of names, because it goes through a set of them.
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
    return [[each for _, each in sorted(layers[y], key=lambda pair: pair[0])] for y in top_first], follows


def _falls(layers: Mapping[float, Sequence[tuple[float, Node]]], follows: Mapping[Node, Sequence[Node]]) -> bool:
    """Whether what follows is in a layer of a smaller coordinate."""
    at = {node: y for y, nodes in layers.items() for _, node in nodes}
    return sum(at[end] - at[start] for start, ends in follows.items() for end in ends) < 0


def _part(
    layers: Sequence[Sequence[Node]], follows: Mapping[Node, Sequence[Node]], sizes: Mapping[str, Size], gap: float
) -> Placed:
    """Place the boxes of one part."""
    heights = {node: sizes[node][1] if isinstance(node, str) else _PASSAGE for layer in layers for node in layer}
    before: dict[Node, list[Node]] = {}
    for start, ends in follows.items():
        for end in ends:
            before.setdefault(end, []).append(start)
    centres: dict[Node, float] = {}
    for layer in layers:
        wanted = [_mean(before.get(node, ()), centres, index * 40.0) for index, node in enumerate(layer)]
        centres |= zip(layer, _kept_apart(wanted, [heights[node] for node in layer]), strict=True)
    for sweep in range(_SWEEPS):
        towards = (follows, before)[sweep % 2]
        for layer in list(layers)[:: -1 if sweep % 2 == 0 else 1]:
            wanted = [_mean(towards.get(node, ()), centres, centres[node]) for node in layer]
            centres |= zip(layer, _kept_apart(wanted, [heights[node] for node in layer]), strict=True)
    top = min(centres[node] - heights[node] / 2 for node in centres)
    lefts, x = [], 0.0
    for layer in layers:
        width = max((sizes[node][0] for node in layer if isinstance(node, str)), default=0.0)
        lefts.append((x, x + width))
        x += width + gap
    sides = {node: side for layer, side in zip(layers, lefts, strict=True) for node in layer}
    bends: dict[Edge, tuple[Point, ...]] = {}
    for start, ends in follows.items():
        if not isinstance(start, str):
            continue
        for end in ends:
            points: list[Point] = []
            while not isinstance(end, str):
                y = centres[end] - top
                points += ((sides[end][0], y), (sides[end][1], y))
                end = follows[end][0]
            if points:
                bends[start, end] = tuple(points)
    corners = {
        node: (sides[node][0], centres[node] - heights[node] / 2 - top) for node in centres if isinstance(node, str)
    }
    height = max(centres[node] + heights[node] / 2 - top for node in centres)
    return Placed(x - gap, height, corners, bends)


def _mean(others: Sequence[Node], centres: Mapping[Node, float], otherwise: float) -> float:
    return sum(centres[each] for each in others) / len(others) if others else otherwise


def _kept_apart(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """The centres nearest to those that are wanted, by least squares, for boxes one below the other.

    The pool-adjacent-violators algorithm: what would overlap goes together around its mean.

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


def _together(parts: Sequence[Placed], gap: float) -> Placed:
    """Put parts side by side in rows, the highest first, so that the whole has about the shape of a window."""
    ordered = sorted(parts, key=lambda part: -part.height)
    widths = list(accumulate(part.width + gap / 2 for part in ordered[:_WIDEST]))
    tries = [_in_rows(ordered, gap / 2, width) for width in widths] or [_in_rows(ordered, gap / 2, 0.0)]
    return min(tries, key=lambda found: abs(math.log((found.width or 1.0) / (found.height or 1.0) / _SHAPE)))


def _in_rows(parts: Sequence[Placed], space: float, widest: float) -> Placed:
    corners: dict[str, Point] = {}
    bends: dict[Edge, tuple[Point, ...]] = {}
    x = y = high = width = 0.0
    for part in parts:
        if x and x + part.width > widest:
            x, y, high = 0.0, y + high + space, 0.0
        corners |= {name: (left + x, top + y) for name, (left, top) in part.corners.items()}
        bends |= {edge: tuple((left + x, top + y) for left, top in points) for edge, points in part.bends.items()}
        x += part.width + space
        high, width = max(high, part.height), max(width, x - space)
    return Placed(width, y + high, corners, bends)
