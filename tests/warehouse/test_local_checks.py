"""What this process finds in small blocks with Arrow equals what the reference, and Spark, find in them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from kilonova.errors import CheckFailed, KeyViolation
from kilonova.model.block import Base, Block, BlockName, Delta
from kilonova.model.check import Check, NotNull, RowCondition
from kilonova.model.encoding import Upsert
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.schema import Schema
from kilonova.model.write_plan import WritePlan
from kilonova.schedule.layout import LayoutThresholds
from kilonova.warehouse.arrow_types import comparable_types, stored_types
from kilonova.warehouse.local_checks import as_strong, key_metrics, upsert_changes
from kilonova.warehouse.spark_hash import hashes_of
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.warehouse import Warehouse
from tests.seeds import SEED

Bag = Counter[Any]
NAN = float("nan")
NOON = datetime(2024, 2, 29, 12, 0, 0, 123456)

TYPES: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "tinyint": (pa.int8(), (-128, 0, 127)),
    "smallint": (pa.int16(), (-1, 0, 1)),
    "int": (pa.int32(), (-1, 0, 1)),
    "bigint": (pa.int64(), (-(2**63), 0, 2**63 - 1)),
    "float": (pa.float32(), (NAN, 0.0, -0.0, 1.5)),
    "double": (pa.float64(), (NAN, 0.0, -0.0, float("inf"))),
    "string": (pa.string(), ("", " ", "é", "e\u0301")),
    "binary": (pa.binary(), (b"", b"\0", b"a")),
    "boolean": (pa.bool_(), (False, True)),
    "date": (pa.date32(), (date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31))),
    "timestamp": (pa.timestamp("us", "UTC"), tuple(t.replace(tzinfo=UTC) for t in (NOON, datetime(1900, 1, 1)))),
    "timestamp_ntz": (pa.timestamp("us"), (NOON, datetime(9999, 12, 31))),
    "decimal(38,18)": (pa.decimal128(38, 18), (Decimal("1E-18"), Decimal(0), Decimal("99999999999999999999"))),
    "array<double>": (pa.list_(pa.field("element", pa.float64())), ([], [None], [NAN, 0.0], [NAN, -0.0], [1.0, NAN])),
    "struct<a:int,b:array<string>>": (
        pa.struct({"a": pa.int32(), "b": pa.list_(pa.field("element", pa.string()))}),
        ({"a": None, "b": None}, {"a": 1, "b": []}, {"a": 1, "b": ["x"]}, {"a": 1, "b": ["y"]}),
    ),
    "array<struct<a:timestamp>>": (
        pa.list_(pa.field("element", pa.struct({"a": pa.timestamp("us", "UTC")}))),
        ([None, {"a": None}], [{"a": None}, None], [{"a": NOON.replace(tzinfo=UTC)}]),
    ),
}
MAPS = {
    "map<string,int>": ({}, {"a": 1, "b": None}, {"b": None, "a": 1}),
    "struct<m:map<int,array<date>>>": ({"m": None}, {"m": {1: [date(1, 1, 1), None], 2: None}}),
}
VALUES = {kind: values for kind, (_, values) in TYPES.items()} | MAPS
KEYS = [kind for kind in TYPES if comparable_types(Schema.of(("k", kind)), ["k"], as_key=True)]


def test_types_that_spark_compares_by_rules_of_its_own_are_left_to_it() -> None:
    assert {kind for kind in TYPES if "<" not in kind} - set(KEYS) == {"float", "double", "binary"}
    assert not any("<" in kind for kind in KEYS)
    for kind in MAPS:
        assert stored_types(Schema.of(("c", kind)))
        assert not comparable_types(Schema.of(("c", kind)), ["c"])
    for kind in (
        "string collate UNICODE_CI",
        "variant",
        "varchar(3)",
        "array<void>",
        "map<string,interval day to second>",
        "struct<a:int,b:array<string collate UNICODE_CI>>",
        "struct<a:int,a:int>",
        "struct<int,a:string>",
        "struct<>",
    ):
        assert not stored_types(Schema.of(("c", kind)))


@st.composite
def upserts(draw: st.DrawFn) -> tuple[Schema, tuple[str, ...], list[list[tuple[Any, ...]]]]:
    """A schema, its key, and blocks of rows with unique keys that end with `_deleted`; the last is the delta."""
    key = [(f"k {n}", kind) for n, kind in enumerate(draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2)))]
    others = [(f"v.{n}", kind) for n, kind in enumerate(draw(st.lists(st.sampled_from(list(TYPES)), max_size=2)))]
    row = st.tuples(
        *(st.sampled_from(TYPES[kind][1]) for _, kind in key),
        *(st.none() | st.sampled_from(TYPES[kind][1]) for _, kind in others),
        st.booleans(),
    )
    block = st.lists(row, max_size=6, unique_by=lambda values: values[: len(key)])
    blocks = draw(st.lists(block, min_size=1, max_size=4))
    return Schema.of(*key, *others), tuple(name for name, _ in key), blocks


def expected(blocks: list[list[tuple[Any, ...]]], key: int) -> tuple[Bag, Bag]:
    """The rows that the last block removes from those before it and adds to them, as sentences say it."""
    before: dict[Any, tuple[Any, ...]] = {}
    for block in blocks[:-1]:
        for row in block:
            before[row[:key]] = row
    there = {place: same(row[:-1]) for place, row in before.items() if not row[-1]}
    removed, added = Bag(), Bag()
    for row in blocks[-1]:
        was, now = there.get(row[:key]), None if row[-1] else same(row[:-1])
        if was != now:
            removed.update([] if was is None else [was])
            added.update([] if now is None else [now])
    return removed, added


def same(value: Any) -> Any:
    """A value that equals those that Spark takes for the same."""
    if isinstance(value, dict):
        return same(tuple(value.values()))
    if isinstance(value, list | tuple):
        return tuple(map(same, value))
    return "NaN" if value != value else value


def table(schema: Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    names = [*schema.names, "_deleted"]
    types = [*(TYPES[item.type][0] for item in schema.columns), pa.bool_()]
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(types)]
    return pa.Table.from_arrays(columns, names=names)


@seed(SEED)
@settings(max_examples=300, deadline=None)
@given(made=upserts())
def test_the_changes_by_an_upsert(made: tuple[Schema, tuple[str, ...], list[list[tuple[Any, ...]]]]) -> None:
    schema, key, blocks = made
    *older, delta = (table(schema, block) for block in blocks)
    removed, added = upsert_changes(delta, older, key)
    bags = tuple(Bag(same(tuple(row.values()))[:-1] for row in part.to_pylist()) for part in (removed, added))
    assert bags == expected(blocks, len(key))
    strong = as_strong(removed, added)
    assert Bag(strong["_weight"].to_pylist()) == Bag({-1: removed.num_rows, 1: added.num_rows})


@seed(SEED)
@settings(max_examples=200, deadline=None)
@given(keys=st.lists(st.tuples(st.none() | st.integers(0, 4), st.sampled_from(("", "a", "b"))), max_size=8))
def test_null_and_duplicate_keys_are_counted(keys: list[tuple[int | None, str]]) -> None:
    types = pa.schema([("n", "int64"), ("s", "string")])
    halves = [
        pa.table({"n": [n for n, _ in half], "s": [s for _, s in half]}, types)
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :])
    ]
    found = key_metrics(pa.concat_tables(halves))
    nulls = sum(n is None for n, _ in keys)
    assert bool(found.get("nulls")) == bool(nulls)
    if nulls:
        assert found["nulls"] == nulls
        return
    repeated = {pair: times for pair, times in Counter(keys).items() if times > 1}
    assert found.get("duplicates", 0) == sum(repeated.values())
    if repeated:
        number, text = min(repeated)
        assert found["example"] == f'{{"n":{number},"s":"{text}"}}'


def test_keys_with_equal_hashes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    many = pa.table({"n": np.arange(300_000), "s": pa.array(map(str, range(300_000)))})
    hashes = hashes_of(many)
    assert len(set(hashes.tolist())) < len(hashes)
    assert key_metrics(many) == {}
    found = key_metrics(pa.concat_tables([many, many.slice(7, 1), many.slice(5, 2), many.slice(7, 1)]))
    assert found == {"duplicates": 7, "example": '{"n":5,"s":"5"}'}
    monkeypatch.setattr("kilonova.warehouse.spark_hash._MATRIX", 0)  # as if there were very long texts
    assert key_metrics(many) == {}
    assert key_metrics(pa.concat_tables([many, many.slice(9, 1)])) == {"duplicates": 2, "example": '{"n":9,"s":"9"}'}


class Written:
    """The blocks of one channel, written by a warehouse with given thresholds."""

    def __init__(
        self,
        spark: SparkSession,
        place: Path,
        schema: Schema,
        key: tuple[str, ...],
        sizes: LayoutThresholds,
        checks: tuple[Check, ...] = (),
    ) -> None:
        self.spark, self.schema, self.encoding, self.checks = spark, schema, Upsert(key), checks
        self.warehouse = Warehouse(spark, Storage(str(place)), "test", _no_functions, sizes)
        self.blocks: list[Block] = []

    def write(self, rows: list[tuple[Any, ...]], *, strong: bool = False) -> tuple[Any, ...]:
        """Write a base, or a delta after it, and return what became of it."""
        point, base = len(self.blocks) + 1, None if not self.blocks else self.blocks[0]
        old = SnapshotRead(
            at=point - 1, schema=self.schema, encoding=self.encoding, base=base, deltas=tuple(self.blocks[1:])
        )
        plan = WritePlan(
            name=BlockName(point, ""),
            kind=Base(1) if base is None else Delta(point - 1, point),
            schema=self.schema,
            encoding=self.encoding,
            old=None if base is None else old,
            expected=100 * len(rows),
            strong=strong and base is not None,
            checks=self.checks,
        )
        self.warehouse.storage.delete([plan.name])
        frame = self.spark.createDataFrame(rows, f"{self.schema.ddl}, _deleted boolean")
        try:
            block = self.warehouse.write(frame.drop("_deleted") if base is None else frame, plan)
        except KeyViolation as error:
            return (str(error).partition(", for example")[0],)
        except CheckFailed as error:
            return (str(error),)
        if block is None:
            return (None,)
        self.blocks.append(block)
        stored = self.warehouse._blocks.plain([block], block.columns)
        return block.statistics.rows, block.statistics.removals, Bag(same(tuple(row)) for row in stored.collect())


def _no_functions(name: str) -> Any:
    raise AssertionError(name)


SIZES = {
    "one task": LayoutThresholds(),
    "several tasks": LayoutThresholds(single_task_max=0),
    "a few rows first": LayoutThresholds(full_compare_max=0),
}


@pytest.mark.parametrize("strong", [False, True], ids=["upserts", "strong deltas"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_spark_finds_the_same(
    spark: SparkSession, tmp_path: Path, sizes: LayoutThresholds, strong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kilonova.warehouse.local_write._ROWS", 4)  # Spark writes what has more rows
    chance = random.Random(f"{SEED}/{sizes}/{strong}")
    kinds = [*TYPES, *(chance.sample(list(MAPS), 1) if chance.random() < 0.3 else ())]
    types = {f"v.{n}": kind for n, kind in enumerate(kinds)}
    key = tuple(f"k {n}" for n in range(2))
    schema = Schema.of(*zip(key, chance.choices(KEYS, k=2), strict=True), *types.items())
    checks: tuple[Check, ...] = (NotNull("k 1"), RowCondition("`v.0` < 127 OR `v.6` <> 'é'"))
    here = Written(spark, tmp_path / "here", schema, key, sizes, checks)
    there = Written(spark, tmp_path / "there", schema, key, replace(sizes, local_check_max=0), checks)
    outcomes: Counter[str] = Counter()
    last: list[tuple[Any, ...]] = []
    for step in range(12):
        here.warehouse._large.clear()
        if chance.random() < 0.2:
            monkeypatch.setattr("kilonova.warehouse.local_write._TEXT", chance.choice((2, 1 << 10)))
        rows = last if step == 9 else [_row(schema, key, chance) for _ in range(chance.randrange(7))]
        if chance.random() < 0.8 or step in (0, 8):  # the others may have null or duplicate keys
            rows = list({row[: len(key)]: row for row in rows if None not in row[: len(key)]}.values())
        if step in (0, 8):
            rows = [row for row in rows if row[2] != 127]
        if step in (10, 11):
            one = _row(schema, key, chance)
            rows = [one, one] if step == 10 else [one, (None, *one[1:])]
        found, other = (each.write(rows, strong=strong) for each in (here, there))
        assert other[0] == found[0]
        assert other[2:] == found[2:]
        # Removals are not counted if the rows that are looked at first differ, and these depend on the files.
        assert None in (other[1:2] + found[1:2]) or other == found
        last = last if isinstance(found[0], str) else rows
        outcomes["refused" if isinstance(found[0], str) else "nothing" if found[0] is None else "written"] += 1
    assert set(outcomes) == {"refused", "nothing", "written"}


def test_keys_that_are_points_in_time_are_found_in_what_spark_wrote(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema.of(("at", "timestamp"), ("n", "int"))
    noon = datetime(2024, 2, 29, 12)
    for name, sizes in SIZES.items():
        made = Written(spark, tmp_path / name.replace(" ", "_"), schema, ("at",), sizes)
        monkeypatch.setattr("kilonova.warehouse.local_write._ROWS", 0)  # Spark writes the base
        assert made.write([(noon, 1, False)]) == (1, None)
        monkeypatch.undo()
        assert made.write([(noon, 1, False)]) == (None,)
        assert made.write([(noon, 2, False)])[0] == 1


def _row(schema: Schema, key: tuple[str, ...], chance: random.Random) -> tuple[Any, ...]:
    """A row with few values per column, and in one of twenty a null in its key."""
    values = [
        None if chance.random() < (0.05 if item.name in key else 0.2) else chance.choice(VALUES[item.type])
        for item in schema.columns
    ]
    return (*values, chance.random() < 0.2)
