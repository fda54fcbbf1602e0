"""Compaction in Spark's Python workers equals what Spark makes of the same blocks."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kilonova.model.block import Block, BlockName, Delta
from kilonova.model.encoding import Changes
from kilonova.schedule.layout import LayoutThresholds
from kilonova.warehouse.bucket_task import MergeTask, SplitTask, Written, run_tasks
from kilonova.warehouse.task_merge import TaskMerge
from kilonova.warehouse.warehouse import Warehouse
from tests.seeds import SEED, some
from tests.warehouse.test_local_merge import ALIGNED, Channel

LAYOUTS = {"as many buckets": 1, "more buckets": 4}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Results of all merges in tasks, while Spark seems to run on other machines."""
    found: list[object] = []
    write = TaskMerge.write

    def seen(*arguments: Any) -> object:
        found.append(write(*arguments))
        return found[-1]

    monkeypatch.setattr(TaskMerge, "write", seen)
    monkeypatch.setattr(Warehouse, "_is_local_mode", lambda _: False)
    return found


def bucketed(spark: SparkSession, place: Path, chance: random.Random, *, strong: bool) -> Channel:
    made = Channel(spark, place, chance)
    for rows, changes in ((60, False), (20, False), (20, strong), (0 if chance.random() < 0.2 else 5, False)):
        made.write(ALIGNED, rows, strong=changes)
    assert made.blocks[0].buckets > 1
    return made


def far(made: Channel, more: int = 1) -> LayoutThresholds:
    """Return sizes with which no block is small, and a compacted base has as many buckets as before, or more."""
    size = sum(block.statistics.bytes for block in made.blocks)
    return replace(ALIGNED, local_check_max=1, bucket_size=2 * size // (more * made.blocks[0].buckets))


@pytest.mark.parametrize("layout", some(LAYOUTS, 1))
def test_tasks_compact_to_the_same(
    spark: SparkSession, tmp_path: Path, results: list[object], monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    chance = random.Random(f"{SEED}/{layout}")
    monkeypatch.setattr("kilonova.warehouse.task_merge._SPLIT", chance.choice((0, 5000, 1 << 24)))
    made = bucketed(spark, tmp_path, chance, strong=True)
    assert any(block.encoding == Changes(made.key) for block in made.blocks)
    sizes = far(made, LAYOUTS[layout])
    java = made.warehouse(replace(sizes, local_check_max=0))
    tasks, there = (each.compact(made.snapshot(), BlockName(n)) for n, each in ((8, made.warehouse(sizes)), (9, java)))
    assert [result is not None for result in results] == [True]
    assert alike(tasks) == alike(there)
    expected = made.rows(java.open(made.snapshot()))
    assert made.rows(java.open(made.snapshot([tasks]))) == expected
    for file in tasks.stored or ():
        assert made.storage.checksum(tasks.name, file.name) == file.checksum
        rows = made.storage.table(tasks.name, [file], list(made.key)).to_pylist()
        assert rows == sorted(rows, key=lambda row: tuple(row.values()))
    assert set(made.storage.found(tasks.name) or ()) == {file.name for file in tasks.stored or ()}

    delta = made.blocks[-1]  # whose rows are in the base already, so that it changes nothing
    later = replace(delta, kind=Delta(tasks.end, tasks.end + 1))
    if delta.encoding == made.encoding:
        assert made.rows(java.open(made.snapshot([tasks, later]))) == expected


def alike(block: Block) -> tuple[object, ...]:
    seen = block.statistics
    return block.buckets, block.kind, block.columns, seen.rows, seen.removals, seen.net_rows


def test_tasks_merge_deltas_to_the_same(spark: SparkSession, tmp_path: Path, results: list[object]) -> None:
    made = bucketed(spark, tmp_path, random.Random(SEED), strong=False)
    base, *deltas = made.blocks
    java = made.warehouse(replace(far(made), local_check_max=0))
    tasks, there = (
        each.merge_deltas(tuple(deltas), base, BlockName(n)) for n, each in ((8, made.warehouse(far(made))), (9, java))
    )
    assert [result is not None for result in results] == [True]
    assert alike(tasks) == alike(there)
    expected = made.rows(java.open(made.snapshot()))
    for reader in (java, made.warehouse(far(made))):
        assert made.rows(reader.open(made.snapshot([base, tasks]))) == expected
    compacted = made.warehouse(far(made)).compact(made.snapshot([base, tasks]), BlockName(10))
    assert made.rows(java.open(made.snapshot([compacted]))) == expected


def broken(_: MergeTask, number: int) -> list[Written]:
    raise ModuleNotFoundError("No module named 's3fs'")


def test_java_merges_where_workers_cannot(
    spark: SparkSession,
    tmp_path: Path,
    results: list[object],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = bucketed(spark, tmp_path, random.Random(SEED), strong=False)
    monkeypatch.setattr(MergeTask, "run", broken)
    warehouse = made.warehouse(far(made))
    expected = made.rows(warehouse.open(made.snapshot()))
    for number in (8, 9):
        compacted = warehouse.compact(made.snapshot(), BlockName(number))
        assert made.rows(warehouse.open(made.snapshot([compacted]))) == expected
    assert results == [None, None]
    assert [record.getMessage().count("No module named 's3fs'") for record in caplog.records] == [1]


def test_a_task_that_is_executed_twice_leaves_nothing(
    spark: SparkSession, tmp_path: Path, results: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bucketed(spark, tmp_path, random.Random(SEED), strong=False)
    merge, split = MergeTask.run, SplitTask.run

    def merge_twice(task: MergeTask, number: int) -> list[Written]:
        merge(task, number)
        return merge(task, number)

    def split_twice(task: SplitTask, number: int) -> list[Written]:
        split(task, number)
        return split(task, number)

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(MergeTask, "run", merge_twice)
    monkeypatch.setattr(SplitTask, "run", split_twice)
    warehouse = made.warehouse(far(made))
    compacted = warehouse.compact(made.snapshot(), BlockName(8))
    assert [result is not None for result in results] == [True]
    found = {each.name for each in (tmp_path / compacted.name.directory).iterdir()}
    assert found == {file.name for file in compacted.stored or ()}
    assert made.rows(warehouse.open(made.snapshot([compacted]))) == made.rows(warehouse.open(made.snapshot()))


def test_a_cancelled_merge_is_not_left_to_java(
    spark: SparkSession, tmp_path: Path, results: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bucketed(spark, tmp_path, random.Random(SEED), strong=False)

    def cancelled(*_: object) -> object:
        raise PySparkException("[SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job group")

    monkeypatch.setattr("kilonova.warehouse.task_merge.fetch", cancelled)
    with pytest.raises(PySparkException, match="SPARK_JOB_CANCELLED"):
        made.warehouse(far(made)).compact(made.snapshot(), BlockName(8))
    assert results == []


def test_workers_need_nothing_of_kilonova() -> None:
    files, schema = LocalFileSystem(), pa.schema([("k", pa.int64())])
    split = SplitTask(files=files, deltas=[], schema=schema, key=("k",), buckets=1, target="unused")
    merge = MergeTask(files=files, base={}, chain=[], schema=schema, key=("k",), tasks=1, buckets=1, target="unused")
    sent = cloudpickle.dumps((run_tasks, split, merge))
    code = "import pickle, sys; sys.modules['kilonova'] = None; print(len(pickle.load(sys.stdin.buffer)))"
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=False)
    assert done.stdout == b"3\n", done.stderr.decode()
