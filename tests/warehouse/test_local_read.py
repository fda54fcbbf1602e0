"""What this process reads from small blocks equals what Spark reads from them, for every read plan of a history."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from kilonova.errors import StorageFailed
from kilonova.model.block import Base, BlockName, Delta
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.encoding import DELETED, WEIGHT, Append, Changes, Encoding, Upsert, delta_schema, key_of
from kilonova.model.read_plan import DiffRead, ReadPlan, SnapshotRead
from kilonova.model.schema import Column, Schema
from kilonova.model.version import Version
from kilonova.model.write_plan import WritePlan
from kilonova.schedule.layout import LayoutThresholds
from kilonova.warehouse.blocks import schema_of
from kilonova.warehouse.local_read import SmallReader, is_small_reading
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.warehouse import Warehouse
from tests.seeds import SEED, some
from tests.warehouse.test_local_checks import KEYS, TYPES, same
from tests.warehouse.test_local_merge import some_value

ENCODINGS = {"append": Append(), "changes": Changes(), "upsert": Upsert(("k.0", "k 1"))}


class History:
    """A channel whose every block is of another kind, with the rows that it has after each."""

    def __init__(
        self, spark: SparkSession, place: Path, encoding: Encoding, chance: random.Random, schema: Schema | None = None
    ) -> None:
        self.spark, self.encoding, self.chance = spark, encoding, chance
        self.storage, self.identity = Storage(str(place)), uuid4().hex[:8]
        self.exact = chance.random() < 0.5
        types = [kind for kind in TYPES if not self.exact or kind not in ("float", "double")]
        keys = [(name, chance.choice(KEYS)) for name in ("k.0", "k 1")]
        kinds = [*keys, *((f"v {kind}", kind) for kind in types)]
        self.schema = schema or Schema.of(*kinds, ("added", "string"))
        channel = Channel(name="c", schema=self.schema, encoding=encoding)
        self.state = ChannelState(channel=channel, points=(), blocks=())
        self.rows: list[tuple[Any, ...]] = []
        self.expected: int | None = None

    def warehouse(self, **sizes: int) -> Warehouse:
        return Warehouse(self.spark, self.storage, self.identity, _no_functions, LayoutThresholds(**sizes))

    def add(self, count: int, *, strong: bool, base: bool = False) -> None:
        """Write the next block."""
        point = self.state.latest + 1
        schema = self.schema if self.state.blocks else self.schema.without("added")
        old = self.state.snapshot(point - 1)
        kind = Base(point) if base else Delta(point - 1, point)
        name = BlockName(point, "")
        plan = WritePlan(
            name=name,
            kind=kind,
            schema=schema,
            encoding=self.encoding,
            old=old,
            derived=not base,
            expected=self.expected,
        )
        if base:
            columns, rows = schema, self._new(schema, count)
        elif strong:
            columns, rows = schema.plus(WEIGHT), self._strong(schema, count)
        else:
            keyed = bool(key_of(self.encoding))
            columns, rows = (schema.plus(DELETED) if keyed else schema), self._new(schema, count)
            rows = [(*row, self.chance.random() < 0.2) for row in rows] if keyed else rows
        block = self.warehouse().write(self.spark.createDataFrame(rows, columns.ddl), plan)
        assert block is not None
        self.state = self.state.with_block(block, Version(), 1)
        current = self.state.snapshot(point)
        times = [place for place, column in enumerate(schema.columns) if column.type == "timestamp"]
        found = [[*row] for row in self.warehouse(local_check_max=0).open(current).collect()]
        for row in found:
            for place in times:  # Spark returns points in time in the zone of this machine, without naming it
                row[place] = row[place] and row[place].astimezone(UTC)
        self.rows = [tuple(row) for row in found]

    def _new(self, schema: Schema, count: int) -> list[tuple[Any, ...]]:
        def some(name: str, kind: str) -> Any:
            known = self.rows and name in schema.names[:2] and self.chance.random() < 0.5
            if known:
                return None
            absent = name not in ("k.0", "k 1") and self.chance.random() < 0.2
            return None if absent else some_value(kind, self.chance)

        found = []
        for _ in range(count):
            row = [some(column.name, column.type) for column in schema.columns]
            old = self.chance.choice(self.rows) if self.rows else row
            found.append(tuple(old[n] if n < 2 and value is None else value for n, value in enumerate(row)))
        return list({row[:2]: row for row in found}.values()) if key_of(self.encoding) else found

    def _strong(self, schema: Schema, count: int) -> list[tuple[Any, ...]]:
        before = [(*row, *[None] * (len(schema.names) - len(row))) for row in self.rows]
        removed = self.chance.sample(before, min(len(before), count))
        added = self._new(schema, count)
        if key_of(self.encoding):
            by_key = {row[:2]: row for row in before}
            removed = [by_key[row[:2]] for row in added if row[:2] in by_key] + [
                row for row in removed if row[:2] not in {each[:2] for each in added}
            ]
        return [(*row, -1) for row in removed] + [(*row, 1) for row in added]

    def readings(self) -> Iterator[tuple[ReadPlan, bool]]:
        """Some read plans, with whether they are weighed: all kinds that there are of snapshots, deltas and so on."""
        points = range(self.state.latest + 1)
        found: list[ReadPlan] = [self.state.snapshot(point) for point in points]
        for start, end in combinations_with_replacement(points, 2):
            found += [self.state.delta(start, end), self.state.changes(start, end)]
        found = [plan for plan in found if not isinstance(plan, DiffRead) or not plan.old.blocks]
        self.chance.shuffle(found)
        newest_first = sorted(found, key=lambda plan: -len(plan.blocks))
        kinds = {(type(plan), type(plan.encoding)): plan for plan in reversed(newest_first)}
        for plan in (*kinds.values(), *found[:3]):
            yield plan, False
            if isinstance(plan, SnapshotRead) or isinstance(plan.encoding, Changes):
                yield plan, True


def _no_functions(name: str) -> Any:
    raise AssertionError(name)


def bag(frame: DataFrame) -> Counter[Any]:
    return Counter(same(tuple(row)) for row in frame.collect())


@pytest.mark.parametrize("encoding", some(ENCODINGS, 2))
@pytest.mark.parametrize("node", some(["LocalRelation", "ResolvedHint"], 1))
def test_every_read_plan_equals_that_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, node: str
) -> None:
    if node == "ResolvedHint":
        monkeypatch.setattr("kilonova.warehouse.local_read._LITERAL", 0)
    chance = random.Random(f"{SEED} {encoding}")
    made = History(spark, tmp_path, ENCODINGS[encoding], chance)
    for strong in (False, *chance.sample([False, True, False, True], 4)):
        made.add(8, strong=strong, base=not made.state.blocks and chance.random() < 0.5)
    here, there = made.warehouse(), made.warehouse(local_check_max=0)
    for reading, weighed in made.readings():
        read, expected = (house.shared(reading, True) if weighed else house.open(reading) for house in (here, there))
        local = read._jdf.queryExecution().analyzed().nodeName() in (node, "LocalRelation")
        assert local or not (made.exact and reading.blocks), reading  # no floats are added up here
        assert schema_of(read.schema) == schema_of(expected.schema), reading
        assert bag(read) == bag(expected), reading


def test_large_blocks_and_unknown_types_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = History(spark, tmp_path, Upsert(("k.0", "k 1")), random.Random(SEED))
    made.add(8, strong=False, base=True)
    made.add(4, strong=False)
    newest = made.state.snapshot(2)
    rows = sum(block.statistics.rows for block in newest.blocks)
    small = SmallReader(spark, made.storage)
    size, files = (sum(getattr(block.statistics, name) for block in newest.blocks) for name in ("bytes", "files"))
    for limit, least in (("_ROWS", rows), ("_BYTES", size), ("_FILES", files)):
        with monkeypatch.context() as patched:
            patched.setattr(f"kilonova.warehouse.local_read.{limit}", least)
            assert small.open(newest) is not None
            patched.setattr(f"kilonova.warehouse.local_read.{limit}", least - 1)
            assert small.open(newest) is None
            assert not is_small_reading(newest)
    assert small.open(replace(newest, schema=newest.schema and newest.schema.plus(("more", "array<int>")))) is None
    monkeypatch.setattr("kilonova.warehouse.local_read._MEMORY", 10)
    assert small.open(newest) is None


def test_rows_that_only_spark_can_merge_are_left_to_it(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema.of(("k", "double"))
    cases: list[tuple[Encoding, list[tuple[Any, ...]], bool]] = [
        (Changes(), [(1.0, 1)], False),  # to be grouped
        (Upsert(("k",)), [(1.0, False)], False),
        (Append(), [(1.0,)], True),
    ]
    for number, (encoding, rows, here) in enumerate(cases):
        read = _first(spark, tmp_path / str(number), encoding, schema, rows)
        assert (SmallReader(spark, read.storage).open(read.state.snapshot(1)) is not None) == here
        assert read.warehouse().open(read.state.snapshot(1)).count() == 1


@pytest.mark.parametrize("weight", [3, 10_001, 1 << 40])
def test_a_row_is_repeated_here_only_a_few_times(spark: SparkSession, tmp_path: Path, weight: int) -> None:
    made = _first(spark, tmp_path, Changes(), Schema.of(("v", "int")), [(1, weight)])
    found = SmallReader(spark, made.storage).open(made.state.snapshot(1))
    assert (None if found is None else found.count()) == (weight if weight == 3 else None)


def test_rows_stay_if_all_of_their_columns_were_dropped(spark: SparkSession, tmp_path: Path) -> None:
    made = _first(spark, tmp_path, Append(), Schema.of(("v", "int")), [(1,), (2,)])
    other = replace(made.state.snapshot(1), schema=Schema((Column("v", "int", since=1),)))
    assert made.warehouse().open(other).collect() == [(None,), (None,)]


def test_texts_that_a_file_has_once_do_not_fill_the_memory(tmp_path: Path) -> None:
    storage, block = Storage(str(tmp_path)), BlockName(1, "")
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10_000, dtype=np.int32)), ["x" * 100_000])
    storage.write_rows(block, "part-0.parquet", pa.table({"n": np.arange(10_000), "t": texts}))
    (file,) = storage.recorded(block)
    assert file.size < 1 << 20
    before = pa.default_memory_pool().max_memory()
    assert storage.small_table(block, [file], ["n", "t"], 4 << 20) is None
    assert pa.default_memory_pool().max_memory() - before < 256 << 20
    numbers = storage.small_table(block, [file], ["n"], 4 << 20)
    assert numbers is not None
    assert numbers["n"].to_pylist() == [*range(10_000)]


def test_a_file_that_cannot_be_read_is_an_error_that_names_the_block(spark: SparkSession, tmp_path: Path) -> None:
    made = _first(spark, tmp_path, Append(), Schema.of(("v", "string")), [("a" * 99,)] * 99)
    newest = made.state.snapshot(1)
    (block,), small = newest.blocks, SmallReader(spark, made.storage)
    (file,) = (tmp_path / block.name.directory / each.name for each in block.stored or ())
    whole = file.read_bytes()
    for content in (b"", whole[:-9], whole[: len(whole) // 2], bytes(len(whole))):
        file.write_bytes(content)
        with pytest.raises(StorageFailed, match="the block cannot be read") as raised:
            small.open(newest)
        assert raised.value.path == made.storage.path(block.name)
    file.unlink()
    with pytest.raises(StorageFailed, match="the block cannot be read"):
        small.open(newest)


def _first(
    spark: SparkSession, place: Path, encoding: Encoding, schema: Schema, rows: list[tuple[Any, ...]]
) -> History:
    """A channel with one delta."""
    made = History(spark, place, encoding, random.Random(SEED), schema)
    plan = WritePlan(name=BlockName(1, ""), kind=Delta(0, 1), schema=schema, encoding=encoding, derived=True)
    frame = spark.createDataFrame(rows, delta_schema(encoding, schema).ddl).coalesce(1)
    block = made.warehouse().write(frame, plan)
    assert block is not None
    made.state = made.state.with_block(block, Version(), 1)
    return made
