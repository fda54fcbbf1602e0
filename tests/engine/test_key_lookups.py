"""Views whose changes look rows up by key equal their queries, through random changes of channels that are joined."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.service.project import Project, open_project
from kilonova.warehouse.key_lookup import KeyReader
from tests.seeds import SEED

SCHEMAS = {
    "orders": "id bigint, customer int, total int",
    "items": "id bigint, line int, part string, qty int",
    "parts": "part string, price int",
}
KEYS = {"orders": ("id",), "items": ("id", "line"), "parts": ("part",)}
QUERIES = {
    "joined": "SELECT o.id, i.line, o.customer, i.part, p.price FROM orders o JOIN items i ON o.id = i.id"
    " JOIN parts p ON i.part = p.part WHERE o.total > 2",
    "spent": "SELECT o.customer, count(*) AS n, sum(i.qty * p.price) AS spent FROM orders o JOIN items i ON o.id = i.id"
    " JOIN parts p USING (part) GROUP BY o.customer",
    "large": "SELECT o.id, o.total FROM orders o WHERE o.id IN (SELECT id FROM items GROUP BY id HAVING sum(qty) > 4)",
    "bare": "SELECT id, customer FROM orders o WHERE NOT EXISTS"
    " (SELECT 1 FROM items i WHERE i.id = o.id AND i.qty > 1)",
    "filled": "SELECT o.id, i.line, i.qty FROM orders o LEFT JOIN items i ON o.id = i.id",
    "most": "SELECT id, max(qty) AS most, count(DISTINCT part) AS parts FROM items GROUP BY id",
    "same": "SELECT a.id, a.line, b.line AS other FROM items a JOIN items b ON a.id = b.id AND a.line < b.line",
}


def row(draw: random.Random, channel: str) -> tuple[Any, ...]:
    match channel:
        case "orders":
            return draw.randrange(9), draw.choice([None, 0, 1, 2]), draw.randrange(6)
        case "items":
            return draw.randrange(9), draw.randrange(3), draw.choice([None, "x", "y", "z"]), draw.randrange(4)
        case _:
            return draw.choice("xyz"), draw.randrange(5)


def change(project: Project, draw: random.Random, channel: str) -> None:
    """Upsert some rows, and delete others."""
    key = len(KEYS[channel])
    rows = {each[:key]: each for each in (row(draw, channel) for _ in range(draw.randrange(4, 9)))}
    marked = [(*each, draw.random() < 0.3) for each in rows.values()]
    project.ingest(channel, project.warehouse.spark.createDataFrame(marked, f"{SCHEMAS[channel]}, _deleted boolean"))


def assert_equal(project: Project, views: list[str]) -> None:
    spark = project.warehouse.spark
    for name in SCHEMAS:
        frame = project.read(name)
        spark.createDataFrame(frame.collect(), frame.schema).createOrReplaceTempView(name)
    for name in views:
        made = project.read(name)
        expected = Counter(map(tuple, spark.sql(QUERIES[name]).select(made.columns).collect()))
        assert Counter(map(tuple, made.collect())) == expected, name


@pytest.mark.parametrize("histories", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_views_follow_random_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, histories: int
) -> None:
    found, rows = list[tuple[str, int | None]](), KeyReader.rows
    monkeypatch.setattr("kilonova.warehouse.key_lookup._SHARE", 0.001)

    def watched(reader: KeyReader, *given: Any) -> pa.Table | None:
        table = rows(reader, *given)
        found.append((given[1].column, None if table is None else table.num_rows))
        return table

    monkeypatch.setattr(KeyReader, "rows", watched)
    for number in range(histories):
        draw = random.Random(f"{SEED}/{number}")
        sizes = {
            "lookup_min": 0,
            "single_task_max": draw.choice([0, 8 << 20]),
            "broadcast_max": draw.choice([0, 8 << 20]),
        }
        monkeypatch.setattr("kilonova.warehouse.key_lookup._MEMORY", draw.choice([600, 16 << 20]))
        place = tmp_path / str(number)
        with open_project(place, session=spark, retry={"wait": 0}, sizes=sizes, spark={"analyse": False}) as project:
            project.create()
            workflow = kn.Workflow("shop")
            for name, schema in SCHEMAS.items():
                workflow.channel(name, schema, key=KEYS[name])
            views = ["joined", *draw.sample([*QUERIES][1:], 2)]
            for name in views:
                workflow.view(name, QUERIES[name], refresh="incremental")
            project.apply(workflow)
            for name in SCHEMAS:
                change(project, draw, name)
                change(project, draw, name)
            project.run()
            for _ in range(2):
                for name in ("items", "orders", *draw.choices([*SCHEMAS], k=draw.randrange(3))):
                    change(project, draw, name)
                if draw.random() < 0.3:
                    project.compact(draw.choice([*SCHEMAS]))
                project.run()
                assert_equal(project, views)
            assert not [event for event in project.events() if "was fully recomputed" in event.text]
    assert "id" in {column for column, _ in found}
    assert any(rows for _, rows in found)
