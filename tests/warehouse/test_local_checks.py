"""What this process finds in small blocks with Arrow equals what the reference, and Spark, find in them."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

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
from kilonova.warehouse.arrow_types import comparable_types
from kilonova.warehouse.jobs import Effect
from kilonova.warehouse.local_checks import key_metrics, upsert_effect
from kilonova.warehouse.local_write import FetchLimit, fetch_rows
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.warehouse import Warehouse
from tests.seeds import SEED, some

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
}
KEYS = [kind for kind in TYPES if comparable_types(Schema.of(("k", kind)), ["k"], as_key=True)]


def test_types_that_spark_compares_by_rules_of_its_own_are_left_to_it() -> None:
    assert set(TYPES) - set(KEYS) == {"float", "double", "binary"}
    for kind in (
        "array<int>",
        "map<string,int>",
        "struct<a:int>",
        "string collate UNICODE_CI",
        "variant",
        "varchar(3)",
    ):
        assert not comparable_types(Schema.of(("c", kind)), ["c"])


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


def expected(blocks: list[list[tuple[Any, ...]]], key: int) -> Effect:
    """The effect of the last block on those before it, as sentences say it."""
    before: dict[Any, tuple[Any, ...]] = {}
    for block in blocks[:-1]:
        for row in block:
            before[row[:key]] = row
    there = {place: same(row[key:-1]) for place, row in before.items() if not row[-1]}
    added = removed = 0
    for row in blocks[-1]:
        was, now = there.get(row[:key]), None if row[-1] else same(row[key:-1])
        added += now is not None and now != was
        removed += was is not None and now != was
    return Effect(added=added, removed=removed)


def same(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("NaN" if value != value else value for value in values)


def table(schema: Schema, rows: list[tuple[Any, ...]], absent: tuple[str, ...] = ()) -> pa.Table:
    names = [*schema.names, "_deleted"]
    types = [*(TYPES[item.type][0] for item in schema.columns), pa.bool_()]
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(types)]
    return pa.Table.from_arrays(columns, names=names).drop_columns(list(absent))


@seed(SEED)
@settings(max_examples=300, deadline=None)
@given(made=upserts(), oldest_lacks=st.booleans())
def test_the_effect_of_an_upsert(
    made: tuple[Schema, tuple[str, ...], list[list[tuple[Any, ...]]]], oldest_lacks: bool
) -> None:
    schema, key, blocks = made
    absent: tuple[str, ...] = ()
    if oldest_lacks and len(blocks) > 1:  # as a base does, written before columns were added
        absent = (*(name for name in schema.names if name not in key), "_deleted")
        bare = [(*row[: len(key)], *[None] * (len(schema.names) - len(key)), False) for row in blocks[0]]
        blocks = [bare, *blocks[1:]]
    older = [table(schema, block, absent if n == 0 else ()) for n, block in enumerate(blocks[:-1])]
    assert upsert_effect(table(schema, blocks[-1]), older, key) == expected(blocks, len(key))


@seed(SEED)
@settings(max_examples=200, deadline=None)
@given(
    keys=st.lists(st.tuples(st.none() | st.integers(0, 4), st.sampled_from(("", "a", "b"))), max_size=8),
    ordered=st.booleans(),
)
def test_null_and_duplicate_keys_are_counted(keys: list[tuple[int | None, str]], ordered: bool) -> None:
    keys = sorted(keys, key=lambda pair: (pair[0] is not None, pair[0] or 0, pair[1])) if ordered else keys
    types = pa.schema([("n", "int64"), ("s", "string")])
    halves = [
        pa.table({"n": [n for n, _ in half], "s": [s for _, s in half]}, types)
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :])
    ]
    found = key_metrics(pa.concat_tables(halves), ordered=ordered)
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


@seed(SEED)
@settings(max_examples=200, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(("int8", "int64", "date32[day]", "timestamp")), min_size=1, max_size=3),
    data=st.data(),
)
def test_duplicates_are_found_among_keys_of_numbers_and_times(kinds: list[str], data: st.DataObject) -> None:
    wide = {"int8": 7, "int64": 63, "date32[day]": 20, "timestamp": 55}
    bounds = [2 ** wide[kind] - 1 for kind in kinds]
    key = st.tuples(*(st.integers(-1, 1) | st.integers(-bound, bound) for bound in bounds))
    keys = data.draw(st.lists(key, max_size=12))
    types = [pa.timestamp("us", "UTC") if kind == "timestamp" else pa.type_for_alias(kind) for kind in kinds]
    columns = [pa.array([each[n] for each in keys], widest(kind)).cast(kind) for n, kind in enumerate(types)]
    found = key_metrics(pa.table(dict(zip("abc", columns, strict=False))), ordered=False)
    assert found.get("duplicates", 0) == sum(times for times in Counter(keys).values() if times > 1)


def widest(kind: pa.DataType) -> pa.DataType:
    """The integers from which values of a type are made."""
    return pa.int64() if kind.bit_width == 64 else pa.int32()


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

    def write(self, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
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
        return block.statistics.rows, block.statistics.removals, block.statistics.net_rows


def _no_functions(name: str) -> Any:
    raise AssertionError(name)


SIZES = {
    "one task": LayoutThresholds(),
    "larger blocks": LayoutThresholds(single_task_max=0),
    "several tasks": LayoutThresholds(single_task_max=0),
    "a few rows first": LayoutThresholds(full_compare_max=0),
}


@pytest.mark.parametrize("how", some(SIZES, 1))
def test_spark_finds_the_same(spark: SparkSession, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = SIZES[how]
    few = FetchLimit(rows=3, memory=1 << 20, text=1 << 10)  # Spark writes what has more rows
    monkeypatch.setattr("kilonova.warehouse.local_write._SMALL", few)
    if how == "larger blocks":
        monkeypatch.setattr("kilonova.warehouse.local_write._EXPECTED", -1)
        monkeypatch.setattr("kilonova.warehouse.local_write._DENSE", 1 << 20)
        monkeypatch.setattr("kilonova.warehouse.local_write._LARGER", few)
        monkeypatch.setattr("kilonova.schedule.layout._TASK_SIZE", 100)
    fetches: Counter[bool] = Counter()

    def counted(*args: Any) -> pa.Table | None:
        rows = fetch_rows(*args)
        fetches[rows is not None] += args[-1].partitions > 1 if how == "larger blocks" else 1
        return rows

    monkeypatch.setattr("kilonova.warehouse.warehouse.fetch_rows", counted)
    chance = random.Random(f"{SEED}/{sizes}")
    types = {f"v.{n}": kind for n, kind in enumerate(TYPES)}
    key = tuple(f"k {n}" for n in range(2))
    schema = Schema.of(*zip(key, chance.choices(KEYS, k=2), strict=True), *types.items())
    checks = (NotNull("k 1"), RowCondition("`v.0` < 127 OR `v.6` <> 'é'"))
    here = Written(spark, tmp_path / "here", schema, key, sizes, checks)
    there = Written(spark, tmp_path / "there", schema, key, replace(sizes, local_check_max=0), checks)
    outcomes: Counter[str] = Counter()
    last: list[tuple[Any, ...]] = []
    for step in range(12):
        here.warehouse._large.clear()
        rows = last if step == 9 else [_row(schema, key, chance) for _ in range(chance.randrange(7))]
        if chance.random() < 0.8 or step in (0, 8):  # the others may have null or duplicate keys
            rows = list({row[: len(key)]: row for row in rows if None not in row[: len(key)]}.values())
        if step == 3:  # all keys, of which there are at least four
            keys = itertools.product(*(TYPES[schema.type_of(name)][1] for name in key))
            rows = [(*each, 0, *_row(schema, key, chance)[len(key) + 1 :]) for each in keys]
        if step in (0, 8):
            rows = [row for row in rows if row[2] != 127]
        if step in (10, 11):
            one = _row(schema, key, chance)
            rows = [one, one] if step == 10 else [one, (None, *one[1:])]
        found, other = here.write(rows), there.write(rows)
        assert other[0] == found[0]
        # Removals are not counted if the rows that are looked at first differ, and these depend on the files.
        assert other == found or (not sizes.full_compare_max and None in (other[-1], found[-1]))
        last = last if isinstance(found[0], str) else rows
        outcomes["refused" if isinstance(found[0], str) else "nothing" if found[0] is None else "written"] += 1
    assert set(outcomes) == {"refused", "nothing", "written"}
    assert fetches[True]
    assert fetches[False]


@pytest.mark.parametrize("step", ["fetch_rows", "write_fetched"])
def test_spark_writes_what_does_not_fit_into_memory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    made = Written(spark, tmp_path, Schema.of(("k", "int"), ("n", "int")), ("k",), SIZES["one task"])

    def too_much(*_: Any) -> None:
        raise pa.ArrowMemoryError

    monkeypatch.setattr(f"kilonova.warehouse.warehouse.{step}", too_much)
    assert made.write([(1, 1, False), (2, 2, False)]) == (2, None, None)
    assert made.write([(1, 1, False), (2, 3, False)]) == (2, 1, 0)
    assert [len(block.stored or ()) for block in made.blocks] == [1, 1]


def test_keys_that_are_points_in_time_are_found_in_what_spark_wrote(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema.of(("at", "timestamp"), ("n", "int"))
    noon = datetime(2024, 2, 29, 12)
    for name, sizes in SIZES.items():
        made = Written(spark, tmp_path / name.replace(" ", "_"), schema, ("at",), sizes)
        monkeypatch.setattr("kilonova.warehouse.local_write._EXPECTED", -1)  # Spark writes the base
        assert made.write([(noon, 1, False)]) == (1, None, None)
        monkeypatch.undo()
        assert made.write([(noon, 1, False)]) == (None,)
        assert made.write([(noon, 2, False)])[0] == 1


def _row(schema: Schema, key: tuple[str, ...], chance: random.Random) -> tuple[Any, ...]:
    """A row with few values per column, and in one of twenty a null in its key."""
    values = [
        None if chance.random() < (0.05 if item.name in key else 0.2) else chance.choice(TYPES[item.type][1])
        for item in schema.columns
    ]
    return (*values, chance.random() < 0.2)
