"""Compaction in this process equals the reference, and what Spark makes of the same blocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from kilonova.model.block import Base, Block, BlockName, Delta
from kilonova.model.encoding import Changes, Upsert
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.schema import Schema
from kilonova.model.write_plan import WritePlan
from kilonova.schedule.layout import LayoutThresholds
from kilonova.warehouse.arrow_types import comparable_types
from kilonova.warehouse.bucket_merge import last_rows
from kilonova.warehouse.bucket_merge import write_merged as write_merged_rows
from kilonova.warehouse.local_merge import write_merged
from kilonova.warehouse.spark_hash import buckets_of, hashes_like_spark
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.warehouse import Warehouse
from tests.seeds import SEED, some
from tests.warehouse.test_local_checks import KEYS, TYPES, same, table, upserts

HASHED = [*(kind for kind in KEYS if kind != "decimal(38,18)"), "decimal(10,2)"]
TEXTS = ("", "a", "abc", "abcd", "abcdé", "日本語のテキスト", "x" * 33, "\0", "a\0")


def some_value(kind: str, chance: random.Random) -> Any:
    if kind == "decimal(10,2)":
        return Decimal(chance.randrange(-(10**9), 10**9)) / 100
    if kind == "string":
        return chance.choice(TEXTS)
    if kind in ("int", "bigint") and chance.random() < 0.7:
        return chance.randrange(40)
    return chance.choice(TYPES[kind][1])


def type_of(kind: str) -> pa.DataType:
    return pa.decimal128(10, 2) if kind == "decimal(10,2)" else TYPES[kind][0]


def test_keys_are_hashed_as_spark_does(spark: SparkSession) -> None:
    chance = random.Random(SEED)
    for kinds in [(kind,) for kind in HASHED] + [tuple(chance.choices(HASHED, k=3)) for _ in range(3)]:
        columns = [pa.array([some_value(kind, chance) for _ in range(50)], type_of(kind)) for kind in kinds]
        keys = pa.Table.from_arrays(columns, names=[f"k{n}" for n in range(len(kinds))]).slice(3)
        assert hashes_like_spark(keys.schema)
        (frame,) = [spark.createDataFrame(keys)]
        rows = frame.selectExpr(f"pmod(hash({', '.join(frame.columns)}), 64) AS bucket").collect()
        assert buckets_of(keys, 64).tolist() == [row.bucket for row in rows], kinds
    assert not hashes_like_spark(pa.schema([("k", pa.decimal128(38, 18))]))


@seed(SEED)
@settings(max_examples=300, deadline=None)
@given(made=upserts(), chance=st.randoms(use_true_random=False))
def test_the_last_rows_in_the_order_of_their_keys(
    made: tuple[Schema, tuple[str, ...], list[list[tuple[Any, ...]]]], chance: random.Random
) -> None:
    schema, key, blocks = made
    base, deltas = blocks[0], blocks[1:] or [[]]
    newest = {row[: len(key)]: row for block in deltas for row in block}
    delta = last_rows([table(schema, block) for block in deltas], key)
    assert delta.column_names == [*schema.names, "_deleted"]
    assert listed(delta) == [same(row) for _, row in sorted(newest.items())]

    there = [(*row[:-1], False) for row in base]
    merged = {row[: len(key)]: row for row in (*there, *newest.values())}
    expected = [same(row[:-1]) for _, row in sorted(merged.items()) if not row[-1]]
    if chance.random() < 0.7:
        there.sort(key=lambda row: row[: len(key)])
    whole = table(schema, there).drop_columns("_deleted")
    ends = sorted({0, len(there), *(chance.randint(0, len(there)) for _ in range(chance.randrange(4)))})
    parts = [whole.slice(begin, end - begin) for begin, end in pairwise(ends)] or [whole]
    written: list[list[pa.Table]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kilonova.warehouse.bucket_merge._AHEAD", chance.choice((1, 2, 1024)))
        write_merged_rows(lambda: parts, delta, key, lambda rows: written.append(list(rows)))
    assert listed(pa.concat_tables(written[-1])) == expected


def listed(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [same(tuple(row.values())) for row in rows.to_pylist()]


class Channel:
    """Blocks of an upsert channel, with strong deltas among them, and a base without the last column."""

    def __init__(self, spark: SparkSession, place: Path, chance: random.Random) -> None:
        self.spark, self.storage, self.chance = spark, Storage(str(place)), chance
        self.key = tuple(f"k {n}" for n in range(chance.randint(1, 2)))
        kinds = [
            *zip(self.key, chance.choices(HASHED, k=len(self.key)), strict=True),
            *((f"v.{n}", kind) for n, kind in enumerate(TYPES)),
        ]
        self.schema = Schema.of(*kinds, ("added", "string"))
        self.encoding = Upsert(self.key)
        self.identity = uuid4().hex[:8]
        self.blocks: list[Block] = []
        self._numbers = itertools.count(1)

    def warehouse(self, sizes: LayoutThresholds) -> Warehouse:
        return Warehouse(self.spark, self.storage, self.identity, _no_functions, sizes)

    def snapshot(self, blocks: Sequence[Block] | None = None, schema: Schema | None = None) -> SnapshotRead:
        base, *deltas = self.blocks if blocks is None else blocks
        return SnapshotRead(
            at=(deltas[-1] if deltas else base).end,
            schema=schema or self.schema,
            encoding=self.encoding,
            base=base,
            deltas=tuple(deltas),
        )

    def write(self, sizes: LayoutThresholds, rows: int, *, strong: bool = False) -> None:
        """Write the next block."""
        point = len(self.blocks) + 1
        schema = self.schema if self.blocks else self.schema.without("added")
        name, kind = BlockName(next(self._numbers), ""), Delta(point - 1, point) if self.blocks else Base(1)
        old = self.snapshot() if self.blocks else None
        plan = WritePlan(
            name=name, kind=kind, schema=schema, encoding=self.encoding, old=old, expected=40 << 20, strong=strong
        )
        values = {row[: len(self.key)]: row for row in (self._row(schema) for _ in range(rows))}
        frame = self.spark.createDataFrame(list(values.values()), f"{schema.ddl}, _deleted boolean")
        block = self.warehouse(sizes).write(frame if self.blocks else frame.drop("_deleted"), plan)
        if block is not None:
            self.blocks.append(block)

    def _row(self, schema: Schema) -> tuple[Any, ...]:
        values = [
            None if item.name not in self.key and self.chance.random() < 0.2 else some_value(item.type, self.chance)
            for item in schema.columns
        ]
        return (*values, self.chance.random() < 0.2)

    def rows(self, frame: DataFrame) -> list[tuple[Any, ...]]:
        return sorted((same(tuple(row)) for row in frame.collect()), key=repr)


def _no_functions(name: str) -> Any:
    raise AssertionError(name)


ALIGNED = LayoutThresholds(bucketing_min=1, bucket_size=8 << 20, single_task_max=0)
LAYOUTS = {
    "one file": (LayoutThresholds(), LayoutThresholds()),
    "buckets": (ALIGNED, ALIGNED),
    "more buckets": (ALIGNED, replace(ALIGNED, bucket_size=1 << 12)),
    "fewer buckets": (ALIGNED, replace(ALIGNED, bucket_size=1 << 30)),
    "first buckets": (LayoutThresholds(), replace(ALIGNED, bucket_size=1 << 12)),
    "no more buckets": (ALIGNED, LayoutThresholds()),
}


@pytest.mark.parametrize("layout", some(LAYOUTS, 2))
def test_spark_compacts_to_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    before, after = LAYOUTS[layout]
    chance = random.Random(f"{SEED}/{layout}")
    monkeypatch.setattr("kilonova.warehouse.parquet_rows._BATCH", chance.choice((2, 7, 1 << 18)))
    monkeypatch.setattr("kilonova.warehouse.parquet_rows._ROWS_TOGETHER", chance.choice((3, 16, 1 << 20)))
    made = Channel(spark, tmp_path, chance)
    for rows, strong in ((60, False), (20, False), (20, True), (0 if chance.random() < 0.2 else 5, False)):
        made.write(before, rows, strong=strong)
    if layout in ("buckets", "more buckets", "fewer buckets"):
        assert made.blocks[0].buckets > 1
    assert any(block.encoding == Changes(made.key) for block in made.blocks)
    spark_only = made.warehouse(replace(after, local_check_max=0))
    here = made.warehouse(after).compact(made.snapshot(), BlockName(8))
    there = spark_only.compact(made.snapshot(), BlockName(9))
    columns = ("rows", "removals", "net_rows")
    assert [getattr(here.statistics, name) for name in columns] == [getattr(there.statistics, name) for name in columns]
    assert (here.buckets, here.kind, here.columns) == (there.buckets, there.kind, there.columns)
    expected = made.rows(spark_only.open(made.snapshot()))
    assert made.blocks[0].statistics.rows
    assert made.rows(spark_only.open(made.snapshot([here]))) == expected

    base, delta = made.snapshot([here]), made.blocks[-1]
    if delta.encoding == made.encoding:  # the rows of a strong delta can only be added once
        later = replace(delta, kind=Delta(base.at, base.at + 1))
        merged = [made.rows(spark_only.open(made.snapshot([each, later]))) for each in (here, there)]
        assert merged[0] == merged[1] == expected
    key = spark.read.parquet(*(f"{tmp_path}/{here.name.directory}/{file.name}" for file in here.stored or ()))
    if here.buckets:
        place = "CAST(regexp_extract(_metadata.file_name, '_(\\\\d+)[.]', 1) AS INT)"
        names = ", ".join(f"`{name}`" for name in made.key)
        assert not key.where(f"pmod(hash({names}), {here.buckets}) != {place}").count()
    for file in here.stored or ():
        rows = made.storage.table(here.name, [file], list(made.key)).to_pylist()
        assert rows == sorted(rows, key=lambda row: tuple(row.values()))


@pytest.mark.parametrize("layout", some(LAYOUTS, 1))
def test_merged_deltas_are_read_as_those_that_they_were_merged_from(
    spark: SparkSession, tmp_path: Path, layout: str
) -> None:
    before, after = LAYOUTS[layout]
    chance = random.Random(f"{SEED}/{layout}")
    made = Channel(spark, tmp_path, chance)
    for rows in (60, 20, 0 if chance.random() < 0.2 else 5, 30, 10):
        made.write(before, rows)
    base, *deltas = made.blocks
    assert base.statistics.rows
    expected = made.rows(made.warehouse(replace(before, local_check_max=0)).open(made.snapshot()))
    other = Schema((*made.schema.without("v.0").columns, *Schema.of(("later", "int")).columns))
    changed = made.rows(made.warehouse(replace(before, local_check_max=0)).open(made.snapshot(schema=other)))
    ways = {"here": before, "by Spark": replace(before, local_check_max=0)}
    ways["broadcast"] = replace(before, broadcast_max=1 << 40)
    for number, (way, sizes) in enumerate(ways.items(), 1):
        warehouse = made.warehouse(sizes)
        merged = warehouse.merge_deltas(tuple(deltas[:-1]), base, BlockName(10 * number))
        assert (merged.kind, merged.buckets) == (Delta(1, deltas[-2].end), base.buckets), way
        added = [block.statistics.net_rows or 0 for block in deltas]
        assert merged.statistics.net_rows == sum(added[:-1]), way
        assert base.statistics.rows + sum(added) == len(expected), way
        again = warehouse.merge_deltas((merged, deltas[-1]), base, BlockName(10 * number + 1))
        for blocks in ([base, merged, deltas[-1]], [base, again]):
            for reader in ways.values():
                assert made.rows(made.warehouse(reader).open(made.snapshot(blocks))) == expected, way
                assert made.rows(made.warehouse(reader).open(made.snapshot(blocks, other))) == changed, way
            compacted = made.warehouse(after).compact(made.snapshot(blocks), BlockName(10 * number + len(blocks)))
            assert made.rows(warehouse.open(made.snapshot([compacted]))) == expected, way


def test_long_texts_in_keys_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Channel(spark, tmp_path, random.Random(SEED))
    made.key, made.encoding = ("k",), Upsert(("k",))
    made.schema = Schema.of(("k", "string"), ("added", "string"))
    for _ in range(3):
        made.write(LayoutThresholds(), 9)
    monkeypatch.setattr("kilonova.warehouse.spark_hash._MATRIX", 10)
    warehouse = made.warehouse(LayoutThresholds())
    assert not write_merged(made.storage, made.snapshot(), made.schema, BlockName(8), 0)
    assert warehouse.storage.found(BlockName(8)) is None
    compacted = warehouse.compact(made.snapshot(), BlockName(9))
    assert made.rows(warehouse.open(made.snapshot([compacted]))) == made.rows(warehouse.open(made.snapshot()))


def test_keys_that_only_spark_can_hash_are_left_to_it(spark: SparkSession, tmp_path: Path) -> None:
    assert comparable_types(Schema.of(("k", "decimal(38,18)")), ["k"], as_key=True)
    made = Channel(spark, tmp_path, random.Random(SEED))
    made.key, made.encoding = ("k",), Upsert(("k",))
    made.schema = Schema.of(("k", "decimal(38,18)"), ("added", "string"))
    made.write(ALIGNED, 3)
    made.write(ALIGNED, 3)
    compacted = made.warehouse(ALIGNED).compact(made.snapshot(), BlockName(9))
    assert made.rows(made.warehouse(ALIGNED).open(made.snapshot([compacted]))) == made.rows(
        made.warehouse(ALIGNED).open(made.snapshot())
    )
