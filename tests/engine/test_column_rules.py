"""Channels that take files of several shapes by their rules for columns, in all formats and by all ways."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.catalog import channel_store
from kilonova.engine import directory_ingest
from kilonova.errors import Conflict, InputError, KilonovaError, SchemaMismatch
from kilonova.model.column_rules import rules_of
from kilonova.model.event import EventKind
from kilonova.model.schema import Schema
from kilonova.model.watched_file import FileState
from kilonova.service.project import Project, open_project
from kilonova.testing import reference
from kilonova.testing.reference import Record
from tests.seeds import SEED, some

COLUMNS = "id bigint, title string, site string"
SCHEMA = Schema.of(("id", "bigint"), ("title", "string"), ("site", "string"))
ALL = {"rename": {"headline": "title", "head": "title"}, "defaults": {"site": "unknown"}}
FORMATS = ("csv", "jsonl", "parquet", "orc")


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows of one shape as a file of the format that its name says."""
    match path.suffix:
        case ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".parquet":
            parquet.write_table(pa.Table.from_pylist(list(rows)), path)
        case ".orc":
            orc.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def declare(project: Project, columns: str = COLUMNS, watch: str | None = None, **rules: Any) -> None:
    news = kn.Workflow("news")
    inbox = None if watch is None else kn.watched_directory(watch, settle_time="0 seconds")
    news.channel("articles", columns, watch=inbox, **rules)
    news.view("per_site", "SELECT site, count(*) AS n FROM articles GROUP BY site")
    project.apply(news)


def shown(project: Project, channel: str = "articles") -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in project.rows(channel)[1]), key=repr)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(KilonovaError) as caught:
        act()
    assert isinstance(caught.value, SchemaMismatch | InputError)
    return f"{caught.value.column}: {caught.value.problem}"


def aside(project: Project) -> dict[str, str]:
    found = project.reader.files("articles", state=FileState.QUARANTINED).files
    return {file.path: file.error or "" for file in found}


def told(project: Project, kind: EventKind) -> list[str]:
    return [event.text for event in project.events() if event.kind is kind]


@pytest.mark.parametrize("suffix", FORMATS)
def test_files_of_several_shapes_become_rows_of_one_channel(project: Project, suffix: str, tmp_path: Path) -> None:
    declare(project, on_new_column="ignore", **ALL)
    place = tmp_path / "shapes"
    place.mkdir()
    write(place / f"1.{suffix}", [{"id": 1, "headline": "a"}])
    write(place / f"2.{suffix}", [{"site": "s", "head": "b", "id": 2}])
    write(place / f"3.{suffix}", [{"more": "x", "title": "c", "id": 3, "site": "t", "even": 1.5}])
    project.ingest("articles", place)
    assert shown(project) == [(1, "a", "unknown"), (2, "b", "s"), (3, "c", "t")]
    twice = write(tmp_path / f"twice.{suffix}", [{"id": 1, "headline": "a", "title": "b"}])
    assert refused(lambda: project.ingest("articles", twice)).startswith("title: ")
    missing = write(tmp_path / f"missing.{suffix}", [{"headline": "a", "other": 1}])
    assert refused(lambda: project.ingest("articles", missing)).startswith("id: ")
    assert len(shown(project)) == 3


def test_a_line_of_json_may_have_either_name_and_null_is_no_lack(project: Project, tmp_path: Path) -> None:
    declare(project, **ALL)
    lines = [
        {"id": 1, "headline": "a", "site": None},
        {"id": 2, "title": None},
        {"id": 3, "head": "c", "site": "s"},
    ]
    project.ingest("articles", write(tmp_path / "a.jsonl", lines))
    assert shown(project) == [(1, "a", None), (2, None, "unknown"), (3, "c", "s")]
    for line, said in (
        ({"id": 4, "title": "d", "head": "d"}, "title: line 2: the column is there twice, under its former name"),
        ({"id": 4}, "title: line 2: the column is missing"),
        ({"id": 4, "title": "d", "n": 1}, "n: line 2: the channel has no such column"),
        ({"id": 4, "head": "d", "Site": "s"}, "Site: line 2: the channel has no such column"),
        ({"id": "x", "head": "d"}, "id: line 2: 'x' is not of type bigint"),
    ):
        bad = write(tmp_path / "b.jsonl", [lines[0], line])
        assert refused(lambda bad=bad: project.ingest("articles", bad)).startswith(said)  # type: ignore[misc]
    lenient = {"mode": "DROPMALFORMED"}
    assert project.ingest("articles", tmp_path / "b.jsonl", options=lenient).malformed == 1


