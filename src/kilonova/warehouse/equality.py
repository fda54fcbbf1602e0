"""Equality of values, as in the reference: nulls are equal, NaN equals NaN, and maps are equal in any order.

Spark does not compare maps, and grouping by them treats a null value as zero (Spark 4.3, `array<map<…>>` and similar
types). So maps are compared as their sorted entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import itemgetter, or_
from typing import Any

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from kilonova.warehouse.blocks import column


def comparable(value: Column, type_: DataType) -> Column:
    """Return a value that Spark compares in the way that the given one should be compared."""
    if not _has_map(type_):
        return value
    match type_:
        case MapType():
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    comparable(entry["key"], type_.keyType).alias("key"),
                    comparable(entry["value"], type_.valueType).alias("value"),
                ),
            )
            return F.array_sort(entries)
        case ArrayType():
            return F.transform(value, lambda item: comparable(item, type_.elementType))
        case StructType():
            fields = (comparable(value[field.name], field.dataType).alias(field.name) for field in type_.fields)
            return F.when(value.isNotNull(), F.struct(*fields))
        case _:
            return value


def any_of(conditions: Iterable[Column]) -> Column:
    """Return whether any condition holds, as an expression tree of less depth than there are conditions."""
    level = list(conditions) or [F.lit(False)]
    while len(level) > 1:
        level = [reduce(or_, level[place : place + 2]) for place in range(0, len(level), 2)]
    return level[0]


def weights_added(rows: DataFrame, names: Sequence[str], weight: Column) -> DataFrame:
    """Sum the weights of equal rows; rows of weight zero are dropped."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    maps = [name for name in names if _has_map(types[name])]
    plain = [column(name) for name in names if name not in maps]
    total = F.sum(weight).cast("bigint").alias("_weight")
    if not maps:
        return rows.groupBy(*plain).agg(total).where(column("_weight") != 0)
    grouped: GroupedData = rows.groupBy(
        *plain, *(comparable(column(name), types[name]).alias(f"_map_{place}") for place, name in enumerate(maps))
    )
    summed = grouped.agg(*(F.first(column(name)).alias(name) for name in maps), total)
    return summed.where(column("_weight") != 0).select(*map(column, names), column("_weight"))


def differ_at_end(rows: Iterable[tuple[Any, tuple[Any, ...] | None, int]]) -> bool:
    """Return whether, for any key, the last row differs from the row before it.

    Args:
        rows: rows as fetched from Spark: the key, the row or None for a deletion, and the position.
    """
    before: dict[str, tuple[Any, ...] | None] = {}
    after: dict[str, tuple[Any, ...] | None] = {}
    ordered = sorted(rows, key=itemgetter(2))
    for key, row, position in ordered:
        (after if position == ordered[-1][2] else before)[repr(key)] = row
    return any(before.get(key) != row and repr(before.get(key)) != repr(row) for key, row in after.items())


def _has_map(type_: DataType) -> bool:
    match type_:
        case MapType():
            return True
        case ArrayType():
            return _has_map(type_.elementType)
        case StructType():
            return any(_has_map(field.dataType) for field in type_.fields)
        case _:
            return False
