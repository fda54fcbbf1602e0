"""Drawing of the workflow: channels as cylinders, tasks as boxes, modes on the edges, workflowettes as frames.

A task and the channels that only it writes are placed together; a channel of several writers is placed separately. A
frame is drawn around the tasks of a workflowette, and around each workflow if there are several.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, takewhile

from kilonova.catalog.read_models.overview import InputSummary, Overview, TaskSummary
from kilonova.web.graph.geometry import Line, Path, Point, PortPosition, Rectangle, Size, joined
from kilonova.web.graph.nesting import Frames, NestedUnits, nest_workflowettes

_LETTER = 7.0
"""Width of most letters, in pixels."""

_OTHERS = dict.fromkeys("mwMW@", 10.8) | dict.fromkeys("ijlI.'", 3.6) | dict.fromkeys("frt-", 5.2)
"""Width of other letters, in pixels."""

_LETTERS = 26
"""Maximum number of letters shown of a name."""

_MARGIN = 40.0
"""Pixels next to the letters of a name, for marks."""

_LEAST = 128.0
"""Minimum width of a task."""

_HOLDING = 172.0
"""Minimum width of a channel, so that its description fits."""

_HIGH = 44.0
"""Height of a cylinder, and minimum height of a box."""

_LINE = 14.0
"""Pixels between the ends of lines to one task, so that what is written above one does not overlap the next."""

_ARROW = 34.0
"""Pixels between a task and its outputs."""

_ROW = 10.0
"""Pixels between the channels that one task writes."""

_GAP = 96.0
"""Pixels between layers."""

_SAME = 1e-6
"""Tolerance for equal heights."""

_ROUND = 10.0
"""Radius of rounded corners of a line, in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLink:
    """Line from a channel to a task that reads it, as an SVG path; `label` is where its modes are written."""

    task: str
    following: InputSummary
    path: str
    label: Point


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphWriting:
    """Line from a task to a channel that it writes, as an SVG path.

    Attributes:
        back: the line back, if the task reads its own output; else empty.
    """

    task: str
    channel: str
    path: str
    back: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Frame around the tasks of a binding and their outputs, or else around those of a workflow."""

    name: str
    binding: bool
    place: Rectangle


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Drawing of channels and tasks, in pixels; outer frames come first."""

    width: float
    height: float
    channels: Mapping[str, Rectangle]
    tasks: Mapping[str, Rectangle]
    frames: tuple[Frame, ...]
    links: tuple[GraphLink, ...]
    writings: tuple[GraphWriting, ...]


def shorten(name: str) -> str:
    """Shorten a name for display in a drawing.

    >>> shorten("articles"), shorten("articles_per_site_and_week_of_year")
    ('articles', 'articles_per_site_and_wee…')
    """
    return name if len(name) <= _LETTERS else name[: _LETTERS - 1] + "…"


def draw_graph(overview: Overview) -> Drawing:
    """Draw channels and tasks."""
    tasks, channels = overview.tasks, overview.channels
    written = [(channel, task.name) for task in tasks.values() for channel in task.writes]
    times = Counter(channel for channel, _ in written)
    writer = {channel: task for channel, task in written if times[channel] == 1 or channel not in channels}
    units: dict[str, Size] = {name: _size(name, _HOLDING) for name in channels if name not in writer}
    units |= {_unit(task.name): _with_outputs(task, writer) for task in tasks.values()}
    lines = {
        (task.name, each.channel): Line(
            _written_at(tasks[writer[each.channel]], each.channel, writer)
            if each.channel in writer
            else PortPosition(each.channel, _HIGH / 2),
            PortPosition(_unit(task.name), _with_outputs(task, writer)[1] / 2 + _spread(index, len(task.reads))),
        )
        for task in tasks.values()
        for index, each in enumerate(task.reads)
        if each.channel in channels
    }
    lines |= {
        (task, channel): Line(
            PortPosition(_unit(task), _with_outputs(tasks[task], writer)[1] / 2), PortPosition(channel, _HIGH / 2)
        )
        for channel, task in written
        if channel not in writer
    }
    places = _arranged(tuple(units.items()), tuple(_framed(overview, writer).items()), tuple(lines.values()))
    return _composed(overview, places, lines, writer)


