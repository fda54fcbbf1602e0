"""The order in which rows and changes are read, for display."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kilonova as kn
from kilonova.errors import NotFound
from kilonova.service.project import Project, open_project
from kilonova.service.resources import ProjectResources

COLUMNS = "name string, score int, tags map<string, int>"
FIRST = [("eve", 3, None), ("ann", None, None), ("dan", 9, None), ("bob", 3, None), ("cid", 5, None)]


@pytest.fixture
def played(project: Project) -> Project:
    """A project whose views have a first state, at point 1, and a second one, in which some scores have changed."""
    games = kn.Workflow("games")
    games.channel("scores", COLUMNS, key="name")
    games.view("best", "SELECT upper(name) AS who, score FROM scores ORDER BY score DESC, name LIMIT 4")
    games.view("worst", "SELECT * FROM scores ORDER BY score NULLS LAST, name DESC LIMIT 3")
    games.view("plain", "SELECT score, name FROM scores")
    games.view("keyless", "SELECT score FROM scores")
    project.apply(games)
    for rows in (FIRST, [("ann", 7, None), ("dan", 1, None)]):
        project.ingest("scores", project.warehouse.spark.createDataFrame(rows, COLUMNS))
        project.run()
    return project


def page(project: Project, place: Path, channel: str, **when: int) -> list[tuple[Any, ...]]:
    file = str(place / "page.arrow")
    found: list[tuple[Any, ...]] = []
    while len(found) % 2 == 0:
        project.row_reader.page(channel, file, offset=len(found), limit=2, **when)
        with pa.ipc.open_stream(file) as stream:
            rows = stream.read_all().drop_columns([name for name in ("tags",) if name in stream.schema.names])
        found += [tuple(row.values()) for row in rows.to_pylist()]
        if not rows.num_rows:
            break
    return found


def test_a_view_with_order_by_and_limit_is_read_in_its_order(played: Project, tmp_path: Path) -> None:
    best = [("ANN", 7), ("CID", 5), ("BOB", 3), ("EVE", 3)]
    assert played.rows("best") == (("who", "score"), best)
    assert played.rows("best", limit=2)[1] == best[:2]
    assert page(played, tmp_path, "best") == best
    assert [row[0] for row in played.rows("best", at=1)[1]] == ["DAN", "CID", "BOB", "EVE"]
    assert [row[0] for row in played.rows("worst")[1]] == ["dan", "eve", "bob"]


def test_each_removal_is_followed_by_its_addition(played: Project, tmp_path: Path) -> None:
    changes = [("ann", None, None, -1), ("ann", 7, None, 1), ("dan", 9, None, -1), ("dan", 1, None, 1)]
    assert played.rows("scores", since=1)[1] == changes
    assert page(played, tmp_path, "scores", since=1) == [(name, score, weight) for name, score, _, weight in changes]
    derived = [(None, "ann", -1), (7, "ann", 1), (9, "dan", -1), (1, "dan", 1)]
    assert played.rows("plain", since=1) == (("score", "name", "_weight"), derived)
    assert played.rows("keyless", since=1)[1] == [(None, -1), (1, 1), (7, 1), (9, -1)]


def test_small_relations_are_read_without_spark(played: Project, tmp_path: Path) -> None:
    with open_project(played.directory) as reader:
        for channel in ("best", "plain", "keyless"):
            for when in ({}, {"at": 1}):
                found = reader.row_reader.small_page(channel, offset=0, limit=100, **when)
                assert found is not None
                point, rows = found
                assert point == when.get("at", 2)
                assert [tuple(row.values()) for row in rows.to_pylist()] == page(played, tmp_path, channel, **when)
        with pytest.raises(NotFound):
            reader.row_reader.small_page("best", at=9, offset=0, limit=1)
        assert reader.row_reader.small_page("scores", offset=0, limit=1) is None  # its columns are left to Spark
        assert reader.resources.block_store() is reader.resources.storage()  # there is no session


def test_further_pages_neither_read_blocks_nor_pin_them(played: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def some(offset: int) -> tuple[int, list[Any]]:
        found = played.row_reader.small_page("plain", offset=offset, limit=2)
        assert found is not None
        return found[0], found[1]["name"].to_pylist()

    assert some(0) == (2, ["ann", "bob"])
    with monkeypatch.context() as patched:
        patched.setattr(played.resources.pins, "pin", None)
        assert some(2) == (2, ["cid", "dan"])
    played.ingest("scores", played.warehouse.spark.createDataFrame([("abe", 1, None)], COLUMNS))
    played.run()
    assert some(0) == (3, ["abe", "ann"])


def test_rows_of_small_relations_are_those_of_spark_and_need_none(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = kn.Workflow("typed")
    columns = (
        "k int, b boolean, i tinyint, f float, x double, m decimal(20,3), d date, t timestamp, n timestamp_ntz,"
        " s string, y binary"
    )
    typed.channel("typed", columns, key="k")
    project.apply(typed)
    at = datetime(2024, 11, 3, 5, 30, 0, 500_000, UTC)
    values = (True, 1, 0.5, -0.0, Decimal("1.250"), date(2024, 2, 29), at, datetime(1960, 7, 1, 12), "é", b"\0\xff")
    project.ingest("typed", project.warehouse.spark.createDataFrame([(1, *values), (2, *[None] * 10)], columns))
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        wanted = sorted(tuple(row) for row in project.read("typed").collect())
        with monkeypatch.context() as without:
            without.setattr(ProjectResources, "warehouse", None)
            names, found = project.rows("typed")
            assert project.rows("typed", limit=1)[1] == found[:1]
            assert project.rows("typed", since=0)[1] == [(*row, 1) for row in found]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (list(names), found) == ([each.split()[0] for each in columns.split(", ")], wanted)
    assert [type(value) for value in found[0][:-1]] == [type(value) for value in wanted[0][:-1]]
