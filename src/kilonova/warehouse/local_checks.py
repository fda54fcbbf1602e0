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

from kilonova.warehouse.spark_hash import hashes_of


def key_metrics(keys: pa.Table) -> dict[str, Any]:
    """Return the metrics of null and duplicate keys, as `jobs` observes them.

    Args:
        keys: the key columns of a block's rows.
    """
    nulls = pc.sum(reduce(pc.or_, map(pc.is_null, keys.columns))).as_py()
    if nulls or keys.num_rows < 2:
        return {"nulls": nulls}
    suspects = _with_equal_hashes(keys)
    counts = suspects.group_by(keys.column_names).aggregate([([], "count_all")])
    duplicates = counts.filter(pc.field("count_all") > 1).sort_by([(name, "ascending") for name in keys.column_names])
    if not duplicates.num_rows:
        return {}
    (example,) = duplicates.drop_columns("count_all").slice(0, 1).to_pylist()
    return {"duplicates": pc.sum(duplicates["count_all"]).as_py(), "example": _json(example)}


def _with_equal_hashes(keys: pa.Table) -> pa.Table:
    """Return all keys that may equal another one: few, as hashing and sorting is faster than grouping all of them."""
    try:
        hashes = hashes_of(keys)
    except MemoryError:
        return keys
    ordered = np.sort(hashes)
    met = np.zeros(1 << 20, dtype=bool)
    met[ordered[1:][ordered[1:] == ordered[:-1]] % len(met)] = True
    return keys.filter(pa.array(met[hashes % len(met)]))


def _json(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False, default=str)


def keys_within(rows: pa.Table, key: Sequence[str]) -> pc.Expression:
    """Return the condition that a key lies between the least and the greatest of some rows, column by column.

    Points in time are left out: Spark may store them without ranges, and without their time zone.
    """
    kinds = {name: rows.schema.field(name).type for name in key}
    names = [name for name, kind in kinds.items() if not (pa.types.is_timestamp(kind) and kind.tz)]
    ranges = ((pc.field(name), pc.min_max(rows[name])) for name in names)
    within = ((field >= values["min"]) & (field <= values["max"]) for field, values in ranges)
    return reduce(and_, within, pc.scalar(True))


def upsert_changes(delta: pa.Table, older: Sequence[pa.Table], key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return the rows that an upsert removes from the snapshot before it, and those that it adds.

    Args:
        delta: the columns of the relation, and `_deleted`; the keys are unique and not null.
        older: rows with the same columns, of the base and of the upserts after it, in order.
        key: the key columns.
    """
    now = ~_flags(delta["_deleted"])
    before = pa.concat_tables([delta.schema.empty_table(), *older])
    new, old = _newest(delta, before, key)
    was, differs = np.zeros(len(now), dtype=bool), np.zeros(len(now), dtype=bool)
    was[new] = ~_flags(before["_deleted"].take(pa.array(old)))
    others = [name for name in delta.column_names if name not in (*key, "_deleted")]
    if others and len(new):
        after, replaced = delta.select(others).take(pa.array(new)), before.select(others).take(pa.array(old))
        differs[new] = reduce(np.logical_or, map(_differ, replaced.columns, after.columns))
    place = np.zeros(len(now), dtype=np.int64)
    place[new] = old
    removed, added = was & (~now | differs), now & (~was | differs)
    return before.take(pa.array(place[removed])), delta.filter(pa.array(added))


def as_strong(removed: pa.Table, added: pa.Table) -> pa.Table:
    """Return the rows that an upsert removes and adds, from `upsert_changes`, as a strong delta."""
    weights = ((removed, -1), (added, 1))
    return pa.concat_tables(
        rows.drop_columns("_deleted").append_column("_weight", pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))
        for rows, weight in weights
    )


def _newest(delta: pa.Table, before: pa.Table, key: Sequence[str]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return, for each key of a delta that occurs before it, the row of the delta and the last row before it."""
    names = [str(place) for place in range(len(key))]

    def numbered(table: pa.Table, name: str) -> pa.Table:
        return table.select(list(key)).rename_columns(names).append_column(name, pa.array(np.arange(table.num_rows)))

    met = numbered(before, "old").join(numbered(delta, "new"), names, join_type="inner").select(["old", "new"])
    met = met.sort_by([("new", "ascending"), ("old", "ascending")])
    new, old = met["new"].to_numpy(), met["old"].to_numpy()
    last = np.append(new[1:] != new[:-1], True)[: len(new)]
    return new[last], old[last]


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return where two columns of `comparable_types` differ: nulls are equal, and so are NaNs."""
    return _values_differ(one.combine_chunks(), other.combine_chunks())


def _values_differ(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    there = _flags(one.is_valid())
    differ: npt.NDArray[np.bool_] = there != _flags(other.is_valid())
    if pa.types.is_struct(one.type):
        inside = reduce(np.logical_or, map(_values_differ, one.flatten(), other.flatten()))
        return differ | (there & inside)
    if pa.types.is_list(one.type):
        differ |= ~_flags(pc.fill_null(pc.equal(pc.list_value_length(one), pc.list_value_length(other)), True))
        rows = np.flatnonzero(there & ~differ)  # whose elements are as many
        lists, others = one.take(pa.array(rows)), other.take(pa.array(rows))
        parents = pc.list_parent_indices(lists).to_numpy()
        differ[rows[parents[_values_differ(lists.flatten(), others.flatten())]]] = True
        return differ
    same = pc.fill_null(pc.equal(one, other), True)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return differ | ~_flags(same)


def _flags(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
