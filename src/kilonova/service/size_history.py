"""Size of a channel over its points."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kilonova.catalog.database import Transaction
from kilonova.catalog.read_models.point_history import PointRecord, point_records, size_at
from kilonova.model.block import Base
from kilonova.model.run import RunKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePoint:
    """Size of a channel at a point.

    Attributes:
        point: the point.
        time: the time when it was filled.
        rows: rows of the relation; None if the blocks do not record them.
        bytes: bytes to read for its snapshot: the newest base up to the point, and the deltas after it.
        written_rows: rows in the blocks of the run that filled it.
        written_bytes: the size of these blocks.
        renewed: whether there is a base at it, written by the run that filled it or by a compaction.
    """

    point: int
    time: datetime
    rows: int | None
    bytes: int
    written_rows: int
    written_bytes: int
    renewed: bool


def size_history(tx: Transaction, channel: str, limit: int = 200) -> tuple[SizePoint, ...]:
    """Return the size of a channel at its last filled points, at most `limit`, oldest first.

    Raises:
        NotFound: there is no such channel.
    """
    points = point_records(tx, channel, None, limit, filled=True)[::-1]
    rows, size = size_at(tx, channel, points[0].number - 1) if points else (0, 0)
    found = []
    for point in points:
        rows, size = _after(point, rows, size)
        own = [block for block in point.blocks if block.run == point.run]
        assert point.time is not None
        found.append(
            SizePoint(
                point=point.number,
                time=point.time,
                rows=rows,
                bytes=size,
                written_rows=sum(block.rows or 0 for block in own),
                written_bytes=sum(block.bytes or 0 for block in own),
                renewed=any(isinstance(block.kind, Base) for block in point.blocks),
            )
        )
    return tuple(found)


def _after(point: PointRecord, rows: int | None, size: int) -> tuple[int | None, int]:
    """Return rows and bytes at a point, from those at the point before."""
    bases = [block for block in point.blocks if isinstance(block.kind, Base)]
    if bases:
        return bases[-1].rows, bases[-1].bytes or 0
    for block in point.blocks:
        if block.made is RunKind.COMPACTION:  # the blocks merged into it have been counted
            continue
        rows = None if rows is None or block.added is None else rows + block.added
        size += block.bytes or 0
    return rows, size
