"""Copy of a catalog for a branch: definitions, points and placements, and what runs took, to estimate costs from.

What servers and users have queued is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Table, func, select

from kilonova.catalog import channel_store, tables
from kilonova.catalog.database import Transaction, insert_all
from kilonova.model.channel import PointState
from kilonova.model.run import RunState


def copy_state(origin: Transaction, copy: Transaction) -> int:
    """Copy the definitions and the state of all channels and tasks into an empty catalog.

    Points that runs in progress have reserved count as cancelled there.

    Args:
        origin: a transaction of the catalog that is copied.
        copy: a writing transaction of the new one.

    Returns:
        The largest number of a block: those of the copy that are larger are its own.
    """
    copy.mark_registry_changed()
    for table in (tables.channel, tables.task, tables.logic, tables.variant, tables.function, tables.dropped):
        _insert(copy, table, _rows(origin, table))
    placed = select(tables.placement.c.block_id).where(tables.placement.c.live)
    block, point = tables.block, tables.point
    writing = select(point.c.run_id).union(select(block.c.run_id).where(block.c.id.in_(placed)))
    runs = _rows(origin, tables.run, tables.run.c.id.in_(writing))
    running = RunState.RUNNING.value
    for row in runs:
        row["state"] = RunState.ABANDONED.value if row["state"] == running else row["state"]
        row["progress"] = None
    _insert(copy, tables.run, runs)
    points = _rows(origin, point)
    for row in points:
        if row["state"] == PointState.RESERVED.value:
            row |= {"state": PointState.CANCELLED.value, "time": origin.now}
    _insert(copy, point, points)
    live = block.c.id.in_(placed), block.c.state == channel_store.LIVE
    _insert(copy, block, _rows(origin, block, *live))
    there = select(block.c.id).where(*live)
    _insert(copy, tables.placement, _rows(origin, tables.placement, tables.placement.c.block_id.in_(there)))
    output = tables.run_output
    known = output.c.block_id.in_(there) | output.c.block_id.is_(None)
    _insert(copy, output, _rows(origin, output, output.c.run_id.in_(writing), known))
    for table in (tables.cursor, tables.binding, tables.trigger, tables.bound):
        _insert(copy, table, _rows(origin, table))
    newest = origin.connection.execute(select(func.max(block.c.id))).scalar() or 0
    return int(newest)


def _rows(tx: Transaction, table: Table, *where: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in tx.connection.execute(select(table).where(*where)).mappings()]


def _insert(tx: Transaction, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    insert_all(tx, table, list(rows))
