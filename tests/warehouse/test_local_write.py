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


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilonova.warehouse.local_write._ROWS", 3)
    monkeypatch.setattr("kilonova.warehouse.local_write._TEXT", 4)


def fetched(spark: SparkSession, rows: list[tuple[Any, ...]], *checks: Check) -> list[tuple[Any, ...]] | None:
    plan = WritePlan(name=BlockName(1, ""), kind=Base(1), schema=COLUMNS, encoding=Append(), checks=checks)
    table = fetch_small(spark.createDataFrame(rows, COLUMNS.ddl), COLUMNS, "place", plan)
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


def test_rows_that_violate_a_check_are_refused(spark: SparkSession) -> None:
    checks = (NotNull("raw"), RowCondition("id < 3"))
    assert fetched(spark, [], *checks) == []
    assert fetched(spark, [(1, "x", b"")], *checks) == [(1, "x", b"")]
    with pytest.raises(CheckFailed, match=r"1 row violates it, for example \{\"id\":1"):
        fetched(spark, ROWS, *checks)
    assert fetched(spark, [*ROWS, (4, "z", None)], *checks) is None
