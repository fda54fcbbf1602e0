"""Per-key user functions on Spark: cogroup by key, then apply (Nova, section 3, second template)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.group import GroupedData

from kilonova.model.schema import Schema
from kilonova.warehouse.blocks import column

Rows = list[dict[str, object]]


def per_key(
    left: DataFrame,
    right: DataFrame,
    key: tuple[str, ...],
    schema: Schema,
    function: Callable[..., Rows],
    position: str | None = None,
) -> DataFrame:
    """Apply a function to the rows of each key on two sides.

    Args:
        left: rows.
        right: rows.
        key: the key columns, which both have.
        schema: the columns of the result.
        function: the function of one key's rows: receives those on the left and, if there are any, those on the
            right, as one list per position in order.
        position: the column on the right with a row's position in the chain; None if all have the same.
    """
    lefts, rights, names = left.columns, [n for n in right.columns if n != position], list(schema.names)
    typed = (F.lit(None).cast(item.type).alias(f"_typed{place}") for place, item in enumerate(schema.columns))

    def applied(first: pa.Table, second: pa.Table) -> pa.Table:
        old = first.select(range(len(lefts))).rename_columns(lefts).to_pylist()
        bags = _in_order(second.rename_columns([*rights, *([position] if position else [])]).to_pylist(), position)
        made = _same_key(function(old, *bags), old or bags[0], key)
        return _table(made, first.schema.types[len(lefts) :], names)

    before = _plainly_named(left.select(*map(column, lefts), *typed), key)
    after = _plainly_named(right.select(*map(column, (*rights, *([position] if position else [])))), key)
    return before.cogroup(after).applyInArrow(applied, _plain_ddl(schema)).toDF(*names)


def folded_per_key(
    rows: DataFrame,
    position: str,
    key: tuple[str, ...],
    schema: Schema,
    function: Callable[..., Rows],
) -> DataFrame:
    """Combine the rows of each key into one list of rows.

    Args:
        rows: rows with the columns of `schema` and a position.
        position: the column with a row's position in the chain.
        key: the key columns.
        schema: the columns of the result.
        function: receives one list of rows per position, in order.
    """
    names = [*schema.names, position]

    def applied(table: pa.Table) -> pa.Table:
        bags = _in_order(table.rename_columns(names).to_pylist(), position)
        made = bags[0] if len(bags) == 1 else _same_key(function(*bags), bags[0], key)
        return _table(made, table.schema.types, names[:-1])

    grouped = _plainly_named(rows.select(*map(column, names)), key)
    return grouped.applyInArrow(applied, _plain_ddl(schema)).toDF(*schema.names)


def over_many(function: Callable[..., Rows], *, deltas: bool = False) -> Callable[..., Rows]:
    """Return a function of any number of lists: itself if it is variadic, else a fold of the binary function.

    Args:
        function: a merge, or a chain.
        deltas: whether it is a chain, which is not called for deltas that have become empty.
    """
    if takes_many(function):
        return function
    return lambda first, *others: reduce(
        lambda whole, other: function(whole, other) if whole or not deltas else other, others, first
    )


def takes_many(function: Callable[..., Rows]) -> bool:
    """Return whether a function is variadic."""
    kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
    return inspect.Parameter.VAR_POSITIONAL in kinds


def _in_order(rows: Rows, position: str | None) -> list[Rows]:
    if position is None:
        return [rows] if rows else []
    bags: dict[object, Rows] = {}
    for row in rows:
        bags.setdefault(row.pop(position), []).append(row)
    return [bags[place] for place in sorted(bags)]  # type: ignore[type-var]


def _plainly_named(frame: DataFrame, key: tuple[str, ...]) -> GroupedData:
    """Group a frame by key, with its columns renamed to c0, c1, …, as PySpark's grouped functions need plain names."""
    names = frame.columns
    return frame.toDF(*(f"c{place}" for place in range(len(names)))).groupBy(*(f"c{names.index(n)}" for n in key))


def _plain_ddl(schema: Schema) -> str:
    return ", ".join(f"c{place} {item.type}" for place, item in enumerate(schema.columns))


def _table(rows: Rows, types: Sequence[pa.DataType], names: list[str]) -> pa.Table:
    """Return rows as a table with plain column names and the types of the input columns."""
    ordered = [[row.get(name) for row in rows] for name in names]
    arrays = [pa.array(values, type=types[place]) for place, values in enumerate(ordered)]
    return pa.Table.from_arrays(arrays, names=[f"c{place}" for place in range(len(names))])


def _same_key(made: Rows, given: Rows, key: tuple[str, ...]) -> Rows:
    """Return a function's result if all its rows have the input's key."""
    wanted = repr([given[0][name] for name in key]) if given else None
    for row in made:
        if wanted is not None and repr([row.get(name) for name in key]) != wanted:
            raise ValueError(f"a per-key function that was given the key {wanted} returned the row {row}")
    return made
