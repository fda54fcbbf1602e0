"""Migrations: the output of an earlier logic version becomes that of the new one without being recomputed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.catalog import channel_store, registry
from kilonova.errors import DeclarationError, TaskFailed
from kilonova.model.block import Delta
from kilonova.service.project import Project

PAGES = "url string, q double, site string"
ROWS = [("a", 0.9, "x"), ("b", 0.7, "x"), ("c", 0.55, "y"), ("d", 0.3, "y")]


def above(threshold: float, *, migration: Callable[..., Any] | None = None, from_version: int = 0) -> kn.Workflow:
    """Return a workflow with a task that keeps the pages above a threshold, and a view of its output."""
    wf = kn.Workflow("web")
    wf.channel("pages", PAGES)

    @wf.task(schema=PAGES, encoding="changes")
    def good(pages: kn.Changes) -> kn.Delta:
        return pages.where(F.col("q") > threshold)

    if migration is not None:
        good.migration(from_version=from_version)(migration)
    wf.view("sites", "SELECT site, count(*) AS n FROM good GROUP BY site")
    return wf


def tightened(good: kn.All) -> kn.Delta:
    """Remove what the threshold of the tests, 0.6, no longer lets through."""
    return good.where("q <= 0.6").withColumn("_weight", F.lit(-1).cast("bigint"))


def rows(project: Project, channel: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, project.rows(channel)[1]))


def ingest(project: Project, *given: tuple[Any, ...]) -> None:
    project.ingest("pages", project.warehouse.spark.createDataFrame(list(given), PAGES))


def methods(project: Project, task: str) -> list[str]:
    """Return the refresh methods by which a task has written, oldest first."""
    made = [item for run in reversed(project.runs(100)) for item in run.made if item.task == task and item.block]
    return [item.reason.partition(":")[0] for item in made]


def test_a_declared_migration_changes_the_output_instead_of_recomputing_it(project: Project) -> None:
    project.apply(above(0.5))
    ingest(project, *ROWS)
    project.run()
    assert [row[0] for row in rows(project, "good")] == ["a", "b", "c"]
    plan = project.apply(above(0.6, migration=tightened))
    (change,) = (item for item in plan.tasks if item.task.name == "good")
    assert "migrated at the next run: by tightened; reads good" in change.detail
    ingest(project, ("e", 0.8, "z"), ("f", 0.55, "z"))
    project.run()
    assert [row[0] for row in rows(project, "good")] == ["a", "b", "e"]
    assert rows(project, "sites") == [("x", 2), ("z", 1)]
    with project.catalog.reading() as tx:
        state = channel_store.channel_state(tx, "good")
        versions = registry.live_versions(tx, ["good"])["good"]
    assert [version.logic for version in versions] == [1]
    assert [str(state.version(point.number)) for point in state.readable_points][-2:] == [
        "pages›good 1[1]",
        "pages›good 2[1]",
    ]
    assert all(isinstance(block.kind, Delta) for block in state.blocks if block.end > 1)


def test_a_migration_may_read_inputs_as_the_earlier_version_has_read_them(project: Project) -> None:
    def loosened(pages: kn.All, good: kn.All) -> kn.Delta:
        between = pages.where("q > 0.4 AND q <= 0.5").join(good, "url", "left_anti")
        return between.withColumn("_weight", F.lit(1).cast("bigint"))

    project.apply(above(0.5))
    ingest(project, *ROWS, ("g", 0.45, "x"))
    project.run()
    ingest(project, ("h", 0.45, "x"), ("i", 0.2, "x"))
    project.apply(above(0.4, migration=loosened))
    project.run()
    assert [row[0] for row in rows(project, "good")] == ["a", "b", "c", "g", "h"]
    assert methods(project, "good")[1:] == ["migration", "incremental"]


def test_without_a_migration_from_the_version_that_has_run_the_output_is_recomputed(project: Project) -> None:
    project.apply(above(0.5))
    ingest(project, *ROWS)
    project.run()
    project.apply(above(0.8))
    project.run()
    plan = project.apply(above(0.6, migration=tightened))
    (change,) = (item for item in plan.tasks if item.task.name == "good")
    assert "recomputed at the next run: no migration from the logic version 1 is declared" in change.detail
    project.run()
    assert [row[0] for row in rows(project, "good")] == ["a", "b"]
    assert methods(project, "good") == ["initial"] * 3


def test_a_version_that_never_ran_is_passed_over(project: Project) -> None:
    project.apply(above(0.5))
    ingest(project, *ROWS)
    project.run()
    project.apply(above(0.1))
    project.apply(above(0.6, migration=tightened))
    project.run()
    assert [row[0] for row in rows(project, "good")] == ["a", "b"]
    assert methods(project, "good")[-1] == "migration"


def test_a_migration_that_fails_leaves_the_output_and_can_be_corrected(project: Project) -> None:
    def failing(good: kn.All) -> kn.Delta:
        raise ValueError("not this way")

    project.apply(above(0.5))
    ingest(project, *ROWS)
    project.run()
    project.apply(above(0.6, migration=failing))
    with pytest.raises(TaskFailed, match="not this way"):
        project.run(["good"])
    assert [row[0] for row in rows(project, "good")] == ["a", "b", "c"]
    plan = project.apply(above(0.6, migration=tightened))
    (change,) = (item for item in plan.tasks if item.task.name == "good")
    assert change.detail == "changes its migration"
    project.run()
    assert [row[0] for row in rows(project, "good")] == ["a", "b"]


@pytest.mark.parametrize("collected", [False, True])
def test_input_is_retained_for_a_migration(project: Project, collected: bool) -> None:
    def loosened(pages: kn.All, good: kn.All) -> kn.Delta:
        return pages.where("q > 0.4 AND q <= 0.5").withColumn("_weight", F.lit(1).cast("bigint"))

    project.apply(above(0.5))
    ingest(project, *ROWS, ("g", 0.45, "x"))
    project.run()
    project.apply(above(0.4, migration=loosened))
    ingest(project, ("h", 0.45, "x"))
    project.compact("pages")
    if collected:
        project.collect_garbage()
    project.run()
    assert [row[0] for row in rows(project, "good")] == ["a", "b", "c", "g", "h"]


def test_what_a_migration_cannot_be_is_refused() -> None:
    def newer(good: kn.New) -> kn.Delta:
        return good

    with pytest.raises(DeclarationError, match="the port good of a migration has the mode New"):
        above(0.6, migration=newer).declared()
    with pytest.raises(DeclarationError, match="cannot start from the logic version -2"):
        above(0.6, migration=tightened, from_version=-2)


def test_a_migration_from_a_version_that_does_not_exist_is_refused(project: Project) -> None:
    project.apply(above(0.5))
    with pytest.raises(DeclarationError, match="starts from the logic version 3, which does not exist"):
        project.plan(above(0.6, migration=tightened, from_version=3))
