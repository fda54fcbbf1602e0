"""Comparison of bags of rows, by key and without one."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kilonova.service.row_comparison import compare_rows, difference_of_bags


def rows(spark: SparkSession, *given: tuple[Any, ...], schema: str = "k int, `x.y` string, z array<int>") -> DataFrame:
    return spark.createDataFrame(given, schema)


def test_rows_of_a_key_are_compared_by_column_and_null_is_a_value(spark: SparkSession) -> None:
    before = rows(spark, (1, "a", [1]), (2, "b", None), (None, "c", []), (4, None, [4]))
    after = rows(spark, (1, "a", [1]), (2, "B", []), (None, "C", []), (5, "e", [5]))
    found = compare_rows(before, after, ["k"], 10)
    assert (found.before, found.after, found.added, found.removed, found.changed) == (4, 4, 3, 3, 2)
    assert found.differing == (("x.y", 2), ("z", 1))
    pairs = [(sign, row["k"]) for sign, row in found.examples]
    assert sorted(pairs, key=str) == sorted([("-", 2), ("+", 2), ("-", None), ("+", None), ("-", 4), ("+", 5)], key=str)
    assert pairs.index(("+", 2)) == pairs.index(("-", 2)) + 1
    assert ("+", {"k": 2, "x.y": "B", "z": []}) in found.examples
    assert len(compare_rows(before, after, ["k"], 2).examples) == 2
    assert difference_of_bags(before, after) == 6


@pytest.mark.parametrize("key", [(), ("k",)], ids=["bags", "maps"])
def test_rows_without_a_key_and_with_maps_are_counted(spark: SparkSession, key: tuple[str, ...]) -> None:
    schema = "k int, tags map<string, int>"
    before = rows(spark, (1, {"a": 1, "b": 2}), (1, {"a": 1, "b": 2}), (2, None), schema=schema)
    after = rows(spark, (1, {"b": 2, "a": 1}), (3, {}), (3, {}), schema=schema)
    found = compare_rows(before, after, key, 10)
    assert (found.before, found.after, found.added, found.removed, found.changed) == (3, 3, 2, 2, 0)
    assert sorted((sign, row["k"]) for sign, row in found.examples) == [("+", 3), ("-", 1), ("-", 2)]
