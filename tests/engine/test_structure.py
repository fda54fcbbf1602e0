"""Tasks that are inserted into a flowing workflow and removed from it, by reference (logic evolution, 3.2)."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.catalog import channel_store
from kilonova.service.project import Project
from kilonova.service.workflow_plan import WorkflowPlan
from tests.engine.test_migrations import ingest, methods, rows
from tests.service.test_preview import files

PAGES = "url string, q double, site string"
ROWS = [("a", 0.9, "x"), ("b", 0.7, "x"), ("c", 0.55, "y"), ("d", 0.3, "y")]


def counting(condition: str | None = None) -> kn.Workflow:
    """A workflow that counts pages, of which a view may select some first."""
    wf = kn.Workflow("web")
    wf.channel("pages", PAGES)
    if condition is not None:
        wf.view("good", f"SELECT * FROM pages WHERE {condition}")
    query = f"SELECT site, count(*) AS n FROM {'good' if condition else 'pages'} GROUP BY site"
    wf.view("sites", query, refresh="incremental")
    wf.view("large", "SELECT site FROM sites WHERE n > 1")
    wf.view("urls", f"SELECT url FROM {'good' if condition else 'pages'} WHERE site <> 'y'", refresh="incremental")
    return wf


def versions(project: Project, channel: str) -> list[str]:
    with project.catalog.reading() as tx:
        state = channel_store.channel_state(tx, channel)
    return [str(point.version) for point in state.readable_points]


def blocks(project: Project, channel: str) -> set[int]:
    with project.catalog.reading() as tx:
        return {block.number for block in channel_store.channel_state(tx, channel).blocks}


def details(plan: WorkflowPlan) -> dict[str, str]:
    return {item.task.name: item.detail for item in plan.tasks}


def test_an_inserted_view_begins_with_the_blocks_of_its_input(project: Project) -> None:
    project.apply(counting())
    ingest(project, *ROWS)
    project.run()
    ingest(project, ("e", 0.8, "y"))
    project.run()
    ingest(project, ("f", 0.2, "x"))  # that nobody has processed
    before = blocks(project, "pages")
    plan = details(project.plan(counting("q > 0.4")))
    assert plan["good"].startswith("new; ")
    assert "inserted between pages and sites, urls: the rows that pages has are there by reference" in plan["good"]
    assert "migrated at the next run: removes the rows" in plan["good"]
    assert plan["sites"] == "reads good instead of pages, from its cursor on"
    there = files(project)
    previewed = {each.channel: each for each in project.preview([counting("q > 0.4")], verify=True).channels}
    assert (previewed["sites"].added, previewed["sites"].removed) == (2, 2)
    assert files(project) == there
    assert versions(project, "sites") == ["pages›sites 1[0]", "pages›sites 2[0]"]
    project.apply(counting("q > 0.4"))
    assert blocks(project, "good") == before
    assert versions(project, "good") == ["pages›good 1[s]", "pages›good 2[s]", "pages›good 3[s]"]
    assert versions(project, "sites") == ["pages›good›sites 1[s,0]", "pages›good›sites 2[s,0]"]
    assert versions(project, "large")[0] == "pages›good›sites›large 1[s,0,0]"
    ingest(project, ("g", 0.5, "z"), ("h", 0.1, "z"))
    project.run()
    assert rows(project, "sites") == [("x", 2), ("y", 2), ("z", 1)]
    assert rows(project, "large") == [("x",), ("y",)]
    assert versions(project, "good")[-1] == "pages›good 4[0]"
    assert versions(project, "sites")[-1] == "pages›good›sites 4[0,0]"
    assert "migration" in methods(project, "good")[-2:]
    assert methods(project, "sites")[1:] == ["incremental", "incremental"]
    assert project.plan(counting("q > 0.4")).empty
    assert project.fsck().damaged == ()


def test_a_removed_view_is_not_missed_by_its_readers(project: Project) -> None:
    project.apply(counting("q > 0.4"))
    ingest(project, *ROWS)
    project.run()
    plan = details(project.apply(counting()))
    assert plan["sites"] == "reads pages directly, as good is removed: its next run processes the difference"
    assert versions(project, "sites") == ["pages›good›sites 1[0,0]; pages›sites s[0]"]
    assert project.plan(counting()).empty
    ingest(project, ("e", 0.1, "z"))
    project.run()
    assert rows(project, "sites") == [("x", 2), ("y", 2), ("z", 1)]
    assert rows(project, "urls") == [("a",), ("b",), ("e",)]
    assert methods(project, "urls")[-1] == "incremental"  # a filter that is removed takes no rows away
    assert methods(project, "sites")[-1] == "incremental"
    assert versions(project, "sites")[-1] == "pages›good›sites e[e,0]; pages›sites 2[0]"
    assert versions(project, "large")[-1].startswith("pages›good›sites›large e[e,0,0]; pages›sites›large")
    ingest(project, ("f", 0.1, "z"))
    project.run()
    project.compact("large")  # otherwise its base reflects the point of sites before the removal
    project.compact("sites")
    project.collect_garbage()
    ingest(project, ("g", 0.1, "z"))
    project.run()
    assert rows(project, "sites") == [("x", 2), ("y", 2), ("z", 3)]
    assert versions(project, "sites")[-1] == "pages›sites 4[0]"


def test_inputs_are_attached_and_detached(project: Project) -> None:
    """Also to a task that is inserted: it first passes on its main input (logic evolution, 3.2.1, 3.2.3, 3.2.4)."""

    def workflow(pages: str, joined: str = "") -> kn.Workflow:
        wf = kn.Workflow("web")
        for name in ("pages", "more"):
            wf.channel(name, PAGES)
        wf.channel("allowed", "site string", key="site")
        if joined:
            wf.view("good", joined)
        wf.view("every", pages)
        return wf

    project.apply(workflow("SELECT url, site FROM pages"))
    ingest(project, *ROWS)
    project.ingest("more", project.warehouse.spark.createDataFrame([("m", 0.5, "z")], PAGES))
    project.ingest("allowed", project.warehouse.spark.createDataFrame([("x",)], "site string"))
    project.run()
    project.apply(workflow("SELECT url, site FROM pages UNION ALL SELECT url, site FROM more"))
    assert versions(project, "every") == ["more›every s[0]; pages›every 1[0]"]
    project.run()
    assert [row[0] for row in rows(project, "every")] == ["a", "b", "c", "d", "m"]
    assert versions(project, "every")[-1] == "more›every 1[1]; pages›every 1[1]"
    project.apply(workflow("SELECT url, site FROM pages"))
    project.run()
    assert versions(project, "every")[-1] == "more›every e[2]; pages›every 1[2]"
    joined = "SELECT p.url, p.q, p.site FROM pages p JOIN allowed a ON p.site = a.site"
    plan = project.apply(workflow("SELECT url, site FROM good", joined))
    assert "inserted between pages and every" in details(plan)["good"]
    assert versions(project, "good")[-1] == "allowed›good s[s]; pages›good 1[s]"
    assert versions(project, "every")[-1].split("; ")[0] == "allowed›good›every s[s,2]"
    assert versions(project, "every")[-1].split("; ")[-1] == "pages›good›every 1[s,2]"
    project.run()
    assert [row[0] for row in rows(project, "every")] == ["a", "b"]
    assert versions(project, "good")[-1] == "allowed›good 1[0]; pages›good 1[0]"


def extraction(spam: Any = None, migration: Any = None) -> kn.Workflow:
    """The running example of the paper: pages are crawled, and joined with the URLs of places."""
    wf = kn.Workflow("restaurants")
    wf.channel("place_urls", "url string", key="url")
    wf.channel("crawled_pages", "url string, content string", key="url")
    if spam is not None:
        filtered = wf.task(schema="url string, content string", key="url")(spam)
        if migration is not None:
            filtered.migration(from_version=kn.START)(migration)

    def extracted(place_urls: kn.All, pages: kn.All) -> kn.Base:
        return pages.join(place_urls, "url")

    def of_new_pages(place_urls: kn.All, pages: kn.New) -> kn.Delta:
        return pages.join(place_urls, "url")

    reads = {"pages": "crawled_pages" if spam is None else "without_spam"}
    task = wf.task(schema="url string, content string", key="url", reads=reads)(extracted)
    task.variant(of_new_pages)
    return wf


def without_spam(crawled_pages: kn.New) -> kn.Delta:
    return crawled_pages.withColumn("_deleted", F.col("_deleted") | (F.col("content") == "spam"))


def remove_spam(without_spam: kn.All) -> kn.Delta:
    return without_spam.where("content = 'spam'").withColumn("_deleted", F.lit(True))


@pytest.mark.parametrize("migration", [None, remove_spam])
def test_the_spam_filter_of_the_paper(project: Project, migration: Any) -> None:
    """Logic evolution, 3.2.1: of Figure 4, the first block is on each channel when the filter is inserted."""
    spark = project.warehouse.spark
    project.apply(extraction())
    project.ingest("place_urls", spark.createDataFrame([("a",), ("b",)], "url string"))
    pages = [("a", "pizza"), ("b", "spam"), ("c", "spam")]
    project.ingest("crawled_pages", spark.createDataFrame(pages, "url string, content string"))
    project.run()
    assert project.versions("extracted").points[0].components == ("1", "1", "0")
    project.apply(extraction(without_spam, migration))
    assert versions(project, "without_spam") == ["crawled_pages›without_spam 1[s]"]
    assert versions(project, "extracted") == ["crawled_pages›without_spam›extracted 1[s,0]; place_urls›extracted 1[0]"]
    project.run()
    assert rows(project, "without_spam") == [("a", "pizza")]
    assert rows(project, "extracted") == [("a", "pizza")]
    assert versions(project, "without_spam")[-1] == "crawled_pages›without_spam 1[0]"
    assert versions(project, "extracted")[-1].startswith("crawled_pages›without_spam›extracted 1[0,0]")
    assert methods(project, "without_spam")[1:] == ["initial" if migration is None else "migration"]
    assert methods(project, "extracted")[1:] == ["incremental"]
    if migration is not None:
        assert blocks(project, "crawled_pages") < blocks(project, "without_spam")


def test_rows_that_are_there_may_stay_as_they_are(project: Project) -> None:
    spark = project.warehouse.spark
    project.apply(extraction())
    project.ingest("place_urls", spark.createDataFrame([("a",), ("b",)], "url string"))
    project.ingest("crawled_pages", spark.createDataFrame([("a", "spam")], "url string, content string"))
    project.run()
    plan = project.apply(extraction(without_spam), same_logic=["without_spam"])
    assert "the rows that crawled_pages has stay as they are" in details(plan)["without_spam"]
    assert project.run() is None
    project.ingest("crawled_pages", spark.createDataFrame([("b", "spam"), ("c", "pie")], "url string, content string"))
    project.run()
    assert rows(project, "without_spam") == [("a", "spam"), ("c", "pie")]
    assert rows(project, "extracted") == [("a", "spam")]
    assert versions(project, "without_spam")[-1] == "crawled_pages›without_spam 1[s] 2[0]"
