"""Where the boxes of a graph go, from left to right, and by where its edges lead around them.

Layers and the order within them are found by a library; it knows nothing of sizes, so places are found here: each box
as near as possible to those that it is tied to, which is a least-squares problem with an order to keep, layer by layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

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

_SHAPE = 1.7
"""How many times as wide as high parts that are not tied to each other are laid out together."""

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
    parts = [_part(layers, follows, sizes, gap) for layers, follows in _layered(tied)]
    parts += [Placed(*sizes[name], {name: (0.0, 0.0)}) for name in loose]
    return _together(parts, gap)


Node = str | int
"""A box, or where an edge passes a layer."""


def _layered(edges: Sequence[Edge]) -> list[tuple[list[list[Node]], dict[Node, list[Node]]]]:
    """For each part of a graph its layers, each in order, and what follows what, layer by layer."""
    if not edges:
        return []
    hard = len(edges) <= _LARGE
    found = from_edges(
        edges,
        dummy_vertices=True,
        vertex_spacing=1,
        crossing_minimization="barycenter" if hard else "median",
        transpose=hard,
    )
    parts = []
    for number, (positions, _, _, tied) in enumerate(found):
        layers: dict[float, list[tuple[float, Node]]] = {}
        for name, (x, y) in positions:
            node = name if isinstance(name, str) else (number << 32) + int(name)
            layers.setdefault(y, []).append((x, node))
        follows: dict[Node, list[Node]] = {}
        for start, end in tied or ():
            one = start if isinstance(start, str) else (number << 32) + int(start)
            other = end if isinstance(end, str) else (number << 32) + int(end)
            follows.setdefault(one, []).append(other)
        top_first = sorted(layers, reverse=_falls(layers, follows))
        parts.append(([[node for _, node in sorted(layers[y], key=lambda each: each[0])] for y in top_first], follows))
    return parts


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
    """Put parts side by side in rows, the highest first."""
    space = gap / 2
    area = sum((part.width + space) * (part.height + space) for part in parts)
    widest = max([math.sqrt(area * _SHAPE), *(part.width for part in parts)], default=0.0)
    corners: dict[str, Point] = {}
    bends: dict[Edge, tuple[Point, ...]] = {}
    x = y = high = width = 0.0
    for part in sorted(parts, key=lambda each: -each.height):
        if x and x + part.width > widest:
            x, y, high = 0.0, y + high + space, 0.0
        corners |= {name: (left + x, top + y) for name, (left, top) in part.corners.items()}
        bends |= {edge: tuple((left + x, top + y) for left, top in points) for edge, points in part.bends.items()}
        x += part.width + space
        high, width = max(high, part.height), max(width, x - space)
    return Placed(width, y + high, corners, bends)
