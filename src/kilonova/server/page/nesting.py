"""Where boxes go that lie in frames, which may lie in frames: each frame is laid out by itself, and is then a box."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kilonova.server.page.placing import Edge, Point, Size, placed

Frames = tuple[str, ...]
"""The names of the frames around something, the outermost first."""

PADDING = 16.0
"""Pixels within a frame around what lies in it."""

HEADING = 26.0
"""Pixels more at the top, for its name."""

_FLAT, _LONG = 0.4, 4.0
"""How many times as wide as high a picture is at least and at most; else its frames are put in rows."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A place and a size, in pixels."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Nested:
    """Where boxes and frames are.

    Attributes:
        width: of the whole, in pixels.
        height: of the whole.
        boxes: the boxes.
        frames: the frames, those around others first.
        bends: see `kilonova.server.page.placing.Placed`.
    """

    width: float
    height: float
    boxes: Mapping[str, Rectangle]
    frames: Mapping[Frames, Rectangle]
    bends: Mapping[Edge, tuple[Point, ...]]


def nested(
    sizes: Mapping[str, Size], frames: Mapping[str, Frames], edges: Iterable[Edge], gap: float, within: Frames = ()
) -> Nested:
    """Place boxes and the frames around them.

    Args:
        sizes: the width and height of each box.
        frames: the frames around each box; none where it is left out.
        edges: from which box to which; those to itself are left out.
        gap: pixels between layers.
        within: the frames around all of them.

    >>> found = nested({"a": (10, 10), "b": (10, 10)}, {"b": ("f",)}, [("a", "b")], gap=5)
    >>> found.frames["f",].width, found.boxes["b"].x - found.boxes["a"].x
    (42.0, 31.0)
    """
    depth = len(within)
    child = {name: around[depth] if len(around := frames.get(name, ())) > depth else None for name in sizes}
    members: dict[str, dict[str, Size]] = {}
    for name, frame in child.items():
        if frame is not None:
            members.setdefault(frame, {})[name] = sizes[name]
    tied = [(start, end) for start, end in edges if start != end and start in sizes and end in sizes]
    inside: dict[str, list[Edge]] = {}
    between: dict[Edge, list[Edge]] = {}
    for start, end in tied:
        one, other = child[start], child[end]
        if one is not None and one == other:
            inside.setdefault(one, []).append((start, end))
        else:
            ends = (start if one is None else _key(one), end if other is None else _key(other))
            between.setdefault(ends, []).append((start, end))
    parts = {
        frame: nested(mine, frames, inside.get(frame, ()), gap, (*within, frame)) for frame, mine in members.items()
    }
    outer: dict[str, Size] = {name: sizes[name] for name, frame in child.items() if frame is None}
    outer |= {
        _key(frame): (part.width + 2 * PADDING, part.height + 2 * PADDING + HEADING) for frame, part in parts.items()
    }
    found = placed(outer, between, gap)
    if not within and not _FLAT < found.width / max(found.height, 1.0) < _LONG and len(parts) > 1:
        found = placed(outer, (), gap)
    boxes: dict[str, Rectangle] = {}
    shown: dict[Frames, Rectangle] = {}
    bends = {edge: points for ends, points in found.bends.items() for edge in between[ends]}
    for name, (x, y) in found.corners.items():
        if name in sizes:
            boxes[name] = Rectangle(x, y, *sizes[name])
            continue
        frame = name[1:]
        part = parts[frame]
        shown[(*within, frame)] = Rectangle(x, y, *outer[name])
        left, top = x + PADDING, y + PADDING + HEADING
        boxes |= {each: _moved(box, left, top) for each, box in part.boxes.items()}
        shown |= {each: _moved(box, left, top) for each, box in part.frames.items()}
        bends |= {edge: tuple((a + left, b + top) for a, b in points) for edge, points in part.bends.items()}
    return Nested(found.width, found.height, boxes, shown, bends)


def _key(frame: str) -> str:
    """The name by which a frame is placed, which no box has."""
    return f"\0{frame}"


def _moved(box: Rectangle, x: float, y: float) -> Rectangle:
    return Rectangle(box.x + x, box.y + y, box.width, box.height)
