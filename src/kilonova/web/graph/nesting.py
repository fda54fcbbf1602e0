"""Layout of boxes in nested frames: each frame is laid out separately, and is then treated as a box."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kilonova.web.graph.geometry import Line, Path, PortPosition, Rectangle, Size, joined, moved
from kilonova.web.graph.placement import place_units

Frames = tuple[str, ...]
"""The names of the frames around an element, the outermost first."""

PADDING = 16.0
"""Pixels between a frame and its content."""

HEADING = 26.0
"""Additional pixels at the top, for the frame's name."""

_FLAT, _LONG = 0.4, 4.0
"""Minimum and maximum ratio of width to height of a drawing; outside of it, the frames are put in rows."""


@dataclass(frozen=True, slots=True)
class NestedUnits:
    """Positions of boxes, of frames (outer ones first), and of the points of each line, from box to box."""

    width: float
    height: float
    boxes: Mapping[str, Rectangle]
    frames: Mapping[Frames, Rectangle]
    paths: Mapping[Line, Path]


def nest_workflowettes(
    sizes: Mapping[str, Size], frames: Mapping[str, Frames], lines: Iterable[Line], gap: float, within: Frames = ()
) -> NestedUnits:
    """Place boxes and the frames around them.

    Args:
        sizes: the width and height of each box.
        frames: the frames around each box; none if it is missing.
        lines: the lines between boxes, none from a box to itself.
        gap: minimum pixels between layers.
        within: the frames around all of them.

    >>> line = Line(PortPosition("a", 5), PortPosition("b", 5))
    >>> found = nest_workflowettes({"a": (10, 10), "b": (10, 10)}, {"b": ("f",)}, [line], gap=8)
    >>> found.frames["f",].width, found.boxes["b"].x - found.boxes["a"].x
    (42.0, 34.0)
    """
    depth = len(within)
    child = {name: around[depth] if len(around := frames.get(name, ())) > depth else None for name in sizes}
    members: dict[str, dict[str, Size]] = {}
    for name, frame in child.items():
        if frame is not None:
            members.setdefault(frame, {})[name] = sizes[name]
    inside, between = _divided(lines, child)
    parts = {
        frame: nest_workflowettes(mine, frames, inside.get(frame, ()), gap, (*within, frame))
        for frame, mine in members.items()
    }
    outer: dict[str, Size] = {name: sizes[name] for name, frame in child.items() if frame is None}
    outer |= {_key(frame): _framed(part) for frame, part in parts.items()}
    coarse = {line: _between_frames(line, child, parts) for line in between}
    found = place_units(outer, coarse.values(), gap)
    if not within and not _FLAT < found.width / max(found.height, 1.0) < _LONG and len(parts) > 1:
        found = place_units(outer, coarse.values(), gap, apart=True)
    boxes: dict[str, Rectangle] = {}
    shown: dict[Frames, Rectangle] = {}
    partly: dict[Line, Path] = {}
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
        partly |= {line: moved(path, left, top) for line, path in part.paths.items()}
    paths = {line: path for line, path in partly.items() if line.start and line.end}
    for line, path in coarse.items():
        first = partly[Line(line.start, None)] if _frame(line.start, child) is not None else ()
        last = partly[Line(None, line.end)] if _frame(line.end, child) is not None else ()
        paths[line] = joined((*first, *found.paths[path], *last))
    return NestedUnits(found.width, found.height, boxes, shown, paths)


def _frame(port: PortPosition | None, child: Mapping[str, str | None]) -> str | None:
    """Return the frame around the box of a port; None if it is in none."""
    return child[port.box] if port else None


def _divided(
    lines: Iterable[Line], child: Mapping[str, str | None]
) -> tuple[dict[str, dict[Line, None]], dict[Line, None]]:
    """Return the lines inside of each frame, up to its edge where they leave or enter it, and those between frames."""
    inside: dict[str, dict[Line, None]] = {}
    between: dict[Line, None] = {}
    for line in lines:
        one, other = _frame(line.start, child), _frame(line.end, child)
        if one is not None and one == other:
            inside.setdefault(one, {})[line] = None
            continue
        between[line] = None
        if one is not None:
            inside.setdefault(one, {})[Line(line.start, None)] = None
        if other is not None:
            inside.setdefault(other, {})[Line(None, line.end)] = None
    return inside, between


def _between_frames(line: Line, child: Mapping[str, str | None], parts: Mapping[str, NestedUnits]) -> Line:
    """Map a line between boxes to one between the boxes outside of frames, and the frames around the others."""
    start, end = line
    if (one := _frame(start, child)) is not None:
        start = PortPosition(_key(one), PADDING + HEADING + parts[one].paths[Line(start, None)][-1][1])
    if (other := _frame(end, child)) is not None:
        end = PortPosition(_key(other), PADDING + HEADING + parts[other].paths[Line(None, end)][0][1])
    return Line(start, end)


def _framed(part: NestedUnits) -> Size:
    return part.width + 2 * PADDING, part.height + 2 * PADDING + HEADING


def _key(frame: str) -> str:
    """Return the name under which a frame is placed; no box has it."""
    return f"\0{frame}"


def _moved(box: Rectangle, x: float, y: float) -> Rectangle:
    return Rectangle(box.x + x, box.y + y, box.width, box.height)
