"""What becomes of channels downstream of a change whose own tasks stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

import kilonova as kn
from kilonova.model.encoding import Upsert
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Schema
from kilonova.service.project import Project, open_project
from tests.service.writing import Writing, wrote

GOOD = "SELECT url, site, quality FROM pages WHERE quality > 0.5"


def crawl(query: str) -> kn.Workflow:
    wf = kn.Workflow("crawl")
    wf.channel("pages", "url string, site string, quality double", key="url")
    wf.view("good", query)
    wf.view("sites", "SELECT site, count(*) AS n FROM good GROUP BY site")
    wf.view("busy", "SELECT site FROM sites WHERE n > 1")

    @wf.task(schema="url string", encoding="changes")
    def copied(good: kn.Changes) -> kn.Delta:
        return good.select("url", "_weight")

    return wf


def report() -> kn.Workflow:
    wf = kn.Workflow("report")
    wf.view("mean", "SELECT site, avg(quality) AS mean FROM good GROUP BY site")
    wf.view("urls", "SELECT url FROM good")

    @wf.task(schema="url string")
    def exported(good: kn.All) -> kn.Base:
        return good.select("url")

    return wf


@pytest.fixture
def filled(tmp_path: Path) -> Project:
    """A workflow that has run, and another one that reads its output."""
    with open_project(tmp_path, spark={"analyse": False}) as project:
        project.create()
        project.apply(crawl(GOOD))
        columns = Schema.of(("url", "string"), ("site", "string"), ("quality", "double"))
        written = Writing(base=True, encoding=Upsert(("url",)), schema=columns)
        wrote(project.catalog, {"pages": written})
        wrote(project.catalog, {"good": written}, task="good", read=[("pages", 1)], method=RefreshMethod.FULL)
        project.apply(report())
        return project


def effects(project: Project, query: str) -> dict[str, tuple[str, str]]:
    return {each.channel: (each.effect.value, each.detail) for each in project.plan(crawl(query)).affected}


def test_readers_process_the_rows_that_a_migration_changes(filled: Project) -> None:
    found = effects(filled, GOOD.replace("0.5", "0.7"))
    processed = ("incremental", "processes the changed rows")
    assert found == {
        "sites": processed,
        "copied": processed,
        "mean": processed,
        "urls": processed,
        "exported": ("full", "recomputed in full"),
        "busy": processed,
    }


def test_what_reads_a_lost_column_breaks(filled: Project) -> None:
    found = effects(filled, GOOD.replace("quality FROM", "quality AS q FROM"))
    assert found["mean"] == ("breaks", "cannot run: it reads the column quality, which good loses")
    assert found["urls"] == ("incremental", "processes the changed rows")
    assert found["copied"] == ("may break", "fails if it uses the column quality, which good loses")
    assert found["exported"][0] == "may break"
    assert found["sites"][0] == "incremental"


def test_what_reads_a_column_of_another_type_may_break(filled: Project) -> None:
    found = effects(filled, GOOD.replace("quality FROM", "CAST(quality AS string) AS quality FROM"))
    assert found["mean"] == (
        "may break",
        "may fail: it reads the column quality, which becomes string instead of double",
    )
    assert found["urls"][0] == "incremental"


def test_nothing_is_affected_by_what_does_not_change_the_output(filled: Project) -> None:
    assert effects(filled, GOOD) == {}
    assert effects(filled, GOOD.replace("quality > 0.5", "0.5 < quality")) == {}
