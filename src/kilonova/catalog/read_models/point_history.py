"""History of the points of a channel: the blocks that lead to them, live or not.

The record of a run lists the blocks that it published; their rows stay in the catalog after garbage collection has
deleted their files. For an unpublished block only its run is known; it is listed while that run is running.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, func, or_, select

from kilonova.catalog import codec, tables
from kilonova.catalog.channel_store import WRITING, channel_id, placed_by
from kilonova.catalog.database import Transaction
from kilonova.model.block import Base, Delta, Kind
from kilonova.model.channel import PointState
from kilonova.model.encoding import describe_encoding
from kilonova.model.run import RunKind
from kilonova.model.version import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRecord:
    """Block that leads to a point, live or not; while it is being written, only its number and its run are known.

    Attributes:
        number: its number.
        kind: base or delta; None while it is being written.
        state: "live", "being written" or "collected".
        encoding: a description of its encoding, as text; empty while it is being written.
        rows: the number of its rows.
        bytes: the size of its files.
        files: the number of its files.
        removals: the number of rows of the relation that it replaces or deletes; None if unknown.
        run: the run that wrote it.
        made: the kind of that run: a base written by a compaction is listed beside the block that filled the point.
        added: the net number of rows that a delta adds to the relation; None if unknown, and for bases.
    """

    number: int
    kind: Kind | None
    state: str
    encoding: str
    rows: int | None
    bytes: int | None
    files: int | None
    removals: int | None
    run: int
    made: RunKind
    added: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRecord:
    """Point with its state, its run and its blocks.

    Attributes:
        number: its number.
        state: reserved, filled or cancelled.
        time: the time when it was filled or cancelled; None while reserved.
        run: the run that reserved it.
        kind: the kind of that run.
        task: the task that wrote it; None for an ingest, and if nothing was written.
        reason: how and why it was produced, as text for users; empty if nothing was written.
        version: its version; empty unless filled.
        reflected: the newest version that it reflects, as runs have recorded that changed nothing.
        withheld: whether readers are not given it, because it violates a bound on inconsistency.
        blocks: the blocks that lead to it, in the order in which they were written.
    """

    number: int
    state: PointState
    time: datetime | None
    run: int
    kind: RunKind
    task: str | None
    reason: str
    version: Version
    reflected: Version
    withheld: bool
    blocks: tuple[BlockRecord, ...]


def point_records(
    tx: Transaction, channel: str, before: int | None, limit: int, *, filled: bool = False
) -> tuple[PointRecord, ...]:
    """Return the points of a channel, newest first.

    Args:
        tx: an open transaction.
        channel: the channel.
        before: only points before this number; None for all.
        limit: the maximum number of points.
        filled: only filled points.

    Raises:
        NotFound: there is no such channel.
    """
    here, point = channel_id(tx, channel), tables.point
    query = select(point, tables.run.c.kind).join(tables.run, tables.run.c.id == point.c.run_id)
    query = query.where(point.c.channel_id == here).order_by(point.c.number.desc()).limit(limit)
    query = query if before is None else query.where(point.c.number < before)
    query = query if not filled else query.where(point.c.state == PointState.FILLED.value)
    rows = tx.connection.execute(query).all()
    made = _made(tx, here, [row.number for row in rows])
    reserved = [row for row in rows if row.state == PointState.RESERVED.value]
    writing = _writing(tx, here, reserved) if reserved else {}
    return tuple(_point_record(row, made.get(row.number, ()), writing.get(row.run_id, ())) for row in rows)


def _point_record(point: Row[Any], made: Sequence[Row[Any]], writing: Iterable[BlockRecord]) -> PointRecord:
    own = next((row for row in made if row.run_id == point.run_id), None)
    return PointRecord(
        number=point.number,
        state=PointState(point.state),
        time=point.time,
        run=point.run_id,
        kind=RunKind(point.kind),
        task=None if own is None else own.task,
        reason="" if own is None else own.reason,
        version=codec.version_from_json(point.version),
        reflected=codec.version_from_json(point.version if point.extended is None else point.extended),
        withheld=bool(point.withheld),
        blocks=(*(_block_record(row) for row in made if row.id is not None), *writing),
    )


def _made(tx: Transaction, channel: int, points: Sequence[int]) -> dict[int, list[Row[Any]]]:
    """Return the outputs of runs, by point, with the blocks that they published."""
    output, block, place = tables.run_output, tables.block, tables.placement
    query: Select[Any] = (
        select(
            *(output.c.point, output.c.run_id, output.c.task, output.c.reason, tables.run.c.kind),
            *(block.c.id, place.c.live, place.c.start, place.c.end, block.c.encoding),
            *(block.c.rows, block.c.bytes, block.c.files, block.c.removals, block.c.net_rows),
        )
        .join(tables.run, tables.run.c.id == output.c.run_id)
        .outerjoin(place, placed_by(output))
        .outerjoin(block, block.c.id == output.c.block_id)
        .where(output.c.channel_id == channel, output.c.point.in_(points))
        .order_by(output.c.run_id)
    )
    found: dict[int, list[Row[Any]]] = {}
    for row in tx.connection.execute(query):
        found.setdefault(row.point, []).append(row)
    return found


def _block_record(row: Row[Any]) -> BlockRecord:
    return BlockRecord(
        number=row.id,
        kind=Base(row.end) if row.start is None else Delta(row.start, row.end),
        state="live" if row.live else "collected",
        encoding=describe_encoding(codec.block_encoding_from_json(row.encoding)),
        rows=row.rows,
        bytes=row.bytes,
        files=row.files,
        removals=row.removals,
        run=row.run_id,
        made=RunKind(row.kind),
        added=row.net_rows,
    )


def _writing(tx: Transaction, channel: int, points: Iterable[Row[Any]]) -> dict[int, list[BlockRecord]]:
    """Return the blocks that the runs of reserved points are writing, by run."""
    kinds = {point.run_id: RunKind(point.kind) for point in points}
    block = tables.block
    rows = tx.connection.execute(
        select(block.c.id, block.c.run_id)
        .where(block.c.target_id == channel, block.c.state == WRITING, block.c.run_id.in_(kinds))
        .order_by(block.c.id)
    )
    found: dict[int, list[BlockRecord]] = {}
    for row in rows:
        record = BlockRecord(
            number=row.id,
            kind=None,
            state="being written",
            encoding="",
            rows=None,
            bytes=None,
            files=None,
            removals=None,
            run=row.run_id,
            made=kinds[row.run_id],
            added=None,
        )
        found.setdefault(row.run_id, []).append(record)
    return found


def first_retained(tx: Transaction, channel: str) -> int:
    """Return the oldest point of a channel whose rows are still readable; 0 if there is none.

    Raises:
        NotFound: there is no such channel.
    """
    place = tables.placement.c
    begins = or_(place.start.is_(None), place.start == 0)
    query = select(func.min(place.end)).where(place.channel_id == channel_id(tx, channel), place.live, begins)
    return tx.connection.execute(query).scalar() or 0


def size_at(tx: Transaction, channel: str, point: int) -> tuple[int | None, int]:
    """Return the size of a channel at a point, from all blocks that lead to it, live or not.

    Returns:
        The number of rows of the relation, or None if the blocks do not record it; and the bytes of the newest base up
        to the point and of the deltas after it.

    Raises:
        NotFound: there is no such channel.
    """
    output, block, place = tables.run_output, tables.block, tables.placement
    here = (output.c.channel_id == channel_id(tx, channel), output.c.point <= point)
    base = tx.connection.execute(
        select(output.c.point, block.c.rows, block.c.bytes)
        .join(place, placed_by(output))
        .join(block, block.c.id == output.c.block_id)
        .where(*here, place.c.start.is_(None))
        .order_by(output.c.point.desc(), output.c.run_id.desc())
        .limit(1)
    ).first()
    deltas = tx.connection.execute(
        select(
            *(func.coalesce(func.sum(each), 0).label(each.name) for each in (block.c.net_rows, block.c.bytes)),
            (func.count() == func.count(block.c.net_rows)).label("counted"),
        )
        .join(place, placed_by(output))
        .join(block, block.c.id == output.c.block_id)
        .join(tables.run, tables.run.c.id == output.c.run_id)
        .where(*here, place.c.start.is_not(None), output.c.point > (0 if base is None else base.point))
        .where(tables.run.c.kind != RunKind.COMPACTION.value)
    ).one()
    rows, size = (0, 0) if base is None else (base.rows, base.bytes)
    return rows + int(deltas.net_rows) if deltas.counted else None, size + int(deltas.bytes)
