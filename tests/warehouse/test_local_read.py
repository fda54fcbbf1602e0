"""What this process reads from small blocks equals what Spark reads from them, for every read plan of a history."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from kilonova.model.block import Base, BlockName, Delta
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.encoding import DELETED, WEIGHT, Append, Changes, Encoding, Upsert, key_of
from kilonova.model.read_plan import DiffRead, ReadPlan, SnapshotRead
from kilonova.model.schema import Schema
from kilonova.model.version import Version
from kilonova.model.write_plan import WritePlan
from kilonova.schedule.layout import LayoutThresholds
from kilonova.warehouse.blocks import schema_of
from kilonova.warehouse.local_read import SmallReader
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.warehouse import Warehouse
from tests.seeds import SEED
from tests.warehouse.test_local_checks import KEYS, TYPES, same
from tests.warehouse.test_local_merge import some_value

ENCODINGS = {"append": Append(), "changes": Changes(), "upsert": Upsert(("k.0", "k 1"))}


class History:
    """A channel whose every block is of another kind, with the rows that it has after each."""

    def __init__(self, spark: SparkSession, place: Path, encoding: Encoding, chance: random.Random) -> None:
        self.spark, self.encoding, self.chance = spark, encoding, chance
        self.storage, self.identity = Storage(str(place)), uuid4().hex[:8]
        self.exact = chance.random() < 0.5
        types = [kind for kind in TYPES if not self.exact or kind not in ("float", "double")]
        keys = [(name, chance.choice(KEYS)) for name in ("k.0", "k 1")]
        kinds = [*keys, *((f"v {kind}", kind) for kind in types)]
        self.schema = Schema.of(*kinds, ("added", "string"))
        channel = Channel(name="c", schema=self.schema, encoding=encoding)
        self.state = ChannelState(channel=channel, points=(), blocks=())
        self.rows: list[tuple[Any, ...]] = []

    def warehouse(self, **sizes: int) -> Warehouse:
        return Warehouse(self.spark, self.storage, self.identity, _no_functions, LayoutThresholds(**sizes))

    def add(self, count: int, *, strong: bool, base: bool = False) -> None:
        """Write the next block."""
        point = self.state.latest + 1
        schema = self.schema if self.state.blocks else self.schema.without("added")
        old = self.state.snapshot(point - 1)
        kind = Base(point) if base else Delta(point - 1, point)
        name = BlockName(point, "")
        plan = WritePlan(name=name, kind=kind, schema=schema, encoding=self.encoding, old=old, derived=not base)
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
        self.rows = [tuple(row) for row in self.warehouse(local_check_max=0).open(current).collect()]

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


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_read_plan_equals_that_of_spark(spark: SparkSession, tmp_path: Path, encoding: str) -> None:
    chance = random.Random(f"{SEED} {encoding}")
    made = History(spark, tmp_path, ENCODINGS[encoding], chance)
    for strong in (False, *chance.sample([False, True, False, True], 4)):
        made.add(8, strong=strong, base=not made.state.blocks and chance.random() < 0.5)
    here, there = made.warehouse(), made.warehouse(local_check_max=0)
    for reading, weighed in made.readings():
        read, expected = (house.shared(reading, True) if weighed else house.open(reading) for house in (here, there))
        local = read._jdf.queryExecution().analyzed().nodeName() == "LocalRelation"
        assert local or not made.exact, reading  # floating-point numbers are not added up here
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
    small = SmallReader(made.storage)
    for limit, least in (("_ROWS", rows), ("_BYTES", sum(block.statistics.bytes for block in newest.blocks))):
        with monkeypatch.context() as patched:
            patched.setattr(f"kilonova.warehouse.local_read.{limit}", least)
            assert small.rows(newest) is not None
            patched.setattr(f"kilonova.warehouse.local_read.{limit}", least - 1)
            assert small.rows(newest) is None
            assert small.stored(newest, True) is None
    assert small.rows(replace(newest, schema=newest.schema and newest.schema.plus(("more", "array<int>")))) is None
    monkeypatch.setattr("kilonova.warehouse.local_read._MEMORY", 10)
    assert small.rows(newest) is None
