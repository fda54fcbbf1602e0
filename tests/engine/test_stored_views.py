"""What the catalog stores of a view is all that its runs need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlglot.dialects.dialect import Dialect

import kilonova as kn
from kilonova.model.event import EventKind
from kilonova.query import expression_syntax, tree_json

SALES = "id int, place string, price decimal(10,2), seen date"


def workflow() -> kn.Workflow:
    made = kn.Workflow("w")
    made.channel("sales", SALES, key="id")
    made.channel("places", "place string, area string", key="place")
    made.view(
        "areas",
        "SELECT area, year(seen) AS year, sum(price) AS total, avg(price) AS mean, count(*) AS n"
        " FROM sales LEFT JOIN places USING (place) WHERE price > 0 GROUP BY area, year(seen)",
        refresh="incremental",
    )
    made.view(
        "best",
        "SELECT area, total FROM (SELECT area, total, rank() OVER (PARTITION BY year ORDER BY total DESC) AS r"
        " FROM areas WHERE n > 0 AND area IN (SELECT area FROM places)) WHERE r = 1",
        refresh="incremental",
    )
    return made


def test_a_run_of_views_parses_no_sql(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with kn.open_project(tmp_path) as project:
        project.create()
        project.apply(workflow())
        project.ingest("places", spark.createDataFrame([("a", "north"), ("b", "south")], "place string, area string"))
        rows = (
            "SELECT id, if(id % 2 = 0, 'a', 'b') AS place, CAST(id AS decimal(10,2)) AS price, DATE'2024-01-01' AS seen"
        )
        project.ingest("sales", spark.sql(f"{rows} FROM (SELECT CAST(id AS int) AS id FROM range(50))"))
        project.run(all_or_nothing=True)

    def refuse(*given: Any, **named: Any) -> Any:
        raise AssertionError(f"a run tokenizes {given}")

    for cached in (expression_syntax.parse, expression_syntax._parsed, tree_json.tree_from_json):
        cached.cache_clear()
    with kn.open_project(tmp_path) as project:
        news = spark.sql("SELECT 3 AS id, 'b' AS place, CAST(900 AS decimal(10,2)) AS price, DATE'2024-02-01' AS seen")
        project.ingest("sales", news)
        project.ingest("places", spark.createDataFrame([("b", "east")], "place string, area string"))
        monkeypatch.setattr(Dialect, "tokenize", refuse)
        report = project.run(all_or_nothing=True)
        assert report is not None
        made = {each.channel: each.reason.partition(":")[0] for each in project.runs(1)[0].made}
        assert made == dict.fromkeys(made, "incremental")
        assert {"areas", "best"} <= made.keys()
        assert EventKind.FELL_BACK not in {each.kind for each in project.events()}
        assert sorted(map(tuple, project.read("areas").select("area", "n").collect())) == [("east", 25), ("north", 24)]
        assert [row.area for row in project.read("best").collect()] == ["east"]


def test_the_relations_of_a_view_are_told_by_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILONOVA_SPARK__ANALYSE", "false")
    with kn.open_project(tmp_path) as project:
        project.create()
        project.apply(workflow())
        with project.catalog.reading() as tx:
            from kilonova.catalog import registry

            views = {name: known.task.view for name, known in registry.tasks(tx).items()}
            assert {name for name, view in views.items() if view == "best"} == set(registry.view_tasks(tx, "best"))
        assert set(views.values()) == {"areas", "best"}
        assert views["best"] == "best"
