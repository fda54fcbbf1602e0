"""Pages of the rows of small relations, read and ordered in this process, without a Spark session.

Rows are ordered as `jobs.ordered` orders them: NaN is greater than any number, zeros of either sign are equal, and
strings are compared by their bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kilonova.model.read_plan import ReadPlan
from kilonova.query.row_order import SortKey
from kilonova.warehouse.local_read import SmallTables, is_small_reading
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.verification import Verification

_KEPT = 16
"""Number of read plans whose rows are kept, which take up to 4 MB of memory each."""


class PageReader:
    """Reader of pages of one warehouse.

    Args:
        storage: the storage of the blocks.
        checksums: whether to verify the contents of blocks when they are first read, besides names and sizes.
    """

    def __init__(self, storage: Storage, *, checksums: bool) -> None:
        self._tables = SmallTables(storage)
        self._verification = Verification(storage, checksums=checksums)
        self._kept: OrderedDict[ReadPlan, pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, reading: ReadPlan, first: Sequence[SortKey], offset: int, limit: int | None) -> pa.Table | None:
        """Return some rows of a read plan; None if they are not small, or left to Spark.

        All of its rows are kept for further pages, as blocks never change.

        Args:
            reading: the read plan.
            first: the columns to order by; those that the rows do not have are left out, their others follow.
            offset: number of rows to skip.
            limit: maximum number of rows; None for all.

        Raises:
            BlockDamaged: a block is not as it was written.
            StorageFailed: a block cannot be read.
        """
        with self._lock:
            kept = self._kept.get(reading)
        if kept is not None:
            return _some(kept, first, offset, limit)
        if not is_small_reading(reading):
            return None
        self._verification.check(reading.blocks)
        rows = self._tables.rows(reading)
        if rows is None:
            return None
        with self._lock:
            self._kept[reading] = rows
            self._kept.move_to_end(reading)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return _some(rows, first, offset, limit)


def _some(rows: pa.Table, first: Sequence[SortKey], offset: int, limit: int | None) -> pa.Table:
    """Return some rows, in order."""
    return rows.take(_order(rows, first).slice(offset, limit))


def _order(rows: pa.Table, first: Sequence[SortKey]) -> pa.Array:
    """Return the places of rows in order."""
    known = [key for key in first if key.column in rows.column_names]
    others = [name for name in rows.column_names if name not in {key.column for key in known}]
    parts = [part for key in [*known, *map(SortKey, others)] for part in _comparable(rows[key.column], key)]
    keys = pa.Table.from_arrays([column for column, _ in parts], names=list(map(str, range(len(parts)))))
    directions = ("descending" if descending else "ascending" for _, descending in parts)
    return pc.sort_indices(keys, sort_keys=list(zip(keys.column_names, directions, strict=True)))


def _comparable(column: pa.ChunkedArray, key: SortKey) -> list[tuple[pa.ChunkedArray, bool]]:
    """Return columns that Arrow orders as Spark orders one, each with whether it is in descending order."""
    there = pc.is_valid(column), not key.nulls_first
    if not pa.types.is_floating(column.type):
        return [there, (column, key.descending)]
    zero, undefined = pa.scalar(0.0, column.type), pc.is_nan(column)
    numbers = pc.add(pc.if_else(undefined, zero, column), zero)
    return [there, (undefined, key.descending), (numbers, key.descending)]
