"""Changed workflows that take effect later, while the present tasks run."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import kilonova as kn
from kilonova.catalog import deferred, registry
from kilonova.errors import DeclarationError
from kilonova.model.event import EventKind
from kilonova.service.project import Project, open_project

LATER = datetime(2100, 1, 1, tzinfo=UTC)


def web(threshold: float, *columns: str) -> kn.Workflow:
    """Return a workflow with pages above a threshold, and a view that reads all columns of them."""
    wf = kn.Workflow("web")
    wf.channel("pages", "url string, q double, site string", key="url")
    wf.view("good", f"SELECT url, q{''.join(f', {name}' for name in columns)} FROM pages WHERE q > {threshold}")
    wf.view("read", f"SELECT url{''.join(f', {name}' for name in columns)} FROM good WHERE q < 2")
    return wf


def ingest(project: Project, *rows: tuple[object, ...]) -> None:
    project.ingest("pages", project.warehouse.spark.createDataFrame(list(rows), "url string, q double, site string"))


def rows(project: Project, channel: str) -> list[tuple[object, ...]]:
    return sorted(map(tuple, project.rows(channel)[1]))


def let_take_effect(project: Project) -> None:
    """Let the time come until which workflows are deferred."""
    with project.catalog.writing() as tx:
        numbers = [each.number for each in deferred.deferred_workflows(tx)]
        deferred.postpone(tx, numbers, tx.now - timedelta(seconds=1))


def test_the_present_tasks_run_until_then_and_the_changed_ones_migrate_their_output(project: Project) -> None:
    project.apply(web(0.5))
    ingest(project, ("a", 0.9, "x"), ("b", 0.7, "y"))
    project.run()
    plan = project.apply(web(0.8, "site"), defer=LATER)
    assert plan.until == LATER
    assert all("migrated at the next run" in item.detail for item in plan.tasks)
    assert project.status().deferred[0].tasks == {"good": 1, "read": 1}
    assert project.reader.task("good").deferred_until == LATER
    assert project.due() == {}
    ingest(project, ("c", 0.6, "z"), ("d", 0.85, "z"))
    project.compact("pages")
    project.collect_garbage()
    project.run()
    assert rows(project, "read") == [("a",), ("b",), ("c",), ("d",)]
    let_take_effect(project)
    done = project.run()
    assert done is not None
    made = [(item.task, item.reason.partition(":")[0]) for item in done.made if item.block is not None]
    assert [task for task, method in made if method == "migration"] == ["good", "read"]
    assert rows(project, "read") == [("a", "x"), ("d", "z")]
    assert project.status().deferred == ()
    with project.catalog.reading() as tx:
        assert {name: known.logic for name, known in registry.tasks(tx).items()} == {"good": 1, "read": 1}
    project.apply(web(0.5), defer=LATER)
    project.run(["good", "read"])
    assert rows(project, "read") == [("a",), ("b",), ("c",), ("d",)]
    assert project.status().deferred == ()


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Project]:
    """A project without Spark whose views have run, as far as the catalog knows."""
    with open_project(tmp_path, spark={"analyse": False}) as project:
        project.create()
        project.apply(web(0.5))
        with project.catalog.writing() as tx:
            registry.move_cursors(tx, "good", 0, [("pages", 0)])
            registry.move_cursors(tx, "read", 0, [("good", 0)])
        yield project


def logics(project: Project) -> dict[str, int]:
    with project.catalog.reading() as tx:
        return {name: known.logic for name, known in registry.tasks(tx).items()}


def test_a_workflow_without_output_is_not_deferred(tmp_path: Path) -> None:
    with open_project(tmp_path, spark={"analyse": False}) as project:
        project.create()
        assert project.apply(web(0.5), defer=LATER).until is None
        assert project.apply(web(0.6), defer=LATER).until is None
        assert (project.status().deferred, logics(project)) == ((), {"good": 1, "read": 0})


def test_another_definition_replaces_the_deferred_one(written: Project) -> None:
    written.apply(web(0.6), defer=LATER)
    assert written.plan(web(0.7)).discards == LATER
    sooner = LATER - timedelta(days=1)
    assert written.apply(web(0.7, "site"), defer=sooner).discards == LATER
    assert [(each.until, each.tasks) for each in written.status().deferred] == [(sooner, {"good": 1, "read": 1})]
    assert logics(written) == {"good": 0, "read": 0}
    present = written.apply(web(0.5))
    assert (present.empty, present.discards) == (True, sooner)
    assert written.status().deferred == ()
    written.apply(web(0.6), defer=LATER)
    assert written.apply(web(0.7)).discards == LATER
    assert (written.status().deferred, logics(written)) == ((), {"good": 1, "read": 0})


def test_workflows_that_are_deferred_together_take_effect_together(written: Project) -> None:
    after = kn.Workflow("after")
    after.view("sites", "SELECT DISTINCT site FROM pages")
    written.apply_all([web(0.5, "site"), after], defer=LATER)
    assert "sites" not in logics(written)
    written.registration.apply_deferred(["unknown"])
    assert logics(written) == {"good": 0, "read": 0}
    written.registration.apply_deferred(["sites"])
    assert logics(written) == {"good": 1, "read": 1, "sites": 0}


def test_a_definition_that_cannot_be_applied_any_more_is_discarded_with_an_event(written: Project) -> None:
    changed = web(0.6)
    changed.view("taken", "SELECT url FROM pages")
    written.apply(changed, defer=LATER)
    other = kn.Workflow("other")
    other.view("taken", "SELECT url FROM pages")
    written.apply(other)
    with pytest.raises(DeclarationError, match="taken"):
        written.registration.apply_deferred(["good"])
    assert len(written.status().deferred) == 1
    let_take_effect(written)
    written.registration.apply_deferred()
    assert (written.status().deferred, logics(written)) == ((), {"good": 0, "read": 0, "taken": 0})
    event = written.events()[-1]
    assert event.kind is EventKind.DEFERRAL_FAILED
    assert event.text.startswith("web: ")


def test_a_definition_of_another_release_is_discarded(written: Project) -> None:
    with written.catalog.writing() as tx:
        gone = pickle.dumps(web).replace(b"test_deferral", b"test_departed")
        deferred.defer(tx, "web", tx.now, {"good": 1}, gone)
    written.registration.apply_deferred()
    assert "cannot read the deferred definition" in written.events()[-1].text
