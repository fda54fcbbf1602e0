"""Retraction of a faulty logic version: what it has touched is found, repaired, and not read by its number any more."""

from __future__ import annotations

import json

import pytest

import kilonova as kn
from kilonova.catalog import registry
from kilonova.catalog.database import Transaction
from kilonova.cli.main import main
from kilonova.errors import CatalogUnavailable, DeclarationError, NotFound
from kilonova.schedule.retraction import RepairStep
from kilonova.service import plan_application
from kilonova.service.project import Project
from kilonova.service.workflow_plan import WorkflowPlan
from tests.engine.test_migrations import ROWS, ingest, methods, rows


def counting(least: float) -> kn.Workflow:
    wf = kn.Workflow("web")
    wf.channel("pages", "url string, q double, site string", retention="7 days")
    wf.view("good", f"SELECT url, site FROM pages WHERE q > {least}", retention="7 days")
    wf.view("sites", "SELECT site, count(*) AS n FROM good GROUP BY site", retention="7 days", refresh="incremental")
    return wf


def points(project: Project, channel: str) -> dict[int, str | None]:
    return {each.point: each.retracted for each in project.versions(channel).points}


def test_a_faulty_version_is_retracted_with_all_that_it_has_touched(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.apply(counting(0.5))
    ingest(project, *ROWS)
    project.run()
    with pytest.raises(DeclarationError, match="no earlier logic version can replace the version 0"):
        project.retract("good", 0)
    project.apply(counting(5))
    ingest(project, ("e", 0.9, "z"))
    project.run()
    ingest(project, ("f", 0.9, "z"))
    project.run()
    assert rows(project, "sites") == []
    found = project.retract("good", 1, dry_run=True)
    touched = {each.channel: each.points for each in found.retraction.touched}
    assert {each.channel: each.newest for each in found.retraction.touched} == {"good": True, "sites": True}
    assert all(points and 1 not in points for points in touched.values())
    assert found.retraction.steps == {"good": RepairStep.REPLACE, "sites": RepairStep.CHANGES}
    assert found.plan is not None
    assert "migrated at the next run: adds" in next(item for item in found.plan.tasks if item.anew).detail
    recomputed = project.retract("good", 1, recompute=True, dry_run=True)
    assert recomputed.retraction.steps["good"] is RepairStep.RECOMPUTE
    assert recomputed.plan is not None
    assert "migrated" not in next(item for item in recomputed.plan.tasks if item.anew).detail
    assert set(points(project, "good").values()) == {None}
    assert project.retract("good", 1).retraction == found.retraction
    assert rows(project, "sites") == []
    project.run()
    assert rows(project, "sites") == [("x", 2), ("y", 1), ("z", 2)]
    assert methods(project, "good")[-1] in ("migration", "incremental")
    assert set(methods(project, "sites")[1:]) == {"incremental"}
    flagged = [number for number, retracted in points(project, "sites").items() if retracted]
    assert sorted(flagged) == list(touched["sites"])
    for point in flagged:
        with pytest.raises(NotFound, match="the point reflects the logic version 1 of good, which was retracted"):
            project.rows("sites", at=point)
    assert sorted(project.rows("sites", at=1)[1]) == [("x", 2), ("y", 1)]
    again = project.retract("good", 1, dry_run=True)
    assert (again.plan, again.retraction.steps) == (None, {})
    monkeypatch.chdir(project.directory)
    with pytest.raises(SystemExit):
        main(["retract", "good", "--version", "1", "--dry-run", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert {each["channel"]: tuple(each["points"]) for each in shown["touched"]} == touched


def test_a_version_is_not_retracted_if_it_cannot_be_replaced(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_plan = plan_application.apply_plan

    def failing(tx: Transaction, plan: WorkflowPlan) -> None:
        if registry.retracted(tx):
            raise CatalogUnavailable("the database has gone")
        apply_plan(tx, plan)

    for least in (0.5, 5):
        project.apply(counting(least))
    with monkeypatch.context() as broken:
        broken.setattr(plan_application, "apply_plan", failing)
        with pytest.raises(CatalogUnavailable):
            project.retract("good", 1)
    with project.catalog.reading() as tx:
        assert registry.retracted(tx) == {}
        assert registry.tasks(tx, ["good"])["good"].logic == 1
    project.retract("good", 1)
    with project.catalog.reading() as tx:
        assert registry.retracted(tx) == {"good": {1}}
        assert registry.tasks(tx, ["good"])["good"].logic == 2


def test_a_corrected_definition_is_applied_first_and_the_output_recomputed(project: Project) -> None:
    project.apply(counting(5))
    ingest(project, *ROWS)
    project.run()
    project.apply(counting(0.5))
    found = project.retract("good", 0, recompute=True)
    assert (found.plan, found.retraction.steps["good"]) == (None, RepairStep.RECOMPUTE)
    project.run()
    assert rows(project, "sites") == [("x", 2), ("y", 1)]
    assert methods(project, "good")[-1] in ("initial", "full")
    assert project.retract("good", 0).retraction.steps == {}
    again = project.retract("good", 0, recompute=True)  # as if it had been migrated
    assert again.retraction.steps == {"good": RepairStep.RECOMPUTE}
    count = len(methods(project, "good"))
    project.run()
    assert methods(project, "good")[count:] in (["initial"], ["full"])
