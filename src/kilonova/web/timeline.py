"""Timeline of a channel's points and blocks: the blocks of each, and how far each task has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kilonova.catalog.read_models.point_history import BlockRecord, PointRecord
from kilonova.model.block import Base
from kilonova.model.run import RunKind
from kilonova.service.reports import Lag
from kilonova.web.charts import Scale

_LANE = 18
"""Pixels between overlapping deltas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Block in the timeline: `left` and `width` are in percent, `top` in pixels.

    Attributes:
        look: its appearance: "base" or "delta", "compacted", "collected", "writing".
    """

    block: BlockRecord
    left: float
    width: float
    top: int
    look: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Point up to which tasks have read, with its position `at`, in percent."""

    at: float
    point: int
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Points from left to right, the blocks between them, and the points up to which tasks have read.

    Attributes:
        points: each with its position, in percent, oldest first.
        height: of all blocks, in pixels.
        every: number of points from one labelled point to the next.
    """

    points: tuple[tuple[PointRecord, float], ...]
    marks: tuple[Mark, ...]
    flags: tuple[Flag, ...]
    height: int
    every: int


def timeline(points: Sequence[PointRecord], readers: Sequence[Lag]) -> Timeline:
    """Return the timeline of consecutive points of a channel, newest first, and of its readers."""
    shown = list(reversed(points))
    if not shown:
        return Timeline(points=(), marks=(), flags=(), height=0, every=1)
    first, last = shown[0].number, shown[-1].number
    place = Scale(first - 1, last + 1, 0, 100)
    step = 100 / (last - first + 2)
    marks: list[Mark] = []
    busy: list[int] = []
    for point in shown:
        for block in point.blocks:
            if isinstance(block.kind, Base) or block.kind is None:
                half = min(step * 0.36, 1.1)
                at = place(point.number)
                marks.append(Mark(block=block, left=at - half, width=2 * half, top=0, look=_look(block)))
                continue
            start = max(block.kind.start, first - 1)
            lane = next((number for number, end in enumerate(busy) if end <= start), len(busy))
            busy[lane : lane + 1] = [block.kind.end]
            left, right = place(start), place(block.kind.end)
            top = _LANE * (lane + 1) + 8
            marks.append(Mark(block=block, left=left, width=right - left, top=top, look=_look(block)))
    flags: dict[int, list[str]] = {}
    for each in readers:
        flags.setdefault(each.cursor, []).append(each.task)
    return Timeline(
        points=tuple((point, place(point.number)) for point in shown),
        marks=tuple(marks),
        flags=tuple(
            Flag(at=place(max(number, first - 1)), point=number, tasks=tuple(tasks))
            for number, tasks in sorted(flags.items())
            if number <= last
        ),
        height=_LANE * (len(busy) + 1) + 12,
        every=max(1, -(-len(shown) // 16)),
    )


def _look(block: BlockRecord) -> str:
    if block.kind is None:
        return "writing"
    look = "base" if isinstance(block.kind, Base) else "delta"
    if block.made is RunKind.COMPACTION:
        look += " compacted"
    return f"{look} collected" if block.state == "collected" else look