@lru_cache(maxsize=16)
def _arranged(
    units: tuple[tuple[str, Size], ...], frames: tuple[tuple[str, Frames], ...], lines: tuple[Line, ...]
) -> NestedUnits:
    """Compute the layout, cached until a channel or task is added or removed."""
    return nest_workflowettes(dict(units), dict(frames), lines, _GAP)


def _unit(task: str) -> str:
    """Return the name under which a task is placed together with its outputs; a channel may have the task's name."""
    return f"\1{task}"


@lru_cache(maxsize=20_000)
def _size(name: str, least: float = _LEAST) -> Size:
    """Return the size of a task, or of a channel."""
    return max(least, sum(_OTHERS.get(letter, _LETTER) for letter in shorten(name)) + _MARGIN), _HIGH


def _own(task: TaskSummary, writer: Mapping[str, str]) -> list[str]:
    """Return the channels that only this task writes."""
    return [channel for channel in task.writes if writer.get(channel) == task.name]


def _task_size(task: TaskSummary) -> Size:
    """Return the size of a task, which is as high as the lines to it need."""
    return _size(task.name)[0], max(_HIGH, _LINE * len(task.reads) + 2)


def _with_outputs(task: TaskSummary, writer: Mapping[str, str]) -> Size:
    """Return the size of a task together with the channels that only it writes."""
    width, height = _task_size(task)
    own = _own(task, writer)
    if not own:
        return width, height
    outputs = max(_size(channel, _HOLDING)[0] for channel in own)
    return width + _ARROW + outputs, max(height, _outputs_height(own))


def _outputs_height(own: Sequence[str]) -> float:
    """Return the height of channels below one another."""
    return len(own) * (_HIGH + _ROW) - _ROW


def _output_top(task: TaskSummary, channel: str, writer: Mapping[str, str]) -> float:
    """Return how far below the top of a task, together with its outputs, one of them begins; they are in its middle."""
    own = _own(task, writer)
    above = (_with_outputs(task, writer)[1] - _outputs_height(own)) / 2
    return above + own.index(channel) * (_HIGH + _ROW)


def _written_at(task: TaskSummary, channel: str, writer: Mapping[str, str]) -> PortPosition:
    """Return the start of lines from a channel that only this task writes."""
    return PortPosition(_unit(task.name), _output_top(task, channel, writer) + _HIGH / 2)


def _spread(index: int, count: int) -> float:
    """Return the vertical offset, from the middle of a task, of one of `count` lines."""
    return (index - (count - 1) / 2) * _LINE


def _framed(overview: Overview, writer: Mapping[str, str]) -> dict[str, Frames]:
    """Return the frames around tasks, and around source channels, which are in the frame of their workflow."""
    several = _several(overview)
    found: dict[str, Frames] = {}
    for task in overview.tasks.values():
        binding = overview.bindings.get(task.binding)
        inner = (task.binding,) if binding is not None and not binding.implicit else ()
        found[_unit(task.name)] = ((task.workflow,) if several else ()) + inner
    if several:
        found |= {each.name: (each.workflow,) for each in overview.channels.values() if each.name not in writer}
    return found


def _several(overview: Overview) -> bool:
    """Return whether there are several workflows, each of which has a frame then."""
    of_tasks = {each.workflow for each in overview.tasks.values()}
    return len(of_tasks | {each.workflow for each in overview.channels.values()}) > 1


def _composed(
    overview: Overview, places: NestedUnits, lines: Mapping[tuple[str, str], Line], writer: Mapping[str, str]
) -> Drawing:
    channels = {name: box for name, box in places.boxes.items() if name in overview.channels}
    tasks: dict[str, Rectangle] = {}
    writings = []
    for task in overview.tasks.values():
        unit = places.boxes[_unit(task.name)]
        width, height = _task_size(task)
        box = tasks[task.name] = Rectangle(unit.x, unit.y + (unit.height - height) / 2, width, height)
        own = _own(task, writer)
        for channel in task.writes:
            if channel not in own:
                curve = _curve(places.paths[lines[task.name, channel]])
                writings.append(GraphWriting(task=task.name, channel=channel, path=curve, back=""))
                continue
            left, top = unit.x + width + _ARROW, unit.y + _output_top(task, channel, writer)
            place = channels[channel] = Rectangle(left, top, unit.width - width - _ARROW, _HIGH)
            writings.append(_written(task, channel, box, place))
    links = []
    for task in overview.tasks.values():
        read = [each for each in task.reads if each.channel in channels]
        paths = _untwisted([places.paths[lines[task.name, each.channel]] for each in read])
        for each, path in zip(read, paths, strict=True):
            x, y = path[-1]
            links.append(GraphLink(task=task.name, following=each, path=_curve(path), label=(x - 8, y - 4)))
    shown = tuple(
        Frame(name=name[-1], binding=len(name) > 1 or not _several(overview), place=box)
        for name, box in places.frames.items()
    )
    return Drawing(
        width=places.width,
        height=places.height,
        channels=channels,
        tasks=tasks,
        frames=shown,
        links=tuple(links),
        writings=tuple(writings),
    )


