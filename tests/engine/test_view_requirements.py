"""Columns that views require of the outputs of other workflows: inferred from their queries, or declared."""

from __future__ import annotations

import kilonova as kn
from kilonova.model.event import EventKind
from kilonova.service.project import Project


def crawl(columns: str) -> kn.Workflow:
    wf = kn.Workflow("crawl")
    wf.channel("pages", "url string, site string, size bigint", key="url")
    wf.view("good", f"SELECT {columns} FROM pages")
    return wf


def report(query: str, **requires: str) -> kn.Workflow:
    wf = kn.Workflow("report")
    wf.view("sizes", query, requires=requires)
    return wf


def ingest(project: Project, url: str, size: int) -> None:
    rows = project.warehouse.spark.createDataFrame([(url, "x.org", size)], "url string, site string, size bigint")
    project.ingest("pages", rows)


def rows(project: Project) -> list[tuple[object, ...]]:
    return sorted(map(tuple, project.rows("sizes")[1]))


def test_a_view_stops_before_rows_without_a_column_that_its_query_reads(project: Project) -> None:
    project.apply(crawl("url, site, size"))
    ingest(project, "a", 1)
    project.run()
    project.apply(report("SELECT site, sum(size) AS size FROM good GROUP BY site"))
    project.run()
    (alert,) = project.apply(crawl("url, site")).incompatible
    assert (alert.channel, alert.task, [column.name for column in alert.columns]) == ("good", "sizes", ["size"])
    ingest(project, "b", 2)
    project.run()
    assert rows(project) == [("x.org", 1)]
    assert "requires size of good" in project.status().alerts["sizes"]
    assert [event.kind for event in project.events(0, 1000)].count(EventKind.INCOMPATIBLE_SCHEMA) == 2
    project.apply(report("SELECT site, count(*) AS size FROM good GROUP BY site"))
    project.run()
    assert rows(project) == [("x.org", 2)]
    plan = project.apply(report("SELECT site, sum(size) AS size FROM good GROUP BY site", good="size bigint"))
    assert "waits for the first data with size bigint of good" in plan.tasks[0].detail
    ingest(project, "c", 3)
    project.run()
    assert rows(project) == [("x.org", 3)]
    assert project.apply(crawl("url, site, size")).incompatible == ()
    project.run()
    assert rows(project) == [("x.org", 6)]
    assert project.status().alerts == {}
