"""Deltas that users give, valid and invalid, in encodings that can say what does not apply: beside the reference."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlalchemy import update

import kilonova as kn
from kilonova.catalog import channel_store, runs, tables
from kilonova.errors import Conflict, EncodingError, KeyViolation, KilonovaError, TaskFailed
from kilonova.model.encoding import Changes, Columns, Encoding, delta_schema
from kilonova.model.run import RunKind
from kilonova.model.schema import Schema
from kilonova.service.project import Project, open_project
from kilonova.testing import reference
from kilonova.testing.reference import Record
from tests.frames import bag_of, frame_of, weights_of
from tests.seeds import SEED, some

_HOUR = timedelta(hours=1)
SCHEMA = Schema.of(("id", "int"), ("x", "string"), ("m", "map<string,int>"))
ENCODINGS: dict[str, tuple[Encoding, dict[str, Any]]] = {
    "bag": (Changes(), {"encoding": "changes"}),
    "keyed": (Changes(("id",)), {"encoding": "changes", "key": "id"}),
    "columns": (Columns(("id",)), {"encoding": "columns", "key": "id"}),
}


def ledger(name: str) -> kn.Workflow:
    wf = kn.Workflow("given")
    wf.channel("c", SCHEMA.ddl, **ENCODINGS[name][1])
    return wf


def rows_of(chance: random.Random, encoding: Encoding, there: list[Record]) -> list[Record]:
    """A delta that fits what is there, or nearly so."""

    def row() -> Record:
        m = chance.choice((None, frozenset(), frozenset({("a", 1)})))
        return {"id": chance.choice((1, 2, 3, 3, None) if chance.random() < 0.1 else (1, 2, 3)), "x": "b", "m": m} | (
            {"x": chance.choice(("a", "b", None))}
        )

    rows = [row() for _ in range(chance.randint(1, 2))]
    if isinstance(encoding, Columns):
        names = chance.choice((("x",), ("m",), ("x", "m"), (), None, ("id",), ("y",), (None,)))
        return [each | {"_set": names, "_deleted": chance.random() < 0.2} for each in rows]
    gone = [each for each in there if chance.random() < 0.6]
    if isinstance(encoding, Changes) and encoding.key and chance.random() < 0.6:
        gone = [each for each in there if each["id"] in {item["id"] for item in rows}]
    weights = (1, 1, 1, 2, 0, None, -1) if chance.random() < 0.3 else (1,)
    return [each | {"_weight": chance.choice(weights)} for each in rows] + [each | {"_weight": -1} for each in gone]


@pytest.mark.parametrize("name", some(ENCODINGS, 1))
def test_what_the_reference_refuses_is_refused_and_the_rest_reads_as_it_says(project: Project, name: str) -> None:
    chance = random.Random(f"{SEED}/{name}")
    encoding, spark = ENCODINGS[name][0], project.warehouse.spark
    project.apply(ledger(name))
    now: Counter[Any] = Counter()
    said: Counter[bool] = Counter()
    for _ in range(14):
        rows = rows_of(chance, encoding, reference.records(SCHEMA, now))
        expected: type[KilonovaError] | None = None
        after = now
        try:
            after = reference.merge(encoding, SCHEMA, now, reference.delta_of(encoding, SCHEMA, rows))
        except KilonovaError as error:
            expected = type(error)
        frame = frame_of(spark, delta_schema(encoding, SCHEMA), rows)
        point = project.status().channels["c"].latest_distinct
        said[expected is None] += 1
        if expected is None:
            project.ingest("c", frame)
            assert weights_of(project.read("c", since=point)) == reference.diff(Changes(), SCHEMA, now, after), rows
        else:
            with pytest.raises((EncodingError, KeyViolation)) as raised:
                project.ingest("c", frame)
            assert raised.value.channel == "c", rows
        now = after
        assert bag_of(project.read("c")) == now, rows
    assert said[True] > 1


def test_a_second_row_of_a_key_is_refused_with_the_row(project: Project) -> None:
    project.apply(ledger("keyed"))
    spark = project.warehouse.spark
    frame = lambda *rows: frame_of(spark, delta_schema(Changes(("id",)), SCHEMA), rows)  # noqa: E731
    project.ingest("c", frame({"id": 1, "x": "a", "_weight": 1}))
    with pytest.raises(KeyViolation, match=r"leaves a key with two rows, one of them \{'id': 1"):
        project.ingest("c", frame({"id": 1, "x": "b", "_weight": 1}))
    with pytest.raises(EncodingError, match=r"retracted more often than it occurs: \{'id': 2"):
        project.ingest("c", frame({"id": 2, "x": "b", "_weight": -1}))
    project.ingest("c", frame({"id": 1, "x": "a", "_weight": -1}, {"id": 1, "x": "b", "_weight": 1}))
    assert [row["x"] for row in project.read("c").collect()] == ["b"]


@pytest.mark.parametrize("name", ["bag", "keyed"])
def test_a_task_that_retracts_what_is_not_there_fails_and_its_channel_stays_whole(project: Project, name: str) -> None:
    def declared(bad: bool) -> kn.Workflow:
        wf = kn.Workflow("given")
        wf.channel("events", "id int, x string")

        @wf.task(schema="id int, x string", **ENCODINGS[name][1])
        def ledger(events: kn.New) -> kn.Delta:
            return events.withColumn("_weight", F.lit(-1 if bad else 1).cast("bigint"))

        return wf

    spark = project.warehouse.spark
    project.apply(declared(bad=True))
    project.ingest("events", spark.createDataFrame([(1, "a")], "id int, x string"))
    with pytest.raises(EncodingError) as raised:
        project.run()
    assert (raised.value.task, raised.value.channel) == ("ledger", "ledger")
    project.apply(declared(bad=False))
    project.run()
    project.ingest("events", spark.createDataFrame([(1, "a")], "id int, x string"))
    if name == "keyed":
        with pytest.raises(KeyViolation):
            project.run()
    else:
        project.run()
    assert {tuple(row) for row in project.read("ledger").collect()} == {(1, "a")}


@pytest.mark.parametrize(("name", "allowed"), [("bag", True), ("keyed", False)])
def test_across_a_reserved_point_only_additions_to_a_bag_are_taken(project: Project, name: str, allowed: bool) -> None:
    """The relation before is not known while another run is writing it."""
    project.apply(ledger(name))
    spark, schema = project.warehouse.spark, delta_schema(ENCODINGS[name][0], SCHEMA)
    project.ingest("c", frame_of(spark, schema, [{"id": 1, "x": "a", "_weight": 1}]))
    with project.catalog.writing() as tx:
        run, _ = runs.start(tx, kind=RunKind.INGEST, tasks=(), writes=("c",), owner="other", lease=_HOUR)
    addition = frame_of(spark, schema, [{"id": 2, "x": "b", "_weight": 1}])
    if allowed:
        project.ingest("c", addition)
    else:
        with pytest.raises(Conflict):
            project.ingest("c", addition)
    with pytest.raises(Conflict, match="another run is writing the channel"):
        project.ingest("c", frame_of(spark, schema, [{"id": 1, "x": "a", "_weight": -1}]))
    with project.catalog.writing() as tx:
        runs.fail(tx, run, "it failed")
    assert {row["id"] for row in project.read("c").collect()} == ({1, 2} if allowed else {1})
    project.ingest("c", frame_of(spark, schema, [{"id": 1, "x": "a", "_weight": -1}]))
    assert {row["id"] for row in project.read("c").collect()} == ({2} if allowed else set())


def test_a_task_sets_only_the_columns_that_it_names_from_the_first_delta_on(project: Project) -> None:
    wf = kn.Workflow("patches")
    wf.channel("events", "id int, x string, y string, sets array<string>")

    @wf.task(schema="id int, x string, y string", key="id", encoding="columns")
    def known(events: kn.New) -> kn.Delta:
        return events.withColumnRenamed("sets", "_set")

    project.apply(wf)
    spark = project.warehouse.spark

    def arrive(*rows: tuple[Any, ...]) -> DataFrame:
        frame = spark.createDataFrame(list(rows), "id int, x string, y string, sets array<string>")
        project.ingest("events", frame)
        return frame

    arrive((1, "not set", "b", ["y"]), (2, "a", "b", None))
    project.run()
    assert {tuple(row) for row in project.read("known").collect()} == {(1, None, "b"), (2, "a", "b")}
    arrive((3, "a", "b", ["id"]))
    with pytest.raises((EncodingError, TaskFailed), match="cannot set"):
        project.run()


@pytest.mark.parametrize("name", ["bag", "keyed"])
def test_a_channel_that_holds_an_invalid_delta_is_mended_by_replacing_it_and_its_readers_follow(
    project: Project, name: str, tmp_path: Path
) -> None:
    """As one that was written before deltas were checked."""
    wf = ledger(name)

    @wf.task(schema="id int, x string, m map<string,int>", **ENCODINGS[name][1])
    def copied(c: kn.New) -> kn.Delta:
        return c

    wf.view("counted", "SELECT x, count(*) AS n FROM c GROUP BY x")
    spark, schema = project.warehouse.spark, delta_schema(ENCODINGS[name][0], SCHEMA)
    project.apply(wf)
    project.ingest("c", frame_of(spark, schema, [{"id": 1, "x": "a", "_weight": 1}]))
    project.run()
    project.ingest("c", frame_of(spark, schema, [{"id": 2, "x": "b", "_weight": 1}]))
    with project.catalog.reading() as tx:
        newest = max(channel_store.channel_state(tx, "c").blocks, key=lambda block: block.end)
    [place] = tmp_path.rglob(newest.name.directory)
    [file] = place.glob("*.parquet")
    wrong = {"id": 3, "x": "c", "_weight": -1} if name == "bag" else {"id": 1, "x": "c", "_weight": 1}
    frame_of(spark, schema, [wrong]).coalesce(1).write.parquet(str(tmp_path / "other"))
    [other] = (tmp_path / "other").glob("part-*.parquet")
    other.replace(file)
    file.with_name(f".{file.name}.crc").unlink()
    with project.catalog.writing() as tx:  # as if it had been written so
        stored = [[file.name, file.stat().st_size, 1, hashlib.sha256(file.read_bytes()).hexdigest()]]
        tx.connection.execute(update(tables.block).where(tables.block.c.id == newest.number).values(stored=stored))
    with open_project(tmp_path, session=spark, retry={"wait": 0}) as again:  # what a process read of a block it keeps
        if name == "bag":
            with pytest.raises(EncodingError, match="retracted") as raised:
                again.compact("c")
            assert raised.value.channel == "c"
        with pytest.raises((EncodingError, KeyViolation)) as raised:
            again.run(["copied"])
        assert raised.value.channel == "copied"
        assert bag_of(again.read("copied")) == Counter({(1, "a", None): 1})
        again.ingest("c", frame_of(spark, SCHEMA, [{"id": 5, "x": "e"}]), replace=True)
        again.run()
        assert bag_of(again.read("copied")) == bag_of(again.read("c"))
        assert [tuple(row) for row in again.read("counted").collect()] == [("e", 1)]


def test_amounts_of_any_width_are_added_exactly(project: Project) -> None:
    digits = [(37, 37), (37, 28), (37, 18), (38, 6), (38, 0), (10, 2), (1, 1)]
    names = [f"x{place}" for place in range(len(digits))]
    kinds = [f"decimal({precision},{scale})" for precision, scale in digits]
    schema = Schema.of(("k", "int"), *zip(names, kinds, strict=True))
    wf = kn.Workflow("amounts")
    wf.channel("c", schema.ddl, key="k", encoding=kn.increment(*names))

    @wf.task(schema=schema.ddl, key="k", encoding=kn.increment(*names))
    def same(c: kn.New) -> kn.Delta:
        return c

    project.apply(wf)

    def put(*amounts: tuple[int, int]) -> None:
        rows = [
            {"k": key} | {n: Decimal(times).scaleb(-scale) for n, (_, scale) in zip(names, digits, strict=True)}
            for key, times in amounts
        ]
        project.ingest("c", frame_of(project.warehouse.spark, schema, rows))
        project.run()

    def found(channel: str) -> dict[int, set[Decimal]]:
        rows = [row.asDict() for row in project.read(channel).collect()]
        return {row["k"]: {row[n].scaleb(scale) for n, (_, scale) in zip(names, digits, strict=True)} for row in rows}

    put((1, 1), (2, 4))
    put((1, 4), (2, -4))
    put((3, 1))
    for channel in ("c", "same"):
        assert found(channel) == {1: {5}, 3: {1}}
        project.compact(channel)
        assert found(channel) == {1: {5}, 3: {1}}
    put((1, -5), (3, 2))
    assert found("c") == found("same") == {3: {3}}
    removed = {row["k"]: row["_weight"] for row in project.read("c", since=2).collect() if row["_weight"] < 0}
    assert removed == {1: -1}
