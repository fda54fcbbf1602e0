"""Channels whose rows a column orders: old rows never replace newer ones, in whatever order they are ingested."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.catalog import runs
from kilonova.errors import Conflict, DeclarationError, EncodingError, KeyViolation, SchemaMismatch
from kilonova.model.encoding import Upsert
from kilonova.model.run import RunKind
from kilonova.model.schema import Schema
from kilonova.model.watched_file import FileState
from kilonova.service.project import Project
from kilonova.testing import reference
from kilonova.testing.reference import Record
from kilonova.testing.sandbox import check_variants
from tests.frames import NAN, bag_of, frame_of
from tests.seeds import SEED, some

VALUES: dict[str, list[Any]] = {
    "bigint": [None, -1, 0, 1, 2],
    "string": [None, "", "a", "aa", "é"],
    "date": [None, date(1, 1, 1), date(2024, 2, 29), date(2024, 3, 1)],
    "double": [None, -1.5, 0.0, float("inf"), NAN],
}


def ordered(kind: str) -> kn.Workflow:
    wf = kn.Workflow("ordered")
    wf.channel("c", f"id int, at {kind}, x string", key="id", sequence_by="at")
    wf.view("counts", "SELECT x, count(*) AS n FROM c GROUP BY x")
    return wf


def place(value: object) -> tuple[bool, bool, Any]:
    """As Spark orders values: null, then numbers, then NaN."""
    return value is not None, value is NAN, 0 if value is NAN else value


@pytest.mark.parametrize("kind", some(VALUES, 1))
def test_any_ingests_give_the_newest_rows_as_the_reference_says(
    project: Project, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"{SEED}/{kind}")
    schema = Schema.of(("id", "int"), ("at", kind), ("x", "string"))
    rank = {value: number for number, value in enumerate(sorted(VALUES[kind], key=place))}
    project.apply(ordered(kind))
    spark, now = project.warehouse.spark, Counter[Any]()
    for number in range(10):
        rows: list[Record] = [
            {"id": chance.randint(1, 3), "at": chance.choice(VALUES[kind]), "x": chance.choice("ab")}
            for _ in range(chance.randint(1, 3))
        ]
        frame = frame_of(spark, schema, rows)
        ranked = [row | {"at": rank[row["at"]]} for row in rows]
        old = [row | {"at": rank[row["at"]]} for row in reference.records(schema, now)]
        whole = number == 6
        try:
            newest = reference.newest(("id",), "at", ranked, () if whole else old)
        except KeyViolation:
            with pytest.raises(KeyViolation):
                project.ingest("c", frame, replace=whole)
            continue
        project.ingest("c", frame, replace=whole)
        values = {number: value for value, number in rank.items()}
        delta = reference.delta_of(Upsert(("id",)), schema, [row | {"at": values[row["at"]]} for row in newest])
        now = reference.merge(Upsert(("id",)), schema, Counter() if whole else now, delta)
        assert bag_of(project.read("c")) == now, rows
        if chance.random() < 0.3:
            project.compact("c")
        if chance.random() < 0.5:
            project.run()
            groups = Counter(row[2] for row in now.elements())
            assert bag_of(project.read("counts")) == Counter(groups.items())


def test_the_order_of_ingests_makes_no_difference(project: Project) -> None:
    schema = Schema.of(("id", "int"), ("at", "bigint"), ("x", "string"))
    rows = [{"id": number % 2, "at": number, "x": str(number)} for number in range(4)]
    frames = [frame_of(project.warehouse.spark, schema, [row]) for row in rows]
    project.apply(ordered("bigint"))
    empty = frame_of(project.warehouse.spark, schema, [])
    for order in random.Random(SEED).sample(list(itertools.permutations(frames)), 4):
        for frame in order:
            project.ingest("c", frame)
        assert sorted(project.rows("c")[1]) == [(0, 2, "2"), (1, 3, "3")]
        project.ingest("c", empty, replace=True)


def test_of_equal_rows_that_ingested_later_counts_and_older_ones_change_nothing(project: Project) -> None:
    schema = Schema.of(("id", "int"), ("at", "bigint"), ("x", "string"))
    project.apply(ordered("bigint"))

    def ingest(*rows: tuple[int, int | None, str]) -> list[tuple[Any, ...]]:
        records = [dict(zip(schema.names, row, strict=True)) for row in rows]
        project.ingest("c", frame_of(project.warehouse.spark, schema, records))
        return sorted(project.rows("c")[1])

    assert ingest((1, 5, "a"), (1, 4, "b"), (1, None, "c")) == [(1, 5, "a")]
    assert ingest((1, 5, "d")) == [(1, 5, "d")]
    point = project.status().channels["c"].latest_distinct
    assert ingest((1, 4, "e")) == ingest((1, None, "f")) == [(1, 5, "d")]
    assert project.status().channels["c"].latest_distinct == point
    with pytest.raises(KeyViolation, match=r"occurs twice.*1"):
        ingest((1, 4, "g"), (1, 4, "h"))
    assert ingest((2, None, "i")) == [(1, 5, "d"), (2, None, "i")]
    assert ingest((2, None, "j")) == [(1, 5, "d"), (2, None, "j")]


def test_rows_of_an_earlier_file_do_not_replace_those_of_a_later_one_when_it_is_corrected(
    project: Project, tmp_path: Path
) -> None:
    wf = kn.Workflow("files")
    for name, column in (("by_name", "_file string"), ("by_time", "_file_time timestamp")):
        watch = kn.watched_directory(name, settle_time="0 seconds")
        wf.channel(name, f"id int, x string, {column}", key="id", sequence_by=column.split()[0], watch=watch)
        (tmp_path / name).mkdir()
    project.apply(wf)
    moment = int(time.time()) - 1000

    def drop(name: str, text: str) -> None:
        nonlocal moment
        for channel in ("by_name", "by_time"):
            moment += 1
            (tmp_path / channel / name).write_text(text)
            os.utime(tmp_path / channel / name, (moment, moment))

    def rows(channel: str) -> list[tuple[Any, ...]]:
        return sorted(row[:2] for row in project.rows(channel)[1])

    drop("1.csv", "id,x\n1,a\n2,a\n")
    drop("2.csv", "id,x\n1,b\nbad,b\n")
    drop("3.csv", "id,x\n1,c\n3,c\n")
    done = project.directories.ingest()
    assert done.quarantined == {"by_name": 1, "by_time": 1}
    assert len(done.runs) == 2
    drop("2.csv", "id,x\n1,b\n2,b\n4,b\n")
    project.directories.ingest()
    for channel in ("by_name", "by_time"):
        assert not project.reader.files(channel, state=FileState.QUARANTINED).files
        assert rows(channel) == [(1, "c"), (2, "b"), (3, "c"), (4, "b")]
    drop("0.csv", "id,x\n1,d\n5,d\n")
    project.directories.ingest()
    assert rows("by_name") == [(1, "c"), (2, "b"), (3, "c"), (4, "b"), (5, "d")]
    assert rows("by_time") == [(1, "d"), (2, "b"), (3, "c"), (4, "b"), (5, "d")]


def test_a_key_may_occur_twice_in_a_file_if_a_column_tells_which_row_is_newer(project: Project, tmp_path: Path) -> None:
    wf = kn.Workflow("files")
    watch = kn.watched_directory("in", settle_time="0 seconds")
    wf.channel("c", "id int, at int", key="id", sequence_by="at", watch=watch)
    project.apply(wf)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,at\n1,2\n1,3\n2,1\n")
    (tmp_path / "in" / "b.jsonl").write_text('{"id": 1, "at": 1}\n{"id": 2, "at": 1}\n{"id": 2, "at": 0}\n')
    (tmp_path / "in" / "c.csv").write_text("id,at\n3,1\n3,1\n")
    (tmp_path / "in" / "d.csv").write_text("id,at,_deleted\n3,1,true\n")
    done = project.directories.ingest()
    assert (done.quarantined, len(done.runs)) == ({"c": 2}, 1)
    assert sorted(project.rows("c")[1]) == [(1, 3), (2, 1)]


def test_files_of_one_ingest_are_in_sequence_too(project: Project, tmp_path: Path) -> None:
    wf = kn.Workflow("files")
    wf.channel("c", "id int, x string, _file string", key="id", sequence_by="_file")
    project.apply(wf)
    (tmp_path / "in").mkdir()
    for name in ("b", "c", "a"):
        (tmp_path / "in" / f"{name}.csv").write_text(f"id,x\n1,{name}\n")
    project.ingest("c", tmp_path / "in")
    assert project.rows("c")[1] == [(1, "c", "c.csv")]
    project.ingest("c", tmp_path / "in" / "a.csv")
    assert project.rows("c")[1] == [(1, "c", "c.csv")]


def test_what_could_not_be_ordered_is_refused(project: Project, tmp_path: Path) -> None:
    project.apply(ordered("bigint"))
    spark = project.warehouse.spark
    rows = spark.createDataFrame([(1, 1, "a")], "id int, at bigint, x string")
    project.ingest("c", rows)
    with pytest.raises(EncodingError, match="rows cannot be deleted"):
        project.ingest("c", rows.selectExpr("*", "true AS _deleted"))
    (tmp_path / "a.jsonl").write_text('{"id": 1, "at": 2, "x": "b", "_deleted": true}\n')
    with pytest.raises(SchemaMismatch, match="_deleted"):
        project.ingest("c", tmp_path / "a.jsonl")
    (tmp_path / "a.csv").write_text("id,at,x\n1,0,c\n")
    with pytest.raises(DeclarationError, match="in place as a delta"):
        project.ingest("c", tmp_path / "a.csv", in_place=True)
    with project.catalog.writing() as tx:
        run, _ = runs.start(tx, kind=RunKind.INGEST, tasks=(), writes=("c",), owner="other", lease=timedelta(hours=1))
    with pytest.raises(Conflict, match="another run is writing the channel"):
        project.ingest("c", rows)
    with project.catalog.writing() as tx:
        runs.cancel(tx, run, "ann")
    assert project.rows("c")[1] == [(1, 1, "a")]
    project.ingest("c", tmp_path / "a.csv", in_place=True, replace=True)
    assert project.rows("c")[1] == [(1, 0, "c")]


def test_files_wait_while_another_run_writes_the_channel(project: Project, tmp_path: Path) -> None:
    wf = kn.Workflow("files")
    watch = kn.watched_directory("in", settle_time="0 seconds")
    wf.channel("c", "id int, at int", key="id", sequence_by="at", watch=watch)
    project.apply(wf)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,at\n1,2\n")
    with project.catalog.writing() as tx:
        run, _ = runs.start(tx, kind=RunKind.INGEST, tasks=(), writes=("c",), owner="other", lease=timedelta(hours=1))
    assert project.directories.ingest().runs == ()
    with project.catalog.writing() as tx:
        runs.cancel(tx, run, "ann")
    assert len(project.directories.ingest().runs) == 1


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"sequence_by": "when"}, "not in the schema"),
        ({"sequence_by": "id"}, "a column of the key"),
        ({"sequence_by": "m"}, "of the type map<string,int>"),
        ({"sequence_by": "at", "encoding": "columns"}, "requires the encoding upsert"),
        ({"sequence_by": "at", "key": None}, "requires the encoding upsert"),
        ({"sequence_by": "at", "several_writers": True}, "only ingests write"),
        ({"sequence_by": "at", "schema": None}, "requires declared columns"),
    ],
)
def test_what_cannot_order_rows_is_refused(given: dict[str, Any], problem: str) -> None:
    declared = {"schema": "id int, at int, m map<string,int>", "key": "id", **given}
    with pytest.raises(DeclarationError, match=problem) as raised:
        kn.Workflow("wrong").channel("c", **declared)
    assert raised.value.channel == "c"


def test_variants_that_read_such_a_channel_are_checked_without_deletions(spark: SparkSession) -> None:
    wf = kn.Workflow("ordered")
    wf.channel("c", "id int, at int", key="id", sequence_by="at")

    @wf.task(schema="n bigint")
    def counted(c: kn.All) -> kn.Base:
        return c.selectExpr("count(*) AS n")

    rows = spark.range(20).selectExpr("CAST(id AS int) AS id", "CAST(id % 3 AS int) AS at")
    check_variants(wf, "counted", {"c": rows}, session=spark)


def test_only_ingests_write_a_channel_with_a_sequence(project: Project) -> None:
    def declared(sequence_by: str | None) -> kn.Workflow:
        wf = kn.Workflow("ordered")
        wf.channel("c", "id int, at int", key="id", sequence_by=sequence_by)
        return wf

    project.apply(declared("at"))
    assert project.apply(declared(None)).channels[0].detail == "the last row of a key counts"
    writing = declared("at")
    writing.channel("source", "id int, at int")

    @writing.task(writes="c")
    def filled(source: kn.New) -> kn.Delta:
        return source

    with pytest.raises(DeclarationError, match="no task can write it"):
        project.apply(writing)