DEFAULTS: dict[str, Any] = {
    "string": "it's \\ %",
    "boolean": True,
    "tinyint": -128,
    "bigint": -(2**63),
    "float": 0.5,
    "double": float("-inf"),
    "decimal(38,3)": Decimal("-12345678901234567890123456789012345.678"),
    "date": date(1, 1, 1),
    "timestamp_ntz": datetime(2026, 1, 2, 3, 4, 5, 6),
    "array<int>": None,
}


def test_defaults_of_all_types_are_filled_in_all_ways(project: Project, tmp_path: Path) -> None:
    named = {f"c{place}": (kind, value) for place, (kind, value) in enumerate(DEFAULTS.items())}
    columns = ", ".join(["id bigint", *(f"{name} {kind}" for name, (kind, _) in named.items())])
    news = kn.Workflow("news")
    news.channel("articles", columns, defaults={name: value for name, (_, value) in named.items()})
    project.apply(news)
    for place, suffix in enumerate(FORMATS):
        project.ingest("articles", write(tmp_path / f"a.{suffix}", [{"id": place}]))
    project.ingest("articles", project.warehouse.spark.range(4, 5))
    assert shown(project) == [(place, *DEFAULTS.values()) for place in range(5)]


def test_columns_in_another_case_are_not_ignored(project: Project, tmp_path: Path) -> None:
    declare(project, on_new_column="ignore", **ALL)
    file = write(tmp_path / "a.jsonl", [{"id": 1, "title": "a", "Site": "s"}])
    assert refused(lambda: project.ingest("articles", file)) == "Site: line 1: the channel has no such column"


def test_lines_that_do_not_fit_are_found_in_files_of_another_shape(project: Project, tmp_path: Path) -> None:
    declare(project, on_new_column="ignore", **ALL)
    text = "extra,headline,id\n1,a,1\n2,b,two\n"
    (tmp_path / "a.csv").write_text(text)
    assert refused(lambda: project.ingest("articles", tmp_path / "a.csv")) == (
        "id: line 3: 'two' is not of type bigint"
    )
    project.ingest("articles", tmp_path / "a.csv", options={"mode": "PERMISSIVE"})
    assert shown(project) == [(1, "a", "unknown"), (None, "b", "unknown")]


def test_files_without_a_header_may_lack_the_last_columns(project: Project, tmp_path: Path) -> None:
    declare(project, **ALL)
    (tmp_path / "old.csv").write_text("1,a\n")
    (tmp_path / "new.csv").write_text("2,b,s\n")
    for name in ("old.csv", "new.csv"):
        project.ingest("articles", tmp_path / name, options={"header": "false"})
    assert shown(project) == [(1, "a", "unknown"), (2, "b", "s")]
    (tmp_path / "bad.csv").write_text("3\n")
    refused(lambda: project.ingest("articles", tmp_path / "bad.csv", options={"header": "false"}))


def test_files_in_place_have_the_columns_of_the_channel(project: Project, tmp_path: Path) -> None:
    declare(project, on_new_column="ignore", **ALL)
    file = write(tmp_path / "a.parquet", [{"id": 1, "headline": "a", "site": "s"}])
    assert refused(lambda: project.ingest("articles", file, in_place=True)) == (
        "title: the file lacks the column (it has: id, headline, site)"
    )


