"""Rows looked up by key in the files of a snapshot equal those that Spark finds in it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kilonova.errors import StorageFailed
from kilonova.model.encoding import Changes, Upsert
from kilonova.model.read_plan import ChangesRead, DeltaRead, KeyLookup, SnapshotRead
from kilonova.model.schema import Schema
from kilonova.warehouse.key_lookup import KeyReader, can_look_up
from tests.seeds import SEED
from tests.warehouse.test_local_checks import KEYS, same
from tests.warehouse.test_local_merge import some_value
from tests.warehouse.test_local_read import History

KEY = ("k 1", "k.0")
"""The key, whose columns are the first of the relation, in the other order."""

SCHEMA = Schema.of(("k.0", "int"), ("k 1", "bigint"), ("v", "decimal(10,2)"), ("w", "string"))


@pytest.fixture(autouse=True)
def _in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look up in blocks of any size, whose files have several parts."""
    monkeypatch.setattr("kilonova.warehouse.key_lookup._SHARE", 0.001)
    monkeypatch.setattr("kilonova.warehouse.parquet_rows._ROWS_TOGETHER", 3)


def history(spark: SparkSession, place: Path, seed: str, schema: Schema | None = None) -> History:
    """A channel with a base and deltas of both kinds."""
    made = History(spark, place, Upsert(KEY), random.Random(seed), schema)
    made.expected = made.chance.choice([0, None])  # written in this process, or by Spark
    made.add(12, strong=False, base=made.chance.random() < 0.7)
    for strong in made.chance.sample([False, True, True, False], 3):
        made.add(made.chance.choice([2, 7]), strong=strong)
    return made


@pytest.mark.parametrize("number", range(4))
def test_the_rows_with_values_of_a_change_are_found(spark: SparkSession, tmp_path: Path, number: int) -> None:
    made = history(spark, tmp_path, f"{SEED}/{number}")
    points = range(1, made.state.latest + 1)
    found_some = False
    for at in points:
        snapshot, reader = made.state.snapshot(at), KeyReader(made.storage)
        assert snapshot.schema is not None
        names = tuple(made.chance.sample(snapshot.schema.names, 3))
        for start in (at - 1, at):
            change = made.state.changes(start, min(start + 1, made.state.latest))
            lookup = KeyLookup(column=KEY[0], values=((change, KEY[0]),), columns=names)
            if not change.blocks or not can_look_up(snapshot, lookup, 0):
                continue
            found = reader.rows(snapshot, lookup)
            assert found is not None
            spark_only = made.warehouse(local_check_max=0)
            deltas = (change.delta if isinstance(change, ChangesRead) else change).blocks
            stored = spark.read.parquet(*(made.storage.path(block.name) for block in deltas))
            values = stored.select(F.col(f"`{KEY[0]}`").alias("value")).distinct()
            whole = spark_only.open(snapshot)
            expected = whole.join(values, whole[f"`{KEY[0]}`"] == values["value"], "left_semi")
            read = made.warehouse(lookup_min=0).shared(snapshot, False, lookup)
            assert [*read.columns] == [name for name in snapshot.schema.names if name in names] == found.column_names
            chosen = expected.select(*(f"`{name}`" for name in read.columns))
            assert Counter(same(tuple(row)) for row in read.collect()) == Counter(
                same(tuple(row)) for row in chosen.collect()
            )
            assert found.num_rows == read.count()
            found_some |= found.num_rows > 0
            weighed = made.warehouse(lookup_min=0).shared(snapshot, True, lookup)
            assert {row[-1] for row in weighed.collect()} <= {1}
    assert found_some


def test_values_come_from_other_columns_too(spark: SparkSession, tmp_path: Path) -> None:
    made = History(spark, tmp_path / "items", Upsert(KEY), random.Random(SEED), SCHEMA)
    other = History(spark, tmp_path / "orders", Changes(), random.Random(SEED), Schema.of(("a", "bigint")))
    made.add(20, strong=False, base=True)
    made.add(4, strong=True)
    kept = {row[1] for row in made.rows}
    other.storage, other.identity = made.storage, made.identity
    other.state = other.state.with_cancelled(1, 1).with_cancelled(2, 1)  # its block has another number
    other._new = lambda schema, count: [(key,) for key in sorted(kept)[:count]]  # type: ignore[method-assign]
    other.add(3, strong=True)
    lookup = KeyLookup(column="k 1", values=((other.state.changes(2, 3), "a"),), columns=("k 1", "v"))
    newest = made.state.snapshot(2)
    assert can_look_up(newest, lookup, 0)
    found = KeyReader(made.storage).rows(newest, lookup)
    assert found is not None
    assert sorted(found["k 1"].to_pylist()) == sorted(row[1] for row in made.rows if row[1] in sorted(kept)[:3])


