"""The user's per-key functions on Spark: cogroup by key, then apply (Nova, section 3, second template)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame

from kilonova.model.schema import Schema

Rows = list[dict[str, object]]


def per_key(
    left: DataFrame,
    right: DataFrame,
    key: tuple[str, ...],
    schema: Schema,
    function: Callable[[Rows, Rows], Rows],
) -> DataFrame:
    """Apply a function to the rows of each key on two sides.

    Args:
        left: rows with the columns of `schema`.
        right: rows with the columns of `schema`.
        key: the key columns.
        schema: the columns of the result.
        function: what becomes of the rows of one key.
    """
    names = list(schema.names)

    def applied(first: pa.Table, second: pa.Table) -> pa.Table:
        target = pa.schema([first.schema.field(name) for name in names])
        return pa.Table.from_pylist(function(first.to_pylist(), second.to_pylist()), schema=target)

    grouped = left.groupBy(*key).cogroup(right.groupBy(*key))
    return grouped.applyInArrow(applied, schema.ddl)


def folded_per_key(
    rows: DataFrame,
    position: str,
    key: tuple[str, ...],
    schema: Schema,
    function: Callable[[Rows, Rows], Rows],
) -> DataFrame:
    """Fold the rows of each key into one list, position by position.

    Args:
        rows: rows with the columns of `schema` and a position.
        position: the column that says where in the chain a row stands.
        key: the key columns.
        schema: the columns of the result.
        function: makes one list of rows of two consecutive ones.
    """
    names = list(schema.names)

    def applied(table: pa.Table) -> pa.Table:
        target = pa.schema([table.schema.field(name) for name in names])
        groups: dict[int, Rows] = {}
        for row in table.to_pylist():
            groups.setdefault(row.pop(position), []).append(row)
        whole: Rows | None = None
        for place in sorted(groups):
            whole = groups[place] if whole is None else function(whole, groups[place])
        return pa.Table.from_pylist(whole or [], schema=target)

    return rows.groupBy(*key).applyInArrow(applied, schema.ddl)