def test_the_rules_apply_to_frames(project: Project) -> None:
    spark = project.warehouse.spark
    declare(project, on_new_column="add", **ALL)
    project.ingest("articles", spark.createDataFrame([(1, "a", 1.5)], "id bigint, headline string, score double"))
    project.ingest("articles", spark.createDataFrame([("b", 2, "s")], "title string, id bigint, site string"))
    assert list(project.rows("articles")[0]) == ["id", "title", "site", "score"]
    assert shown(project) == [(1, "a", "unknown", 1.5), (2, "b", "s", None)]
    for columns, said in (
        ("id bigint, title string, head string", "title: the input has the column twice, as title and as head"),
        (
            "id bigint, title string, _deleted boolean",
            "_deleted: the input has a column that the channel does not have",
        ),
        ("title string", "id: the input lacks the column (it has: title)"),
        ("id int, title string", "id: the column has type int instead of bigint"),
    ):
        frame = spark.createDataFrame([], columns)
        assert refused(lambda frame=frame: project.ingest("articles", frame)) == said  # type: ignore[misc]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_new_column_is_added_to_the_channel(project: Project, suffix: str, tmp_path: Path) -> None:
    declare(project, on_new_column="add")
    project.ingest("articles", write(tmp_path / f"a.{suffix}", [{"id": 1, "title": "a", "site": "s"}]))
    project.run()
    new = {"score": 2, "tags": [1.5, 2.5]} if suffix != "csv" else {"score": 2, "tags": "x"}
    file = write(tmp_path / f"b.{suffix}", [{"id": 2, **new, "title": "b", "site": "s"}])
    done = project.ingest("articles", file)
    assert [made.reason for made in done.made] == [f"ingested from {file}; new columns score, tags"]
    exact = suffix in ("parquet", "orc")
    types = {"score": "bigint" if exact else "string", "tags": "array<double>" if exact else "string"}
    with project.catalog.reading() as tx:
        channel = channel_store.channel(tx, "articles")
    assert channel.schema is not None
    assert {name: channel.schema.type_of(name) for name in channel.added} == types
    said = ", ".join(f"{name} {kind}" for name, kind in types.items())
    assert told(project, EventKind.COLUMNS_ADDED) == [f"articles: new columns {said}"]
    values = (2, [1.5, 2.5]) if exact else ("2", "[1.5,2.5]" if suffix == "jsonl" else "x")
    assert shown(project) == [(1, "a", "s", None, None), (2, "b", "s", *values)]
    project.run()
    assert shown(project, "per_site") == [("s", 2)]
    declare(project, on_new_column="add")
    assert len(project.rows("articles")[0]) == 5
    project.ingest("articles", write(tmp_path / f"c.{suffix}", [{"id": 3, "title": "c", "site": "s"}]))
    project.compact("articles")
    assert shown(project)[1:] == [(2, "b", "s", *values), (3, "c", "s", None, None)]


@pytest.mark.parametrize("how", some([{"key": "id"}, {"encoding": "changes"}, {"key": "id", "encoding": "changes"}], 1))
def test_columns_are_added_in_each_encoding(project: Project, how: dict[str, Any]) -> None:
    spark, strong = project.warehouse.spark, "encoding" in how
    declare(project, on_new_column="add", **how)

    def ingest(columns: str, *rows: tuple[Any, ...], **more: Any) -> None:
        project.ingest("articles", spark.createDataFrame(list(rows), columns), **more)

    ingest(COLUMNS, (1, "a", "s"), (2, "b", "s"))
    project.run()
    removal = [(1, "a", "s", None, -1)] if strong else []
    weight, one = (", _weight bigint", (1,)) if strong else ("", ())
    ingest(f"{COLUMNS}, n int{weight}", *removal, (1, "a", "s", 7, *one), (3, "c", "t", 8, *one))
    assert shown(project) == [(1, "a", "s", 7), (2, "b", "s", None), (3, "c", "t", 8)]
    removal = [(1, "a", "s", 7, -1)] if strong else []
    ingest(f"{COLUMNS}, n int{weight}", *removal, (1, "a", "t", None, *one))
    project.compact("articles")
    project.run()
    assert shown(project) == [(1, "a", "t", None), (2, "b", "s", None), (3, "c", "t", 8)]
    assert shown(project, "per_site") == [("s", 1), ("t", 2)]
    ingest(f"{COLUMNS}, m int", (5, "a", "t", 9), replace=True)
    project.run()
    assert shown(project) == [(5, "a", "t", None, 9)]
    assert shown(project, "per_site") == [("t", 1)]