def _written(task: TaskSummary, channel: str, box: Rectangle, place: Rectangle) -> GraphWriting:
    back = ""
    if channel in task.own and not task.view:
        middle, beside, centre = place.x + place.width / 2, place.x - _ARROW / 2, box.x + box.width / 2
        low, lower = place.y + place.height, box.y + box.height
        under, below = low + _ROW / 2, lower + _ROW / 2
        path = joined(((middle, low), (middle, under), (beside, under), (beside, below), (centre, below)))
        back = _curve((*path, (centre, lower)))
    return GraphWriting(task=task.name, channel=channel, path=_curve((_right(box), _left(place))), back=back)


def _untwisted(paths: Sequence[Path]) -> list[Path]:
    """Reorder the ends of the paths to one task, so that paths that come from farther up end farther up."""
    ends = sorted((path[-1] for path in paths), key=lambda end: end[1])
    order = sorted(range(len(paths)), key=lambda number: _before_end(paths[number]))
    ended = {number: _ended(paths[number], end) for number, end in zip(order, ends, strict=True)}
    return [ended[number] for number in range(len(paths))]


def _before_end(path: Path) -> float:
    """Return the height of a path before it turns to the height of its end."""
    return next((y for _, y in reversed(path) if abs(y - path[-1][1]) > _SAME), path[-1][1])


def _ended(path: Path, end: Point) -> Path:
    """Return a path with another end at the same box: it bends between the last two layers, where no boxes are."""
    height, bend = path[-1][1], end[0] - _GAP
    level = sum(1 for _ in takewhile(lambda point: abs(point[1] - height) <= _SAME, reversed(path)))
    kept = [point for number, point in enumerate(path) if number < len(path) - level or point[0] < bend - _SAME]
    if level == len(path) and not kept:
        return (path[0], end)
    moved = [(x, end[1]) for x, _ in path[len(kept) :]]
    return (*kept, *([(bend, height)] if len(kept) > len(path) - level else []), *moved)


def _left(box: Rectangle) -> Point:
    return box.x, box.y + box.height / 2


def _right(box: Rectangle) -> Point:
    return box.x + box.width, box.y + box.height / 2


def _at(x: float, y: float) -> str:
    return f"{x:.0f} {y:.0f}"


def _curve(points: Path) -> str:
    """Return an SVG path through points, with horizontal ends, and rounded corners between level and upright parts."""
    path = [f"M{_at(*points[0])}"]
    for number, ((x, y), (a, b)) in enumerate(pairwise(points), 2):
        after = points[number] if number < len(points) else None
        if x != a and y != b:
            reach = max(24.0, min((a - x) / 2, 120.0))
            path.append(f"C{_at(x + reach, y)} {_at(a - reach, b)} {_at(a, b)}")
        elif after is None or (after[0] == a) == (x == a) or (after[0] != a and after[1] != b):
            path.append(f"L{_at(a, b)}")
        else:
            far = min(_ROUND, math.dist((x, y), (a, b)) / 2, math.dist((a, b), after) / 2)
            path.append(f"L{_at(*_towards((a, b), (x, y), far))} Q{_at(a, b)} {_at(*_towards((a, b), after, far))}")
    return " ".join(path)


def _towards(one: Point, other: Point, far: float) -> Point:
    """Return the point at the given distance from one point in the direction of another."""
    share = far / (math.dist(one, other) or 1.0)
    return one[0] + (other[0] - one[0]) * share, one[1] + (other[1] - one[1]) * share
