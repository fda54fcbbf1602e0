"""What a person may do to runs and bindings, and what is told of who did it."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

import kilonova as kn
from kilonova.catalog import runs
from kilonova.errors import InvalidState, NotFound
from kilonova.model.event import EventKind
from kilonova.model.run import RunKind, RunState
from kilonova.service.project import Project, open_project
from tests.catalog.building import LEASE, commit


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Project]:
    """A project in which nothing has run: the bindings `report`, of two views, and `towns`."""
    with open_project(tmp_path, spark={"analyse": False}) as project:
        project.create()
        project.apply(a_shop(["per_customer", "best"]))
        yield project


def a_shop(report: list[str]) -> kn.Workflow:
    views = {
        "per_customer": "SELECT customer, count(*) AS n FROM orders GROUP BY customer",
        "best": "SELECT customer FROM per_customer WHERE n > 10",
    }
    workflow = kn.Workflow("shop")
    workflow.channel("orders", "id bigint, customer string", watch=kn.watched_directory("inbox", format="csv"))
    workflow.channel("customers", "customer string, town string", key="customer")
    for name in report:
        workflow.view(name, views[name])
    if report:
        workflow.workflowette("report", report, on=kn.arrival("orders"))
    workflow.view("towns", "SELECT town, count(*) AS n FROM customers GROUP BY town")
    return workflow


def begun(project: Project, kind: RunKind, tasks: tuple[str, ...], writes: tuple[str, ...]) -> int:
    with project.catalog.writing() as tx:
        return runs.start(tx, kind=kind, tasks=tasks, writes=writes, owner="me", lease=LEASE)[0]


def told(project: Project, *kinds: EventKind) -> list[tuple[EventKind, str | None, str]]:
    return [(event.kind, event.binding, event.text) for event in project.events() if event.kind in kinds]


def test_a_run_that_was_cancelled_is_retried_by_the_bindings_of_its_tasks(shop: Project) -> None:
    tasks = ("per_customer", "best", "towns")
    run = begun(shop, RunKind.TASKS, tasks, tasks)
    with pytest.raises(
        InvalidState,
        match=f"the run is still running. Wait until it has ended, or: kilonova cancel {run}",
    ):
        shop.retry_run(run)
    shop.cancel(run)
    found = shop.run_detail(run).run
    assert (found.state, found.error) == (RunState.CANCELLED, f"cancelled by {getpass.getuser()}")
    queued = shop.retry_run(run, "ann")
    assert [each.binding for each in queued] == ["report", "towns"]
    assert list(queued) == shop.reader.firings(10)[::-1]
    said = f"run {run} again, ann"
    assert told(shop, EventKind.FIRED) == [(EventKind.FIRED, name, said) for name in ("report", "towns")]
    assert [(each.binding, each.state.value) for each in shop.reader.firings(10)] == [
        ("towns", "queued"),
        ("report", "queued"),
    ]


def test_a_run_whose_tasks_have_gone_is_refused_and_what_is_left_of_one_is_retried(shop: Project) -> None:
    both, one = (begun(shop, RunKind.TASKS, tasks, ()) for tasks in (("towns", "best"), ("per_customer",)))
    for run in (both, one):
        with shop.catalog.writing() as tx:
            runs.fail(tx, run, "no luck")
    shop.apply(a_shop([]))
    assert [each.binding for each in shop.retry_run(both)] == ["towns"]
    with pytest.raises(InvalidState, match=r"no longer exist\. They were per_customer\."):
        shop.retry_run(one)


@pytest.mark.parametrize(
    ("kind", "writes", "hint"),
    [
        (RunKind.INGEST, "customers", "it was an ingest. Ingest the file again"),
        (RunKind.INGEST, "orders", "it was an ingest. kilonova scan orders ingests its files, as servers do"),
        (RunKind.COMPACTION, "", "it was a compaction. Compact the channel again: kilonova compact CHANNEL"),
    ],
)
def test_what_is_no_run_of_tasks_is_refused_with_what_to_do_instead(
    shop: Project, kind: RunKind, writes: str, hint: str
) -> None:
    run = begun(shop, kind, (), (writes,) if writes else ())
    shop.cancel(run, "ann")
    with pytest.raises(InvalidState) as caught:
        shop.retry_run(run)
    assert str(caught.value) == f"the run cannot be retried: {hint}. [run {run}]"


def test_a_run_that_has_succeeded_is_neither_cancelled_nor_retried(shop: Project) -> None:
    run = begun(shop, RunKind.TASKS, ("towns",), ())
    assert commit(shop.catalog, run, {}) is not None
    with pytest.raises(InvalidState, match="has already ended, as succeeded"):
        shop.cancel(run)
    with pytest.raises(InvalidState, match="the run has succeeded"):
        shop.retry_run(run)
    for act in (shop.cancel, shop.retry_run):
        with pytest.raises(NotFound, match="no such run"):
            act(99)
    assert shop.reader.firings(10) == []


def test_events_name_who_controlled_a_binding(shop: Project) -> None:
    shop.fire("towns", "ann")
    shop.pause("towns", "ann")
    shop.resume("towns")
    assert told(shop, EventKind.FIRED, EventKind.PAUSED, EventKind.RESUMED) == [
        (EventKind.FIRED, "towns", "manually, by ann"),
        (EventKind.PAUSED, "towns", "by ann"),
        (EventKind.RESUMED, "towns", f"by {getpass.getuser()}"),
    ]
