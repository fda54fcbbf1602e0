"""Views whose query changes: their rows are migrated, and are those that the new query gives for the same input."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import kilonova as kn
from kilonova.errors import QueryError
from kilonova.query.view_migration import ViewMigration
from kilonova.service.project import Project
from tests.seeds import some

PAGES = "url string, site string, q double, links int"
SITES = "site string, country string, quality double"


def web(query: str, **how: Any) -> kn.Workflow:
    wf = kn.Workflow("web")
    wf.channel("pages", PAGES, **how)
    wf.channel("sites", SITES, key="site")
    wf.view("result", query, refresh="incremental")
    return wf


CHANGED = {
    "a filter that is tightened": ("SELECT url, q FROM pages WHERE q > 0.3", "SELECT url, q FROM pages WHERE q > 0.6"),
    "a filter that is loosened": ("SELECT url, q FROM pages WHERE q > 0.6", "SELECT url, q FROM pages WHERE q > 0.3"),
    "a filter on a column that is not selected": (
        "SELECT url FROM pages WHERE links > 3 AND q > 0.2",
        "SELECT url FROM pages WHERE links > 5",
    ),
    "a column that is dropped": ("SELECT url, q, links FROM pages", "SELECT url, links FROM pages"),
    "a column that is renamed": ("SELECT url, q, links FROM pages", "SELECT url, q AS quality, links FROM pages"),
    "a column that is added": ("SELECT url, q FROM pages", "SELECT url, q, links * 2 AS twice FROM pages"),
    "a column of another type": ("SELECT url, links AS n FROM pages", "SELECT url, links * 1.5 AS n FROM pages"),
    "a threshold above groups": (
        "SELECT site, count(*) AS n FROM pages GROUP BY site HAVING count(*) > 2",
        "SELECT site, count(*) AS n FROM pages GROUP BY site HAVING count(*) > 3",
    ),
    "a filter below groups": (
        "SELECT site, count(*) AS n, sum(links) AS l FROM pages WHERE q > 0.5 GROUP BY site",
        "SELECT site, count(*) AS n, sum(links) AS l FROM pages WHERE q > 0.2 GROUP BY site",
    ),
    "an aggregate that is added": (
        "SELECT site, count(*) AS n FROM pages GROUP BY site",
        "SELECT site, count(*) AS n, sum(links) AS l FROM pages GROUP BY site",
    ),
    "a branch of a union": (
        "SELECT url FROM pages WHERE q > 0.7",
        "SELECT url FROM pages WHERE q > 0.7 UNION ALL SELECT country FROM sites",
    ),
    "a join for a column": (
        "SELECT url, q FROM pages",
        "SELECT p.url, p.q, s.country FROM pages p LEFT JOIN sites s ON p.site = s.site",
    ),
    "rows and columns": (
        "SELECT url, q FROM pages WHERE q > 0.3",
        "SELECT url, q, links FROM pages WHERE q > 0.6",
    ),
}


RECOMPUTED = {
    False: {"a column that is added", "a join for a column", "rows and columns"},
    True: {"a branch of a union"},
}
"""Changes without a migration: rows without a key cannot get a column, and a key cannot be lost."""

ONE_STEP = {
    "a filter that is tightened",
    "a filter that is loosened",
    "a filter on a column that is not selected",
    "a column that is dropped",
    "a threshold above groups",
    "a branch of a union",
}
"""Changes whose migration is one delta with the new input, unless the view is recomputed."""


def ingest(project: Project, first: int, last: int) -> None:
    spark = project.warehouse.spark
    rows = spark.range(first, last).selectExpr(
        "concat('u', id) AS url",
        "concat('s', id % 7) AS site",
        f"((id * 37 + {first} * 13) % 100) / 100 AS q",
        "CASE WHEN id % 11 > 0 THEN CAST(id % 9 AS int) END AS links",
    )
    project.ingest("pages", rows)


def bag(project: Project, channel: str) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, project.read(channel).collect()))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("change", some(CHANGED, 2))
def test_the_output_is_migrated(project: Project, change: str, keyed: bool) -> None:
    old, new = CHANGED[change]
    how = {"key": "url"} if keyed else {}
    project.apply(web(old, **how))
    spark = project.warehouse.spark
    sites = spark.range(5).selectExpr("concat('s', id) AS site", "concat('c', id % 2) AS country", "id / 10 AS quality")
    project.ingest("sites", sites)
    ingest(project, 0, 100)
    project.run()
    ingest(project, 90, 130)
    project.run()
    plan = project.apply(web(new, **how))
    (task,) = (item for item in plan.tasks if item.task.name == "result")
    assert ("migrated" in task.detail) == (change not in RECOMPUTED[keyed])
    ingest(project, 120, 150)
    project.run()
    reasons = [made.reason for made in project.runs(1)[0].made if made.task == "result"]
    together = any("with the new input" in reason for reason in reasons)
    assert together == (change in ONE_STEP - RECOMPUTED[keyed]), reasons
    expected = Counter(
        map(
            tuple,
            spark.sql(
                new.replace(" pages", " {pages}").replace(" sites", " {sites}"),
                pages=project.read("pages"),
                sites=project.read("sites"),
            ).collect(),
        )
    )
    assert bag(project, "result") == expected


def test_a_view_whose_key_gets_and_loses_columns_is_recomputed(project: Project) -> None:
    def grouped(columns: str) -> kn.Workflow:
        wf = kn.Workflow("shop")
        wf.channel("orders", "customer string, day int, amount int", key=("customer", "day"))
        wf.view("totals", f"SELECT {columns}, sum(amount) AS amount FROM orders GROUP BY {columns}")
        wf.view("counted", "SELECT count(*) AS n FROM totals")
        return wf

    spark = project.warehouse.spark
    project.apply(grouped("customer"))
    rows = [("ann", 1, 2), ("ann", 2, 3), ("bob", 1, 4)]
    project.ingest("orders", spark.createDataFrame(rows, "customer string, day int, amount int"))
    project.run()
    project.apply(grouped("customer, day"))
    project.run()
    assert bag(project, "totals") == Counter(rows)
    project.apply(grouped("customer"))
    project.apply(grouped("day, customer"))  # while the rows have the key of neither
    assert project.explain("totals")
    project.run()
    project.apply(grouped("day"))
    project.run()
    assert bag(project, "totals") == Counter([(1, 6), (2, 3)])
    assert bag(project, "counted") == Counter([(2,)])


def test_a_migration_that_fails_is_replaced_by_a_full_refresh(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.apply(web("SELECT url, q, links FROM pages", key="url"))
    ingest(project, 0, 20)
    project.run()
    project.apply(web("SELECT url, links + 1 AS links, site FROM pages", key="url"))

    def failing(*_: Any) -> None:
        raise QueryError("no such thing", hint="")

    monkeypatch.setattr(ViewMigration, "compile", failing)
    project.run()
    pages = project.read("pages").selectExpr("url", "links + 1 AS links", "site")
    assert project.read("result").columns == pages.columns
    assert bag(project, "result") == Counter(map(tuple, pages.collect()))
    (made,) = project.runs(1)[0].made
    assert "the migration failed: no such thing" in made.reason
