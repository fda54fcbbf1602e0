"""Only results that are small, whatever was expected of them, are fetched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kilonova.errors import CheckFailed
from kilonova.model.block import Base, Block, BlockName, Statistics
from kilonova.model.check import Check, NotNull, RowCondition
from kilonova.model.encoding import Append
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.schema import Schema
from kilonova.model.write_plan import WritePlan
from kilonova.warehouse.jobs import Layout
from kilonova.warehouse.local_write import FetchLimit, fetch_limit, fetch_rows

COLUMNS = Schema.of(("id", "int"), ("a long text", "string"), ("raw", "binary"))
ROWS = [(1, "x", None), (2, None, b"y"), (3, "", b"")]


SMALL = FetchLimit(rows=3, memory=1000, text=4)


def plan_of(*checks: Check, old: SnapshotRead | None = None, expected: int | None = None) -> WritePlan:
    return WritePlan(
        name=BlockName(1, ""),
        kind=Base(1),
        schema=COLUMNS,
        encoding=Append(),
        checks=checks,
        old=old,
        expected=expected,
    )


def fetched(
    spark: SparkSession, rows: list[tuple[Any, ...]], *checks: Check, limit: FetchLimit = SMALL
) -> list[tuple[Any, ...]] | None:
    frame = spark.createDataFrame(rows, COLUMNS.ddl).repartition(limit.partitions, "id")
    table = fetch_rows(frame, COLUMNS, "place", plan_of(*checks), limit)
    return None if table is None else sorted(tuple(row.values()) for row in table.to_pylist())


def test_few_rows_with_short_texts_are_fetched_as_they_are(spark: SparkSession) -> None:
    assert fetched(spark, ROWS) == ROWS
    assert fetched(spark, [(1, "éé", b"1234")]) == [(1, "éé", b"1234")]
    assert fetched(spark, []) == []


@pytest.mark.parametrize("rows", [[*ROWS, (4, "z", None)], [(1, "ééé", None)], [*ROWS[:2], (3, None, b"12345")]])
def test_more_rows_and_longer_texts_are_not(spark: SparkSession, rows: list[tuple[Any, ...]]) -> None:
    assert fetched(spark, rows) is None


def test_many_columns_allow_fewer_rows(spark: SparkSession) -> None:
    limit = replace(SMALL, memory=3 * (16 + 4 + 4) - 1).of(COLUMNS, 1)
    assert fetched(spark, ROWS, limit=limit) is None
    assert fetched(spark, ROWS[:2], limit=limit) == ROWS[:2]


def test_rows_that_violate_a_check_are_refused(spark: SparkSession) -> None:
    checks = (NotNull("raw"), RowCondition("id < 3"))
    assert fetched(spark, [], *checks) == []
    assert fetched(spark, [(1, "x", b"")], *checks) == [(1, "x", b"")]
    with pytest.raises(CheckFailed, match=r"1 row violates it, for example \{\"id\":1"):
        fetched(spark, ROWS, *checks)
    assert fetched(spark, [*ROWS, (4, "z", None)], *checks) is None


def test_larger_ones_are_fetched_in_partitions_until_one_exceeds_the_limit(spark: SparkSession) -> None:
    limit = FetchLimit(rows=40, memory=1 << 20, text=4, partitions=2)
    rows = [(n, "ééx"[: n % 3], None) for n in range(24)]  # of which a partition has at most 20
    checks = (RowCondition("id < 23"),)
    assert fetched(spark, rows, limit=limit) == rows
    assert fetched(spark, [], limit=limit) == []
    assert fetched(spark, rows[:20], *checks, limit=limit) == rows[:20]
    with pytest.raises(CheckFailed, match="1 row violates it"):
        fetched(spark, rows, *checks, limit=limit)
    assert fetched(spark, rows, limit=replace(limit, rows=20)) is None
    assert fetched(spark, [*rows, (24, "ééé", None)], limit=limit) is None
    assert fetched(spark, [*rows, (24, None, b"12345")], *checks, limit=limit) is None


def of_blocks(rows: int, size: int) -> SnapshotRead:
    base = Block(
        number=1,
        kind=Base(1),
        schema=COLUMNS,
        encoding=Append(),
        columns=COLUMNS,
        buckets=0,
        statistics=Statistics(rows=rows, bytes=size, files=1),
        suffix="",
        stored=(),
    )
    return SnapshotRead(at=1, schema=COLUMNS, encoding=Append(), base=base, deltas=())


@pytest.mark.parametrize(
    ("expected", "rows", "size", "larger"),
    [
        (9 << 20, 1000, 10_000, True),
        (20 << 20, 1000, 24_000, True),
        (20 << 20, 1000, 24_001, False),  # the rows are wide
        (10 << 20, 1000, 10_000, False),  # they are too many
        (10 << 20, 0, 0, False),  # their width is not known
    ],
)
def test_as_many_are_fetched_as_blocks_before_say_that_fit(expected: int, rows: int, size: int, larger: bool) -> None:
    keyed = Layout(key=("id",), buckets=0, tasks=3, checked_later=True)
    plan = plan_of(old=of_blocks(rows, size), expected=expected)
    limit = fetch_limit(plan, COLUMNS, keyed, local_mode=True)
    assert (limit is not None) == larger
    if limit is not None:
        assert limit.partitions == 3
        assert limit.rows == (512 << 20) // (16 + 128 + 128)
    assert fetch_limit(plan, COLUMNS, keyed, local_mode=False) is None
    assert fetch_limit(plan, COLUMNS, replace(keyed, checked_later=False), local_mode=True) is None
    assert fetch_limit(plan, COLUMNS, replace(keyed, buckets=4), local_mode=True) is None


def test_small_ones_are_fetched_from_any_spark() -> None:
    layout = Layout(key=(), buckets=0, tasks=1)
    for local_mode in (False, True):
        limit = fetch_limit(plan_of(expected=2 << 20), COLUMNS, layout, local_mode=local_mode)
        assert limit is not None
        assert (limit.rows, limit.partitions) == ((128 << 20) // (16 + 1024 + 1024), 1)
        assert fetch_limit(plan_of(expected=(2 << 20) + 1), COLUMNS, layout, local_mode=local_mode) is None
        assert fetch_limit(plan_of(), COLUMNS, layout, local_mode=local_mode) is None
