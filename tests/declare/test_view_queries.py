"""Queries of common views, and the variants that views of them have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import kilonova as kn
from kilonova.errors import DeclarationError
from kilonova.schedule.asynchrony.declared_workflow import model_of
from kilonova.schedule.asynchrony.workflow_model import PortForm
from kilonova.service.project import Project

SCHEMAS = {
    "pages": "url string, site string",
    "news": "url string, site string",
    "scores": "site string, `my score` int",
}
VIEWS = {
    "labelled": (
        kn.join("pages", "scores", on="site"),
        "SELECT site, url, `my score` FROM pages JOIN scores USING (site)",
    ),
    "all_labelled": (
        kn.join("pages", "scores", on=["site"], how="left"),
        "SELECT site, url, `my score` FROM pages LEFT JOIN scores USING (site)",
    ),
    "everything": (kn.union_all("pages", "news"), "SELECT url, site FROM pages UNION ALL SELECT url, site FROM news"),
    "sites": (
        kn.union_all("pages", "news", "scores", columns="site"),
        "SELECT site FROM pages UNION ALL SELECT site FROM news UNION ALL SELECT site FROM scores",
    ),
    "different": (kn.distinct("pages", "site"), "SELECT DISTINCT site FROM pages"),
    "rows": (kn.distinct("scores"), "SELECT DISTINCT site, `my score` FROM scores"),
    "per_site": (
        kn.aggregate("scores", by="site", n="count(*)", mean="avg(`my score`)"),
        "SELECT site, count(*) AS n, avg(`my score`) AS mean FROM scores GROUP BY site",
    ),
    "whole": (kn.aggregate("pages", n="count(*)"), "SELECT count(*) AS n FROM pages"),
}


def workflow() -> kn.Workflow:
    made = kn.Workflow("search")
    for name, schema in SCHEMAS.items():
        made.channel(name, schema)
    for name, (query, _) in VIEWS.items():
        made.view(name, query, refresh="incremental")
    return made


def test_views_have_the_rows_of_their_queries(project: Project) -> None:
    spark = project.warehouse.spark
    project.apply(workflow())
    for turn in range(2):
        some: dict[str, list[tuple[Any, ...]]] = {
            "pages": [(f"u{turn}", "a"), (f"v{turn}", "b"), ("same", "a")],
            "news": [(f"u{turn}", "a"), (f"w{turn}", None)],
            "scores": [("a", turn), ("c", 7)],
        }
        for name, rows in some.items():
            project.ingest(name, spark.createDataFrame(rows, SCHEMAS[name]))
        project.run(all_or_nothing=True)
        for name in SCHEMAS:
            project.read(name).createOrReplaceTempView(name)
        for name, (_, expected) in VIEWS.items():
            wanted = spark.sql(expected)
            found = project.read(name)
            assert found.columns == wanted.columns, name
            assert Counter(map(tuple, found.collect())) == Counter(map(tuple, wanted.collect())), name


def test_a_join_and_a_union_have_asynchronous_variants() -> None:
    writer = model_of(workflow().declared().workflow, {}).writer
    for name in ("labelled", "everything"):
        forms = [[port.form for port in variant.ports] for variant in writer[name].variants]
        assert [PortForm.BASE] * 2 in forms, "synchronous, from bases"
        held = [sum(form is PortForm.HELD for form in ports) for ports in forms]
        assert sorted(held) == [0, 0, 1, 1], "synchronous, incremental, and the change of either side"


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda: kn.join("a", "b", on=()), r"join of a and b has no columns.*Give the columns"),
        (lambda: kn.join("a", "b", on="x", how="lefft"), r"no join of type 'lefft'.*Did you mean left"),  # type: ignore[arg-type]
        (lambda: kn.union_all("a"), "two channels or more"),
        (lambda: kn.aggregate("a", by="x"), "groups of a have no aggregates.*distinct"),
    ],
)
def test_incomplete_queries_are_refused(wrong: Callable[[], str], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        wrong()
