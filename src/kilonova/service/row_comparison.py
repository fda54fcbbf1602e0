"""Comparison of two bags of rows: how many are added, removed and changed, in which columns, and examples.

Where columns are known that identify the rows on both sides, rows are compared by them, and differ in single columns;
otherwise equal rows are counted. Either way it takes one Spark job, and another one for the examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kilonova.warehouse.blocks import column
from kilonova.warehouse.jobs import fetch

Example = tuple[str, dict[str, Any]]
"""Row that is added (`+`) or removed (`-`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDifference:
    """Difference between two bags of rows of the same columns.

    Attributes:
        before: the number of rows of the first.
        after: the number of rows of the second.
        added: the number of rows of the second only.
        removed: the number of rows of the first only.
        changed: the number of keys of which both have a row, with other values; 0 if there is no key.
        differing: the columns in which these rows differ, each with the number of rows.
        examples: some of the rows that are added or removed; those of a key together.
    """

    before: int
    after: int
    added: int
    removed: int
    changed: int = 0
    differing: tuple[tuple[str, int], ...] = ()
    examples: tuple[Example, ...] = ()


def compare_rows(before: DataFrame, after: DataFrame, key: Sequence[str], examples: int) -> RowDifference:
    """Return the difference between two bags of rows of the same columns.

    Args:
        before: the first.
        after: the second.
        key: columns that identify the rows of both, nulls counting as values; empty if none are known.
        examples: the maximum number of rows to return.
    """
    comparable = not any("map<" in kind or kind == "variant" for _, kind in before.dtypes)
    both = before.withColumn("_side", F.lit(-1)).unionByName(after.withColumn("_side", F.lit(1)))
    compare = _by_key if key and comparable else _as_bags
    return compare(both, before.columns, key, examples)


def difference_of_bags(old: DataFrame, new: DataFrame) -> int:
    """Return the number of rows in which two bags of the same columns differ."""
    found = compare_rows(old, new, (), 0)
    return found.added + found.removed


def _as_bags(both: DataFrame, names: Sequence[str], key: Sequence[str], examples: int) -> RowDifference:
    counts = both.groupBy(*map(column, names)).agg(
        F.count_if(F.col("_side") < 0).alias("_old"), F.count_if(F.col("_side") > 0).alias("_new")
    )
    old, new = F.col("_old"), F.col("_new")
    sums = (F.coalesce(F.sum(F.greatest(each, F.lit(0))), F.lit(0)) for each in (old, new, new - old, old - new))
    first, second, added, removed = map(int, fetch(counts.agg(*sums))[0])
    rows: list[tuple[Any, ...]] = []
    if examples and names and (added or removed):
        some = counts.where(old != new).withColumn("_sign", F.when(new > old, "+").otherwise("-"))
        rows = fetch(some.select("_sign", *map(column, names)).orderBy(_hash(names)), examples)
    return RowDifference(
        before=first, after=second, added=added, removed=removed, examples=tuple(_examples(rows, names))
    )


def _by_key(both: DataFrame, names: Sequence[str], key: Sequence[str], examples: int) -> RowDifference:
    values = [name for name in names if name not in key]
    row = F.struct(*(column(name).alias(f"c{place}") for place, name in enumerate(values)), F.lit(1).alias("there"))
    pairs = both.groupBy(*map(column, key)).agg(
        F.first(F.when(F.col("_side") < 0, row), ignorenulls=True).alias("_old"),
        F.first(F.when(F.col("_side") > 0, row), ignorenulls=True).alias("_new"),
    )
    old, new = F.col("_old"), F.col("_new")
    here, there, differs = old.isNotNull(), new.isNotNull(), ~old.eqNullSafe(new)
    unequal = [here & there & ~old[f"c{place}"].eqNullSafe(new[f"c{place}"]) for place, _ in enumerate(values)]
    conditions = (here, there, there & differs, here & differs, here & there & differs, *unequal)
    totals = fetch(pairs.agg(*map(F.count_if, conditions)))[0]
    first, second, added, removed, changed, *counts = map(int, totals)
    rows: list[tuple[Any, ...]] = []
    if examples and (added or removed):
        sides = F.array(
            F.struct(F.lit("-").alias("sign"), old.alias("row")), F.struct(F.lit("+").alias("sign"), new.alias("row"))
        )
        some = pairs.where(differs).select(*map(column, key), F.explode(sides).alias("_side"))
        some = some.where(F.col("_side.row").isNotNull()).orderBy(
            _hash(key), *map(column, key), F.col("_side.sign").desc()
        )
        chosen = (column(name) if name in key else F.col("_side.row")[f"c{values.index(name)}"] for name in names)
        rows = fetch(some.select(F.col("_side.sign"), *chosen), examples)
    return RowDifference(
        before=first,
        after=second,
        added=added,
        removed=removed,
        changed=changed,
        differing=tuple((name, count) for name, count in zip(values, counts, strict=True) if count),
        examples=tuple(_examples(rows, names)),
    )


def _hash(names: Sequence[str]) -> Column:
    """Return a hash of columns of any types, by which examples are chosen: Spark has none of maps."""
    return F.xxhash64(*(column(name).cast("string") for name in names))


def _examples(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> Sequence[Example]:
    return [(sign, dict(zip(names, row, strict=True))) for sign, *row in rows]