def test_an_added_column_stays_until_it_was_declared_and_is_removed(project: Project, tmp_path: Path) -> None:
    declare(project, on_new_column="add")
    file = write(tmp_path / "a.csv", [{"id": 1, "title": "a", "site": "s", "n": 7}])
    project.ingest("articles", file)
    declare(project, on_new_column="quarantine")
    assert shown(project) == [(1, "a", "s", "7")]
    declare(project, f"{COLUMNS}, n string")
    declare(project, on_new_column="add")
    assert shown(project) == [(1, "a", "s")]
    project.ingest("articles", file)
    assert shown(project) == [(1, "a", "s", "7"), (1, "a", "s", None)]


def test_added_columns_stay_after_the_catalog_was_lost(tmp_path: Path, spark: SparkSession) -> None:
    with open_project(tmp_path, session=spark) as project:
        project.create()
        declare(project, on_new_column="add")
        project.ingest("articles", write(tmp_path / "a.csv", [{"id": 1, "title": "a", "site": "s", "n": 7}]))
    for file in (tmp_path / ".kilonova").glob("catalog.db*"):
        file.unlink()
    with open_project(tmp_path, session=spark) as project:
        project.recover()
        declare(project, on_new_column="add")
        declare(project, on_new_column="add")
        assert shown(project) == [(1, "a", "s", "7")]


def test_columns_that_were_added_after_a_backup_are_recovered(tmp_path: Path, spark: SparkSession) -> None:
    rows = [{"id": 1, "title": "a", "site": "s", "n": 7}]
    with open_project(tmp_path, session=spark) as project:
        project.create()
        declare(project, on_new_column="add")
        project.close()
        saved = shutil.copytree(tmp_path / ".kilonova", tmp_path / "saved", ignore=shutil.ignore_patterns("warehouse"))
    with open_project(tmp_path, session=spark) as project:
        project.ingest("articles", write(tmp_path / "a.csv", rows))
    for file in (tmp_path / ".kilonova").glob("catalog.db*"):
        file.unlink()
    shutil.copytree(saved, tmp_path / ".kilonova", dirs_exist_ok=True)
    with open_project(tmp_path, session=spark) as project:
        project.recover()
        project.ingest("articles", write(tmp_path / "b.csv", rows))
        declare(project, on_new_column="add")
        assert shown(project) == [(1, "a", "s", "7")] * 2


