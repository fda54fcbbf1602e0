"""Plans that are applied as they were looked at, and the history of logic versions that follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kilonova as kn
from kilonova.catalog import registry
from kilonova.errors import Conflict, NotFound
from kilonova.model.encoding import Upsert
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Schema
from kilonova.service.project import Project, open_project
from tests.service.writing import Writing, wrote

COLUMNS = Schema.of(("url", "string"), ("quality", "double"))
WRITTEN = Writing(base=True, encoding=Upsert(("url",)), schema=COLUMNS)


def crawl(threshold: float, *, more: bool = False) -> kn.Workflow:
    wf = kn.Workflow("crawl")
    wf.channel("pages", "url string, quality double", key="url")
    wf.view("good", f"SELECT url, quality FROM pages WHERE quality > {threshold}")
    if more:
        wf.view("urls", "SELECT url FROM pages")
    return wf


def ran(project: Project, method: RefreshMethod) -> int:
    return wrote(project.catalog, {"good": WRITTEN}, task="good", read=[("pages", 1)], method=method)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A workflow that has run."""
    with open_project(tmp_path, spark={"analyse": False}) as project:
        project.create()
        project.apply(crawl(0.5))
        wrote(project.catalog, {"pages": WRITTEN})
        ran(project, RefreshMethod.FULL)
        yield project


def test_a_plan_is_applied_only_as_it_was_looked_at(project: Project) -> None:
    plan = project.plan(crawl(0.7))
    assert plan.digest != project.plan(crawl(0.8)).digest
    wrote(project.catalog, {"pages": WRITTEN})  # more data does not change what the plan does
    with pytest.raises(Conflict, match="not the one that was looked at"):
        project.apply_all([crawl(0.8)], expected=[plan.digest])
    with pytest.raises(Conflict, match="not the one that was looked at"):
        project.apply_all([crawl(0.7, more=True)], expected=[plan.digest])
    assert project.reader.task("good").registered.logic == 0
    [done] = project.apply_all([crawl(0.7)], expected=[plan.digest])
    assert done.digest == plan.digest
    with pytest.raises(Conflict, match="not the one that was looked at"):
        project.apply_all([crawl(0.7)], expected=[plan.digest])


def test_a_rollback_is_applied_only_as_it_was_looked_at(project: Project) -> None:
    project.apply(crawl(0.7))
    plan = project.rollback("good", version=0, dry_run=True)
    with pytest.raises(Conflict, match="not the one that was looked at"):
        project.rollback("good", version=0, expected="other")
    project.rollback("good", version=0, expected=plan.digest)
    assert project.rollback("good", version=0, dry_run=True).empty  # repeating it changes nothing


def test_the_history_says_when_each_version_ran_first(project: Project) -> None:
    project.apply(crawl(0.7))
    project.apply(crawl(0.8))  # the version before has not run
    first = ran(project, RefreshMethod.MIGRATION)
    ran(project, RefreshMethod.INCREMENTAL)
    newest, skipped, oldest = project.reader.logic_history("good")
    assert [each.logic for each in (newest, skipped, oldest)] == [2, 1, 0]
    assert newest.first_run is not None
    assert (newest.first_run.run, newest.first_run.method) == (first, RefreshMethod.MIGRATION)
    assert newest.migration == "removes the rows for which quality <= 0.8"
    assert skipped.first_run is None
    assert oldest.first_run is not None
    assert (oldest.migration, oldest.ended) == ("", skipped.registered)


def test_the_history_of_a_workflow_is_that_of_its_tasks(project: Project) -> None:
    project.apply(crawl(0.7, more=True))
    found = [(each.task, each.logic) for each in project.reader.workflow_history("crawl")]
    assert found == [("good", 1), ("urls", 0), ("good", 0)]
    assert len(project.reader.workflow_history("crawl", 2)) == 2


def test_versions_of_a_recovered_catalog_are_not_known(project: Project) -> None:
    with project.catalog.writing() as tx:
        registry.continue_versions(tx, {"good": 4})
    project.apply(crawl(0.7))
    newest, recovered, *_ = project.reader.logic_history("good")
    assert (newest.logic, newest.known, recovered.logic, recovered.known) == (5, True, 4, False)
    with pytest.raises(NotFound, match="the definition of the logic version 4 is not known"):
        project.reader.logic_difference("good", 5)
    difference = project.reader.logic_difference("good", 5, 0)
    assert "+SELECT url, quality FROM pages WHERE quality > 0.7" in difference.diff.splitlines()
