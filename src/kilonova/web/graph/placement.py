"""Placement of the boxes of a graph, from left to right, and routing of lines between them: never behind a box."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kilonova.web.graph.geometry import Line, Size
from kilonova.web.graph.layers import Edge, LayerItem, assign_layers, single_layer
from kilonova.web.graph.rows import side_by_side


def place_units(sizes: Mapping[str, Size], lines: Iterable[Line], gap: float, *, apart: bool = False) -> LayerItem:
    """Place boxes, and route lines between them.

    Args:
        sizes: the width and height of each box, in pixels.
        lines: the lines, none from a box to itself. If they form a cycle, some lead back.
        gap: minimum pixels between layers.
        apart: whether to place each box separately, as if no line connected it to others.

    >>> from kilonova.web.graph.geometry import PortPosition
    >>> two = place_units({"a": (10, 10), "b": (10, 30)}, [Line(PortPosition("a", 5), PortPosition("b", 15))], gap=8)
    >>> two.width, two.height, two.corners["b"]
    (28.0, 30.0, (18.0, 0.0))
    """
    every = list(dict.fromkeys(lines))
    tied = dict.fromkeys((one.box, other.box) for one, other in every if one and other and not apart)
    back = _back(tied)
    groups = _parts(edge for edge in tied if edge not in back)
    home = {name: number for number, group in enumerate(groups) for edge in group for name in edge}
    mine: list[dict[Line, None]] = [{} for _ in groups]
    loose: dict[str, dict[Line, None]] = {name: {} for name in sizes if name not in home}
    for line in every:
        for port in line:
            if port is not None:
                (mine[home[port.box]] if port.box in home else loose[port.box])[line] = None
    parts = [assign_layers(group, sizes, list(own), gap) for group, own in zip(groups, mine, strict=True)]
    parts += [single_layer(name, sizes[name], own) for name, own in loose.items()]
    return side_by_side(parts, every, gap / 2)


def _back(edges: Iterable[Edge]) -> set[Edge]:
    """Return the back edges of a depth-first search: without them the graph is acyclic.

    >>> _back([("a", "b"), ("b", "c"), ("c", "a")])
    {('c', 'a')}
    """
    follows: dict[str, list[str]] = {}
    for one, other in edges:
        follows.setdefault(one, []).append(other)
    found: set[Edge] = set()
    seen: set[str] = set()
    for root in follows:
        path = {root: iter(follows[root])} if root not in seen else {}
        while path:
            name = next(reversed(path))
            seen.add(name)
            end = next(path[name], None)
            if end is None:
                del path[name]
            elif end in path:
                found.add((name, end))
            elif end not in seen:
                path[end] = iter(follows.get(end, ()))
    return found


def _parts(edges: Iterable[Edge]) -> list[list[Edge]]:
    """Return the edges of each connected component of a graph.

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