def test_columns_that_change_while_rows_are_ingested_are_a_conflict(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(project, on_new_column="add")
    file = write(tmp_path / "a.csv", [{"id": 1, "title": "a", "site": "s", "n": 7}])
    write_block = type(project.warehouse).write

    def other_first(warehouse: Any, *given: Any) -> Any:
        monkeypatch.setattr(type(project.warehouse), "write", write_block)
        project.ingest("articles", file)
        return write_block(warehouse, *given)

    monkeypatch.setattr(type(project.warehouse), "write", other_first)
    with pytest.raises(Conflict, match="have changed"):
        project.ingest("articles", file)
    assert shown(project) == [(1, "a", "s", "7")]
    project.ingest("articles", file)
    assert shown(project) == [(1, "a", "s", "7")] * 2


def test_quarantined_files_are_retried_once_the_declaration_has_caught_up(project: Project, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    declare(project, watch="inbox", **ALL)
    write(inbox / "new.csv", [{"id": 1, "title": "a", "lang": "en"}])
    write(inbox / "renamed.jsonl", [{"id": 2, "titel": "b"}])
    write(inbox / "bad.csv", [{"id": "x", "title": "b"}])
    write(inbox / "good.csv", [{"id": 3, "title": "c"}])
    project.directories.ingest()
    assert {path: text.partition(". ")[0] for path, text in aside(project).items()} == {
        "inbox/new.csv": "the file has a column that the channel does not have",
        "inbox/renamed.jsonl": "line 1: the channel has no such column",
        "inbox/bad.csv": "line 2: 'x' is not of type bigint",
    }
    assert "[column lang]" in aside(project)["inbox/new.csv"]
    news = f"{COLUMNS}, lang string"
    rules = {"rename": {**ALL["rename"], "titel": "title"}, "defaults": {**ALL["defaults"], "lang": None}}
    declare(project, news, watch="inbox", **rules)
    assert told(project, EventKind.FILE_RELEASED) == [
        "articles: inbox/bad.csv, and 2 more: retried with the changed declaration, no longer quarantined"
    ]
    project.directories.ingest()
    assert shown(project) == [(1, "a", "unknown", "en"), (2, "b", "unknown", None), (3, "c", "unknown", None)]
    assert list(aside(project)) == ["inbox/bad.csv"]
    declare(project, news, watch="inbox", description="All articles", **rules)
    assert list(aside(project)) == ["inbox/bad.csv"]


def test_files_whose_new_columns_differ_become_successive_blocks(project: Project, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    declare(project, watch="inbox", on_new_column="add")
    moment = int(time.time()) - 10_000
    for number, (name, value) in enumerate({"1.parquet": 1, "2.csv": "x", "3.parquet": 2.5, "4.parquet": 4}.items()):
        path = write(inbox / name, [{"id": number, "title": "a", "site": "s", "score": value}])
        os.utime(path, (moment + number, moment + number))
    (inbox / "5.csv").write_text("id,title,site,title\n9,a,s,b\n")
    project.directories.ingest()
    assert shown(project) == [(0, "a", "s", 1), (3, "a", "s", 4)]
    assert {path: text.partition(". ")[0] for path, text in aside(project).items()} == {
        "inbox/2.csv": "line 2: 'x' is not of type bigint",
        "inbox/3.parquet": "the file contains double, which does not match bigint",
        "inbox/5.csv": "the file has the column twice",
    }
    assert told(project, EventKind.COLUMNS_ADDED) == ["articles: new column score bigint"]


def test_a_file_that_was_read_while_the_declaration_changed_is_retried(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    declare(project, watch="inbox")
    write(inbox / "a.csv", [{"id": 1, "title": "a", "site": "s", "n": 7}])
    found = directory_ingest.bisect_batch

    def changed_meanwhile(*given: Any, **more: Any) -> Any:
        outcome = found(*given, **more)
        monkeypatch.setattr(directory_ingest, "bisect_batch", found)
        declare(project, watch="inbox", on_new_column="ignore")
        return outcome

    monkeypatch.setattr(directory_ingest, "bisect_batch", changed_meanwhile)
    project.directories.ingest()
    assert shown(project) == [(1, "a", "s")]
    assert aside(project) == {}


RULES: dict[str, dict[str, Any]] = {
    "strict": {},
    "renamed": {"rename": {"headline": "title"}},
    "filled": {"defaults": {"site": "unknown", "title": None}},
    "ignored": {"on_new_column": "ignore", **ALL},
    "added": {"on_new_column": "add", **ALL},
}


@pytest.mark.parametrize("name", some(RULES, 2))
def test_any_files_give_the_rows_that_the_reference_says(project: Project, name: str, tmp_path: Path) -> None:
    chance = random.Random(f"{SEED}/{name}")
    given = RULES[name]
    rules = rules_of(
        given.get("on_new_column", "quarantine"), given.get("rename", {}), given.get("defaults", {}), SCHEMA
    )
    values = given.get("defaults", {})
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    declare(project, watch="inbox", **given)
    columns, wanted, bad = list(SCHEMA.names), list[Record](), set[str]()
    moment = int(time.time()) - 10_000
    for number in range(chance.randint(4, 8)):
        rows = _rows(chance, number)
        path = write(inbox / f"{number}.{chance.choice(FORMATS)}", rows)
        os.utime(path, (moment + number, moment + number))
        try:
            columns, found = reference.by_rules(rows, columns, rules, values, columns[len(SCHEMA.names) :])
            wanted += found
        except SchemaMismatch:
            bad.add(f"inbox/{path.name}")
    project.directories.ingest()
    assert set(aside(project)) == bad
    names, rows = project.rows("articles")
    assert sorted(names) == sorted(columns)
    assert Counter(map(tuple, rows)) == Counter(tuple(row.get(name) for name in names) for row in wanted)


def _rows(chance: random.Random, number: int) -> list[Record]:
    """Rows of one shape: each column is there or not, under one of its names; seldom under both."""
    names = ["id"] if chance.random() < 0.9 else []
    names += chance.choice([["title"], ["headline"], ["head"], [], ["title"], ["title", "headline"]])
    names += chance.choice([["site"], []])
    names += chance.choice([[], [], ["lang"], ["lang", "note"]])
    chance.shuffle(names)
    rows = [{name: f"{name} {number}" for name in names or ["title"]} for _ in range(chance.randint(1, 3))]
    return [{key: number if key == "id" else value for key, value in row.items()} for row in rows]
