"""Where boxes go that lie in frames, which may lie in frames: each frame is laid out by itself, and is then a box."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kilonova.server.page.geometry import Line, Port, Rectangle, Size, Way, joined, moved
from kilonova.server.page.placing import placed

Frames = tuple[str, ...]
"""The names of the frames around something, the outermost first."""

PADDING = 16.0
"""Pixels within a frame around what lies in it."""

HEADING = 26.0
"""Pixels more at the top, for its name."""

_FLAT, _LONG = 0.4, 4.0
"""How many times as wide as high a picture is at least and at most; else its frames are put in rows."""


@dataclass(frozen=True, slots=True)
class Nested:
    """Where boxes, frames and lines are.

    Attributes:
        width: of the whole, in pixels.
        height: of the whole.
        boxes: the boxes.
        frames: the frames, those around others first.
        ways: by where each line leads, from box to box.
    """

    width: float
    height: float
    boxes: Mapping[str, Rectangle]
    frames: Mapping[Frames, Rectangle]
    ways: Mapping[Line, Way]


def nested(
    sizes: Mapping[str, Size], frames: Mapping[str, Frames], lines: Iterable[Line], gap: float, within: Frames = ()
) -> Nested:
    """Place boxes and the frames around them.

    Args:
        sizes: the width and height of each box.
        frames: the frames around each box; none where it is left out.
        lines: the lines between boxes, none from a box to itself.
        gap: pixels between layers, at least.
        within: the frames around all of them.

    >>> found = nested({"a": (10, 10), "b": (10, 10)}, {"b": ("f",)}, [Line(Port("a", 5), Port("b", 5))], gap=8)
    >>> found.frames["f",].width, found.boxes["b"].x - found.boxes["a"].x
    (42.0, 34.0)
    """
    depth = len(within)
    child = {name: around[depth] if len(around := frames.get(name, ())) > depth else None for name in sizes}
    members: dict[str, dict[str, Size]] = {}
    for name, frame in child.items():
        if frame is not None:
            members.setdefault(frame, {})[name] = sizes[name]
    inside: dict[str, dict[Line, None]] = {frame: {} for frame in members}
    between: dict[Line, None] = {}
    for line in lines:
        start, end = line
        one, other = child[start.box] if start else None, child[end.box] if end else None
        if one is not None and one == other:
            inside[one][line] = None
            continue
        between[line] = None
        if one is not None:
            inside[one][Line(start, None)] = None
        if other is not None:
            inside[other][Line(None, end)] = None
    parts = {frame: nested(mine, frames, inside[frame], gap, (*within, frame)) for frame, mine in members.items()}
    outer: dict[str, Size] = {name: sizes[name] for name, frame in child.items() if frame is None}
    outer |= {
        _key(frame): (part.width + 2 * PADDING, part.height + 2 * PADDING + HEADING) for frame, part in parts.items()
    }

    def led(line: Line) -> Line:
        """A line between boxes as one between these boxes and the frames around the others."""
        start, end = line
        one, other = child[start.box] if start else None, child[end.box] if end else None
        return Line(
            start if one is None else Port(_key(one), PADDING + HEADING + parts[one].ways[Line(start, None)][-1][1]),
            end if other is None else Port(_key(other), PADDING + HEADING + parts[other].ways[Line(None, end)][0][1]),
        )

    coarse = {line: led(line) for line in between}
    found = placed(outer, coarse.values(), gap)
    if not within and not _FLAT < found.width / max(found.height, 1.0) < _LONG and len(parts) > 1:
        found = placed(outer, coarse.values(), gap, apart=True)
    boxes: dict[str, Rectangle] = {}
    shown: dict[Frames, Rectangle] = {}
    partly: dict[Line, Way] = {}
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
        partly |= {line: moved(way, left, top) for line, way in part.ways.items()}
    ways = {line: partly[line] for mine in inside.values() for line in mine if line.start and line.end}
    for line, way in coarse.items():
        start, end = line
        first = partly[Line(start, None)] if start and child[start.box] is not None else ()
        last = partly[Line(None, end)] if end and child[end.box] is not None else ()
        ways[line] = joined((*first, *found.ways[way], *last))
    return Nested(found.width, found.height, boxes, shown, ways)


def _key(frame: str) -> str:
    """The name by which a frame is placed, which no box has."""
    return f"\0{frame}"


def _moved(box: Rectangle, x: float, y: float) -> Rectangle:
    return Rectangle(box.x + x, box.y + y, box.width, box.height)