def test_what_cannot_be_looked_up_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = History(spark, tmp_path, Upsert(KEY), random.Random(SEED), SCHEMA)
    made.add(20, strong=False, base=True)
    made.add(4, strong=False)
    made.add(4, strong=True)
    newest, weak, strong = made.state.snapshot(3), made.state.changes(1, 2), made.state.changes(2, 3)
    assert isinstance(weak, ChangesRead)
    assert isinstance(strong, DeltaRead)

    def can(snapshot: SnapshotRead = newest, least: int = 0, **other: Any) -> bool:
        given: dict[str, Any] = {"column": "k 1", "values": ((strong, "k 1"),), "columns": ("k 1", "v")}
        return can_look_up(snapshot, KeyLookup(**(given | other)), least)

    assert can()
    assert can(values=((weak, "k 1"), (strong, "k.0")))
    assert not can(values=((weak, "v"),))  # rows that it replaces are elsewhere
    assert can(values=((strong, "v"),))
    assert not can(column="k.0")
    assert not can(least=1 << 30)
    assert not can(replace(newest, encoding=Changes()))
    assert not can(
        replace(newest, schema=newest.schema and newest.schema.plus(("more", "array<int>"))), columns=("more",)
    )
    monkeypatch.setattr("kilonova.warehouse.key_lookup._SHARE", 100)
    assert not can()
    lookup = KeyLookup(column="k 1", values=((strong, "k 1"),), columns=("k 1", "v"))
    for limit in ("_ROWS_FOUND", "_MEMORY"):
        with monkeypatch.context() as patched:
            patched.setattr(f"kilonova.warehouse.key_lookup.{limit}", 0)
            assert KeyReader(made.storage).rows(newest, lookup) is None
    monkeypatch.setattr("kilonova.warehouse.key_lookup._SHARE", 0.001)
    monkeypatch.setattr("kilonova.warehouse.key_lookup._MEMORY", 0)
    warehouse = made.warehouse(lookup_min=0)
    assert warehouse.shared(newest, False, lookup).columns == warehouse.open(newest).columns


def test_parts_of_files_without_the_values_are_not_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = History(spark, tmp_path, Upsert(("k",)), random.Random(SEED), Schema.of(("k", "date"), ("v", "int")))
    made.expected = 0
    _write(made, [(f"2026-01-{day:02}", day) for day in range(1, 29)], base=True)
    _write(made, [("2026-01-05", 0)], base=False)
    read: list[int] = []
    original = parquet.ParquetFile.read_row_group
    monkeypatch.setattr(
        parquet.ParquetFile,
        "read_row_group",
        lambda self, group, *a, **k: read.append(group) or original(self, group, *a, **k),
    )
    change = made.state.changes(1, 2)
    lookup = KeyLookup(column="k", values=((change, "k"),), columns=("k", "v"))
    reader = KeyReader(made.storage)
    found = reader.rows(made.state.snapshot(1), lookup)
    assert found is not None
    assert found["v"].to_pylist() == [5]
    assert set(read) == {1}
    read.clear()
    newest = reader.rows(made.state.snapshot(2), lookup)  # of the base it is known where the values are
    assert newest is not None
    assert newest["v"].to_pylist() == [value for day, value in made.rows if day == date(2026, 1, 5)]  # or it is deleted
    assert set(read) == {0}


def _write(made: History, rows: list[tuple[Any, ...]], *, base: bool) -> None:
    """Write rows with dates that are given as texts."""
    made._new = lambda schema, count: [(date.fromisoformat(day), value) for day, value in rows]  # type: ignore[method-assign]
    made.add(len(rows), strong=False, base=base)


def test_a_file_that_cannot_be_read_is_an_error_that_names_the_block(spark: SparkSession, tmp_path: Path) -> None:
    made = History(spark, tmp_path, Upsert(KEY), random.Random(SEED), SCHEMA)
    made.add(20, strong=False, base=True)
    made.add(4, strong=True)
    newest = made.state.snapshot(2)
    assert newest.base is not None
    (file,) = (tmp_path / newest.base.name.directory / each.name for each in newest.base.stored or ())
    whole = file.read_bytes()
    lookup = KeyLookup(column="k 1", values=((made.state.changes(1, 2), "k 1"),), columns=("v",))
    for content in (b"", whole[:-9], whole[: len(whole) // 2], bytes(len(whole))):
        file.write_bytes(content)
        with pytest.raises(StorageFailed, match="the block cannot be read") as raised:
            KeyReader(made.storage).rows(newest, lookup)
        assert raised.value.path == made.storage.path(newest.base.name)


def test_keys_of_every_type_are_found(spark: SparkSession, tmp_path: Path) -> None:
    for kind in dict.fromkeys(KEYS):
        schema, chance = Schema.of(("k", kind), ("v", "int")), random.Random(f"{SEED} {kind}")
        made = History(spark, tmp_path / kind.replace("(", "_"), Upsert(("k",)), chance, schema)
        values = list({some_value(kind, chance) for _ in range(12)})
        made._new = lambda schema, count, v=values: [(each, n) for n, each in enumerate(v[:count])]  # type: ignore[method-assign, misc]
        made.add(len(values), strong=False, base=True)
        made.add(2, strong=False)
        lookup = KeyLookup(column="k", values=((made.state.changes(1, 2), "k"),), columns=("k", "v"))
        assert can_look_up(made.state.snapshot(1), lookup, 0), kind
        found = KeyReader(made.storage).rows(made.state.snapshot(1), lookup)
        assert found is not None
        assert sorted(found["v"].to_pylist()) == [0, 1][: len(values)], kind
