"""The user's per-key functions on Spark: cogroup by key, then apply (Nova, section 3, second template)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.group import GroupedData

from kilonova.model.schema import Schema
from kilonova.warehouse.blocks import column

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
        old, new = (side.rename_columns(names).to_pylist() for side in (first, second))
        made = _same_key(function(old, new), old or new, key)
        return _table(made, first.schema, names)

    sides = [_plainly_named(side.select(*map(column, names)), key) for side in (left, right)]
    return sides[0].cogroup(sides[1]).applyInArrow(applied, _plain_ddl(schema)).toDF(*names)


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
    names = [*schema.names, position]

    def applied(table: pa.Table) -> pa.Table:
        groups: dict[int, Rows] = {}
        for row in table.rename_columns(names).to_pylist():
            groups.setdefault(row.pop(position), []).append(row)
        places = sorted(groups)
        whole = groups[places[0]]
        for place in places[1:]:
            whole = _same_key(function(whole, groups[place]), groups[place], key)
        return _table(whole, table.schema, names[:-1])

    grouped = _plainly_named(rows.select(*map(column, names)), key)
    return grouped.applyInArrow(applied, _plain_ddl(schema)).toDF(*schema.names)


def _plainly_named(frame: DataFrame, key: tuple[str, ...]) -> GroupedData:
    """The frame by key, with numbers for names, because PySpark's grouped functions take no others."""
    names = frame.columns
    return frame.toDF(*(f"c{place}" for place in range(len(names)))).groupBy(*(f"c{names.index(n)}" for n in key))


def _plain_ddl(schema: Schema) -> str:
    return ", ".join(f"c{place} {item.type}" for place, item in enumerate(schema.columns))


def _table(rows: Rows, types: pa.Schema, names: list[str]) -> pa.Table:
    """Rows as a table with plain names and the types of the columns that came."""
    ordered = [[row.get(name) for row in rows] for name in names]
    arrays = [pa.array(values, type=types.field(place).type) for place, values in enumerate(ordered)]
    return pa.Table.from_arrays(arrays, names=[f"c{place}" for place in range(len(names))])


def _same_key(made: Rows, given: Rows, key: tuple[str, ...]) -> Rows:
    """What a function made, if it is of the key that it was given."""
    wanted = repr([given[0][name] for name in key]) if given else None
    for row in made:
        if wanted is not None and repr([row.get(name) for name in key]) != wanted:
            raise ValueError(f"a per-key function that was given the key {wanted} returned the row {row}")
    return made
