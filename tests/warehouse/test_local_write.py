"""Only results that are small, whatever was expected of them, are fetched."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from kilonova.errors import CheckFailed
from kilonova.model.block import Base, BlockName
from kilonova.model.check import Check, NotNull, RowCondition
from kilonova.model.encoding import Append
from kilonova.model.schema import Schema
from kilonova.model.write_plan import WritePlan
from kilonova.warehouse.local_write import fetch_small

COLUMNS = Schema.of(("id", "int"), ("a long text", "string"), ("raw", "binary"))
ROWS = [(1, "x", None), (2, None, b"y"), (3, "", b"")]
NESTED = Schema.of(("id", "int"), ("n.1", "array<struct<a:string,c:map<string,array<int>>>>"))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilonova.warehouse.local_write._ROWS", 3)
    monkeypatch.setattr("kilonova.warehouse.local_write._TEXT", 4)
    monkeypatch.setattr("kilonova.warehouse.local_write._ELEMENTS", 2)


def fetched(
    spark: SparkSession, rows: list[tuple[Any, ...]], columns: Schema = COLUMNS, *checks: Check
) -> list[tuple[Any, ...]] | None:
    plan = WritePlan(name=BlockName(1, ""), kind=Base(1), schema=columns, encoding=Append(), checks=checks)
    table = fetch_small(spark.createDataFrame(rows, columns.ddl), columns, "place", plan)
    return None if table is None else [tuple(row.values()) for row in table.to_pylist()]


def test_few_rows_with_short_texts_are_fetched_as_they_are(spark: SparkSession) -> None:
    assert fetched(spark, ROWS) == ROWS
    assert fetched(spark, [(1, "éé", b"1234")]) == [(1, "éé", b"1234")]
    assert fetched(spark, []) == []


@pytest.mark.parametrize("rows", [[*ROWS, (4, "z", None)], [(1, "ééé", None)], [*ROWS[:2], (3, None, b"12345")]])
def test_more_rows_and_longer_texts_are_not(spark: SparkSession, rows: list[tuple[Any, ...]]) -> None:
    assert fetched(spark, rows) is None


def test_many_columns_allow_fewer_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilonova.warehouse.local_write._MEMORY", 3 * (16 + 4 + 4) - 1)
    assert fetched(spark, ROWS) is None
    assert fetched(spark, ROWS[:2]) == ROWS[:2]


def element(text: str | None = "ab", entries: list[tuple[str, list[int | None] | None]] | None = None) -> Any:
    return {"a": text, "c": None if entries is None else dict(entries)}


def test_nested_values_are_fetched_unless_a_part_is_large(spark: SparkSession) -> None:
    small = [element(None, [("x", [1, None]), ("y", None)]), None]
    rows = [(1, small), (2, None), (3, [])]
    found = [(1, [element(None) | {"c": [("x", [1, None]), ("y", None)]}, None]), *rows[1:]]
    assert fetched(spark, rows, NESTED) == found
    for large in (
        [None, None, None],
        [None, element("12345")],
        [element(entries=[("12345", None)])],
        [element(entries=[("x", None), ("y", None), ("z", None)])],
        [element(entries=[("x", None), ("y", [1, 2, 3])])],
    ):
        assert fetched(spark, [(1, small), (2, large)], NESTED) is None


def test_rows_that_violate_a_check_are_refused(spark: SparkSession) -> None:
    checks = (NotNull("raw"), RowCondition("id < 3"))
    assert fetched(spark, [(1, "x", b"")], COLUMNS, *checks) == [(1, "x", b"")]
    with pytest.raises(CheckFailed, match=r"1 row violates it, for example \{\"id\":1"):
        fetched(spark, ROWS, COLUMNS, *checks)
    assert fetched(spark, [*ROWS, (4, "z", None)], COLUMNS, *checks) is None
