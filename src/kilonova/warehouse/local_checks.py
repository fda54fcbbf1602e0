"""Checks of written rows in this process, with Arrow: for a small block, a Spark job takes far longer than the check.

The results equal those of `jobs` and `algebra`, for columns of comparable types: see `arrow_types`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kilonova.warehouse.jobs import Effect

_ODD = np.uint64(0x9E3779B97F4A7C15)
"""Multiplier that spreads numbers over 64 bits; equal keys have equal hashes, which is all that is relied on."""


def key_metrics(keys: pa.Table, *, ordered: bool) -> dict[str, Any]:
    """Return the metrics of null and duplicate keys, as `jobs` observes them.

    Args:
        keys: the key columns of a block's rows.
        ordered: whether equal keys are neighbours, which is faster to check.
    """
    columns = [column.combine_chunks() for column in keys.columns]
    nulls = pc.sum(reduce(pc.or_, map(pc.is_null, columns))).as_py()
    if nulls or keys.num_rows < 2:
        return {"nulls": nulls}
    if not ordered:
        if _surely_unique(columns):
            return {"nulls": nulls}
        counts = keys.group_by(keys.column_names).aggregate([([], "count_all")])
        duplicate = counts.filter(pc.field("count_all") > 1)
        return _duplicates(duplicate.drop_columns("count_all"), pc.sum(duplicate["count_all"]).as_py())
    same = _flags(reduce(pc.and_, (pc.equal(column[:-1], column[1:]) for column in columns)))
    shared = np.append(same, False) | np.insert(same, 0, False)
    return _duplicates(keys.filter(pa.array(shared)), int(shared.sum()))


def _surely_unique(columns: Sequence[pa.Array]) -> bool:
    """Return whether hashes of some keys show that they are unique, which takes a tenth of the time of comparing them.

    Args:
        columns: the key columns, without nulls; a single one is sorted fastest where its rows are sorted file by file.
    """
    if not all(pa.types.is_integer(each.type) or pa.types.is_temporal(each.type) for each in columns):
        return False
    numbers = [each.view(f"int{each.type.bit_width}").to_numpy().astype(np.int64).view(np.uint64) for each in columns]
    hashed = np.sort(reduce(lambda one, other: (one ^ (one >> np.uint64(32))) * _ODD + other, numbers), kind="stable")
    return bool((hashed[1:] != hashed[:-1]).all())


def _duplicates(keys: pa.Table, rows: int) -> dict[str, Any]:
    """Return the metrics of duplicate keys, with the least as an example."""
    if not keys.num_rows:
        return {}
    least = keys.sort_by([(name, "ascending") for name in keys.column_names]).slice(0, 1)
    times = [place for place, field in enumerate(keys.schema) if pa.types.is_temporal(field.type)]
    for place in times:  # Python has no dates before the year 1 and after 9999
        least = least.set_column(place, least.column_names[place], least.column(place).cast(pa.string()))
    (example,) = least.to_pylist()
    return {"duplicates": rows, "example": _json(example)}


def _json(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False, default=str)


def keys_within(rows: pa.Table, key: Sequence[str]) -> pc.Expression:
    """Return the condition that a key lies between the least and the greatest of some rows, column by column.

    Points in time are left out: Spark may store them without ranges, and without their time zone.
    """
    kinds = {name: rows.schema.field(name).type for name in key}
    names = [name for name, kind in kinds.items() if not pa.types.is_timestamp(kind)]
    ranges = ((pc.field(name), pc.min_max(rows[name])) for name in names)
    within = ((field >= values["min"]) & (field <= values["max"]) for field, values in ranges)
    return reduce(and_, within, pc.scalar(True))


def upsert_effect(delta: pa.Table, older: Sequence[pa.Table], key: Sequence[str]) -> Effect:
    """Count the rows that an upsert adds to the snapshot before it and removes from it, as `algebra.upserted`.

    Args:
        delta: the columns of the relation, and `_deleted`; the keys are unique and not null.
        older: the rows of the base and of the upserts after it, in order; absent columns are null, an absent
            `_deleted` is false.
        key: the key columns.
    """
    _, removed, added = _compared(delta, older, key)
    return Effect(added=int(added.sum()), removed=len(removed))


def upsert_changes(delta: pa.Table, older: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Return the rows that an upsert removes from the snapshot before it and adds to it, with their weights.

    Args:
        delta: as for `upsert_effect`, and so are the others.
        older: the rows before it.
        key: the key columns.
    """
    before, removed, added = _compared(delta, older, key)
    rows = pa.concat_tables([before.take(pa.array(removed)), delta.filter(pa.array(added))]).drop_columns("_deleted")
    weights = np.repeat(np.array([-1, 1], dtype=np.int64), (len(removed), int(added.sum())))
    return rows.append_column("_weight", pa.array(weights))


def _compared(
    delta: pa.Table, older: Sequence[pa.Table], key: Sequence[str]
) -> tuple[pa.Table, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the rows before an upsert, the places of those that it removes, and which of its own rows it adds."""
    now = ~_flags(delta["_deleted"])
    before = pa.concat_tables([delta.schema.empty_table(), *(_completed(table, delta.schema) for table in older)])
    new, old = _newest(delta, before, key)
    was, differs = np.zeros(len(now), dtype=bool), np.zeros(len(now), dtype=bool)
    was[new] = ~_flags(before["_deleted"].take(pa.array(old)))
    others = [name for name in delta.column_names if name not in (*key, "_deleted")]
    if others and len(new):
        after, replaced = delta.select(others).take(pa.array(new)), before.select(others).take(pa.array(old))
        differs[new] = reduce(np.logical_or, map(_differ, replaced.columns, after.columns))
    return before, old[(was & (~now | differs))[new]], now & (~was | differs)


def _completed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly the columns of a schema."""
    rows = table.num_rows
    absent = {"_deleted": pa.array(np.zeros(rows, dtype=bool))}
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else absent.get(field.name, pa.nulls(rows, field.type))
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _newest(delta: pa.Table, before: pa.Table, key: Sequence[str]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return, for each key of a delta that occurs before it, the row of the delta and the last row before it.

    This is a join, because only few of the rows before a delta may have keys of it.
    """
    names = [str(place) for place in range(len(key))]

    def numbered(table: pa.Table, name: str) -> pa.Table:
        return table.select(list(key)).rename_columns(names).append_column(name, pa.array(np.arange(table.num_rows)))

    met = numbered(before, "old").join(numbered(delta, "new"), names, join_type="inner").select(["old", "new"])
    met = met.sort_by([("new", "ascending"), ("old", "ascending")])
    new, old = met["new"].to_numpy(), met["old"].to_numpy()
    last = np.append(new[1:] != new[:-1], True)[: len(new)]
    return new[last], old[last]


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return where two columns differ: nulls are equal, and so are NaNs."""
    same = pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(pc.is_null(one), pc.is_null(other)))
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return ~_flags(same)


def _flags(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
