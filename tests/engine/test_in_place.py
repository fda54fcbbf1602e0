"""Blocks that are registered in place: files that are read where they lie, mixed with blocks of the warehouse."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyspark.sql import SparkSession
from sqlalchemy import select

import kilonova as kn
from kilonova.catalog import channel_store, tables
from kilonova.errors import (
    CheckFailed,
    DeclarationError,
    EncodingError,
    InputError,
    KeyReused,
    KeyViolation,
    KilonovaError,
    NotFound,
    SchemaMismatch,
)
from kilonova.model.encoding import Append, Changes, Encoding, Upsert
from kilonova.model.schema import Schema
from kilonova.service.project import Project, open_project
from kilonova.testing import reference
from kilonova.testing.reference import Bag

FORMATS = ("parquet", "orc", "csv", "json")
SCHEMA = Schema.of(("id", "int"), ("v", "string"))
ARROW = {"id": pa.int32(), "v": pa.string(), "_deleted": pa.bool_(), "_weight": pa.int64()}
CHANNELS: dict[str, Encoding] = {"log": Append(), "items": Upsert(("id",)), "bag": Changes()}

Rows = list[dict[str, Any]]


def flow() -> kn.Workflow:
    workflow = kn.Workflow("w")
    workflow.channel("log", "id int, v string")
    workflow.channel("items", "id int, v string", key="id")
    workflow.channel("bag", "id int, v string", encoding="changes")

    @workflow.task(schema="id int, v string")
    def log_new(log: kn.New) -> kn.Delta:
        return log

    @workflow.task(schema="id int, v string", key="id")
    def items_new(items: kn.New) -> kn.Delta:
        return items

    @workflow.task(schema="id int, v string", encoding="changes")
    def items_changes(items: kn.Changes) -> kn.Delta:
        return items

    @workflow.task(schema="id int, v string", encoding="changes")
    def bag_changes(bag: kn.Changes) -> kn.Delta:
        return bag

    workflow.view("per_value", "SELECT v, count(*) AS n FROM items GROUP BY v")
    return workflow


def write(place: Path, format: str, rows: Rows, columns: list[str]) -> Path:
    """Write rows to a file of a format."""
    place.parent.mkdir(parents=True, exist_ok=True)
    file = place.with_suffix(f".{format}")
    if format in ("parquet", "orc"):
        types = pa.schema([(name, ARROW[name]) for name in columns])
        table = pa.Table.from_pylist([{name: row.get(name) for name in columns} for row in rows], schema=types)
        if format == "parquet":
            parquet.write_table(table, file)
        else:
            orc.write_table(table, str(file))
    elif format == "csv":
        with file.open("w", newline="") as text:
            writer = csv.DictWriter(text, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
    else:
        file.write_text("".join(json.dumps({name: row.get(name) for name in columns}) + "\n" for row in rows))
    return file


class History:
    """A project beside what it should hold."""

    def __init__(self, project: Project, place: Path) -> None:
        self.project = project
        self.place = place
        self.made = 0
        self.relations: dict[str, list[Bag]] = {name: [Counter()] for name in CHANNELS}
        self.files: dict[Path, bytes] = {}

    def ingest(self, name: str, values: list[tuple[int, str | None]], format: str, in_place: bool, whole: bool) -> None:
        rows, bag = self._rows(name, dict(values) if name == "items" else None, values, whole)
        columns = list(dict.fromkeys(("id", "v", *(name for row in rows for name in row))))
        self.made += 1
        file = write(self.place / f"{self.made}", format, rows, columns)
        self.files[file] = file.read_bytes()
        report = self.project.ingest(name, file, replace=whole, in_place=in_place)
        (output,) = report.made
        if output.block is None:
            bag = self.relations[name][-1]
        assert bag == self.relations[name][-1] or output.block is not None
        self.relations[name].append(bag)

    def _rows(
        self, name: str, items: dict[int, str | None] | None, values: list[tuple[int, str | None]], whole: bool
    ) -> tuple[Rows, Bag]:
        """Rows of a file, and the relation after it; a value None takes away what is there."""
        now = self.relations[name][-1]
        if whole:
            kept = [(key, value) for key, value in (items.items() if items is not None else values) if value]
            return [{"id": key, "v": value} for key, value in kept], Counter(kept)
        if name == "log":
            kept = [(key, value) for key, value in values if value]
            return [{"id": key, "v": value} for key, value in kept], now + Counter(kept)
        if items is not None:
            delta = {(key,): None if value is None else (key, value) for key, value in items.items()}
            rows = [{"id": key, "v": value, "_deleted": value is None} for key, value in items.items()]
            return rows, reference.merge(CHANNELS[name], SCHEMA, now, delta)
        gone = dict.fromkeys(row for row in now for key, value in values if value is None and row[0] == key)
        weights = Counter({(key, value): 1 for key, value in values if value})
        weights.subtract(gone.keys())
        delta = {row: weight for row, weight in weights.items() if weight}
        rows = [{"id": row[0], "v": row[1], "_weight": weight} for row, weight in delta.items()]
        return rows, reference.merge(CHANNELS[name], SCHEMA, now, delta)

    def compare(self) -> None:
        for name, history in self.relations.items():
            if len(history) == 1:
                continue
            with self.project.catalog.reading() as tx:
                since = max(1, channel_store.channel_state(tx, name).first_retained)
            for point in {len(history) - 1, max(since, len(history) - 2)}:
                try:
                    rows = self.project.rows(name, at=point)[1]
                    changes = self.project.rows(name, at=len(history) - 1, since=point)
                except NotFound:  # garbage collection took it
                    assert point < len(history) - 1
                    continue
                assert Counter(rows) == history[point]
                weights: Counter[Any] = Counter()
                for row in changes[1]:
                    weights[row[:-1]] += row[-1]
                expected = Counter(history[-1])
                expected.subtract(history[point])
                assert {r: n for r, n in weights.items() if n} == {r: n for r, n in expected.items() if n}
        assert all(file.read_bytes() == content for file, content in self.files.items())

    def run(self) -> None:
        self.project.run()
        items = self.relations["items"][-1]
        expected: dict[str, Bag] = {
            "items_new": items,
            "items_changes": items,
            "bag_changes": self.relations["bag"][-1],
            "per_value": Counter(Counter(value for _, value in items.elements()).items()),
        }
        for name, bag in expected.items():
            with self.project.catalog.reading() as tx:
                written = channel_store.channel_state(tx, name).latest_distinct
            assert (Counter(self.project.rows(name)[1]) if written else Counter()) == bag


steps = st.one_of(
    st.tuples(
        st.just("ingest"),
        st.sampled_from(sorted(CHANNELS)),
        st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["a", "b", None])), min_size=1, max_size=3),
        st.sampled_from(FORMATS),
        st.booleans(),
        st.integers(0, 4).map(lambda number: number == 0),
    ),
    st.tuples(st.sampled_from(["run", "compact", "collect"])),
)


@settings(
    max_examples=1, deadline=None, phases=(Phase.generate,), suppress_health_check=[*HealthCheck], print_blob=True
)
@given(history=st.lists(steps, min_size=6, max_size=9))
def test_histories_of_blocks_in_place_and_at_home_agree_with_the_reference(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, history: list[Any]
) -> None:
    place = tmp_path_factory.mktemp("in_place")
    with open_project(place, session=spark, retry={"attempts": 1}) as project:
        project.create()
        project.apply(flow())
        both = History(project, place / "outside")
        both.ingest("log", [(1, "a")], "orc", True, False)
        both.ingest("items", [(1, "a"), (2, "b")], "csv", True, False)
        both.ingest("bag", [(1, "a"), (2, "b")], "json", True, False)
        for kind, *what in history:
            match kind:
                case "ingest":
                    name, values, format, in_place, whole = what
                    both.ingest(name, values, format, in_place, whole and name != "log")  # it has a reader of NEW
                case "run":
                    both.run()
                case "compact":
                    for name in CHANNELS:
                        project.compact(name)
                case _:
                    project.collect_garbage()
            both.compare()
        both.run()


@pytest.fixture
def filled(project: Project) -> Project:
    project.apply(flow())
    return project


def external(project: Project) -> int:
    """How many live blocks lie outside of the warehouse."""
    query = select(tables.block).where(tables.block.c.state == channel_store.LIVE, tables.block.c.external.is_not(None))
    with project.catalog.reading() as tx:
        return len(tx.connection.execute(query).all())


@pytest.mark.parametrize("format", FORMATS)
def test_compaction_brings_a_block_home_and_leaves_its_files(filled: Project, tmp_path: Path, format: str) -> None:
    file = write(tmp_path / "outside" / "one", format, [{"id": 1, "v": "a"}], ["id", "v"])
    content = file.read_bytes()
    filled.ingest("items", file, in_place=True, replace=format in ("csv", "orc"))
    [place] = (each.directory for each in filled.warehouse.storage.blocks())
    assert not list((tmp_path / ".kilonova" / "warehouse" / place).glob("[!_]*"))
    assert external(filled) == 1
    assert filled.compact("items") is not None
    filled.collect_garbage()
    assert external(filled) == 0
    assert filled.compact("items") is None
    assert file.read_bytes() == content
    file.unlink()
    assert filled.rows("items")[1] == [(1, "a")]


def test_dropping_a_channel_leaves_files_that_were_registered_in_place(filled: Project, tmp_path: Path) -> None:
    file = write(tmp_path / "outside" / "one", "json", [{"id": 1, "v": "a"}], ["id", "v"])
    workflow = kn.Workflow("other")
    workflow.channel("alone", "id int, v string")
    filled.apply(workflow)
    filled.ingest("alone", file, in_place=True)
    filled.drop("alone")
    filled.collect_garbage()
    assert file.exists()


@pytest.mark.parametrize("what", ["gone", "longer", "touched"])
def test_files_that_changed_are_named_and_not_read(filled: Project, tmp_path: Path, what: str) -> None:
    file = write(tmp_path / "outside" / "one", "csv", [{"id": 1, "v": "a"}], ["id", "v"])
    filled.ingest("items", file, in_place=True)
    filled.run()
    match what:
        case "gone":
            file.unlink()
        case "longer":
            file.write_text("id,v\n1,a\n2,b\n")
        case _:
            os.utime(file, (1, 1))
    with pytest.raises(InputError) as caught:
        filled.rows("items")
    assert caught.value.path == file.as_uri()
    with pytest.raises(InputError):
        filled.compact("items")
    filled.ingest("items", write(tmp_path / "new", "json", [{"id": 3, "v": "c"}], ["id", "v"]), replace=True)
    assert filled.rows("items")[1] == [(3, "c")]


@pytest.mark.parametrize(
    ("channel", "rows", "error"),
    [
        ("items", [{"id": 1, "v": "a"}, {"id": 1, "v": "b"}], KeyViolation),
        ("items", [{"id": None, "v": "a"}], KeyViolation),
        ("bag", [{"id": 1, "v": "a", "_weight": -1}], EncodingError),
        ("log", [{"id": 1}], SchemaMismatch),
        ("log", [{"id": 1, "v": "a", "_deleted": True}], SchemaMismatch),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_files_that_do_not_fit_are_refused(
    filled: Project, tmp_path: Path, channel: str, rows: Rows, error: type[KilonovaError], format: str
) -> None:
    file = write(tmp_path / "outside" / "one", format, rows, list(rows[0]))
    with pytest.raises(error) as caught:
        filled.ingest(channel, file, in_place=True)
    assert caught.value.channel == channel
    assert external(filled) == 0


def test_values_of_every_column_are_read_before_a_block_is_registered(filled: Project, tmp_path: Path) -> None:
    workflow = kn.Workflow("other")
    workflow.channel("numbers", "id int, n int", key="id", checks={"not_null": "n"})
    filled.apply(workflow)
    (tmp_path / "bad.csv").write_text("id,n\n1,x\n")
    with pytest.raises(InputError):
        filled.ingest("numbers", tmp_path / "bad.csv", in_place=True)
    (tmp_path / "null.csv").write_text("id,n\n1,\n")
    with pytest.raises(CheckFailed):
        filled.ingest("numbers", tmp_path / "null.csv", in_place=True)


def test_sources_that_cannot_be_registered_in_place_are_rejected(filled: Project, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a\n")
    with pytest.raises(InputError, match="cannot be read in place"):
        filled.ingest("log", tmp_path / "one.txt", format="text", in_place=True)
    with pytest.raises(DeclarationError, match="cannot be registered in place"):
        filled.ingest("log", filled.warehouse.spark.range(1), in_place=True)


def test_files_that_are_named_by_a_key_are_inserted_once_in_every_way(filled: Project, tmp_path: Path) -> None:
    file = write(tmp_path / "keyed", "csv", [{"id": 1, "v": "a"}], ["id", "v"])
    methods: list[dict[str, Any]] = [{}, {"replace": True}, {"in_place": True}, {"in_place": True, "replace": True}]
    for number, method in enumerate(methods):
        key = f"file {number}"
        done = filled.ingest("log", file, idempotency_key=key, **method)
        again = filled.ingest("log", file, idempotency_key=key, **method)
        assert (done.repeated, again.repeated) == (False, True)
        assert (again.run, again.made) == (done.run, done.made)
        for other in methods:
            if other != method:
                with pytest.raises(KeyReused, match="belongs to another ingest"):
                    filled.ingest("log", file, idempotency_key=key, **other)
    with file.open("a") as text:
        text.write("2,b\n")
    with pytest.raises(KeyReused):
        filled.ingest("log", file, idempotency_key="file 0")
    frame = filled.warehouse.spark.createDataFrame([(3, "c")], "id int, v string")
    done = filled.ingest("log", frame, idempotency_key="frame")
    assert filled.ingest("log", frame, idempotency_key="frame").run == done.run
    with pytest.raises(KeyReused):
        filled.ingest("log", frame.drop("v"), idempotency_key="frame")
    assert filled.ingest("items", frame, idempotency_key="frame").run == done.run + 1
