"""Channels that several tasks write, and ingests beside them: each run at points of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import kilonova as kn
from kilonova.catalog import runs
from kilonova.engine.run_events import RunNotification, StepStarted
from kilonova.errors import DeclarationError, InvalidState
from kilonova.model.run import RunKind
from kilonova.service.project import Project
from kilonova.testing import count_differences, recompute

Encoding = dict[str, Any]


def shop(least: int = 0, **encoding: Any) -> kn.Workflow:
    """Two tasks write to one channel, which a third follows."""
    workflow = kn.Workflow("shop")
    workflow.channel("web", "id bigint, amount bigint")
    workflow.channel("desk", "id bigint, amount bigint")
    workflow.channel("sales", "id bigint, amount bigint", several_writers=True, **encoding)
    workflow.channel("seen", "id bigint, amount bigint")

    @workflow.task(writes="sales")
    def from_web(web: kn.New) -> kn.Delta:
        return web.where(web["amount"] >= least)

    @workflow.task(writes="sales")
    def from_desk(desk: kn.New) -> kn.Delta:
        return desk.where("amount >= 0")

    @workflow.task(writes="seen")
    def follow(sales: kn.New) -> kn.Delta:
        return sales.select("id", "amount")

    return workflow


@pytest.fixture
def put(project: Project) -> Callable[..., None]:
    def into(channel: str, *ids: int) -> None:
        rows = [(number, number * 10) for number in ids]
        project.ingest(channel, project.warehouse.spark.createDataFrame(rows, "id bigint, amount bigint"))

    return into


@pytest.fixture
def within(project: Project) -> Iterator[Callable[..., None]]:
    """Does something in the middle of the next run of a task."""

    def arrange(task: str, something: Callable[[], object]) -> None:
        def hear(notification: RunNotification) -> None:
            if isinstance(notification, StepStarted) and notification.step == task:
                project.resources.listener = quiet
                something()

        project.resources.listener = hear

    quiet = project.resources.listener
    yield arrange
    project.resources.listener = quiet


def ids(project: Project, channel: str, at: int | None = None) -> list[int]:
    return sorted(row["id"] for row in project.read(channel, at=at).collect())


def test_tasks_and_ingests_write_one_channel_in_one_run_and_beside_each_other(
    project: Project, put: Callable[..., None], within: Callable[..., None]
) -> None:
    project.apply(shop())
    put("web", 1)
    put("desk", 2)
    put("sales", 3)
    project.run()
    assert ids(project, "sales") == ids(project, "seen") == [1, 2, 3]
    put("desk", 4)
    project.run()  # of its writers, one alone
    assert ids(project, "seen") == [1, 2, 3, 4]
    put("web", 5)
    put("desk", 6)

    def beside() -> None:
        project.run(["from_desk"])
        put("sales", 7)
        project.run(["follow"])
        assert ids(project, "sales") == ids(project, "seen") == [1, 2, 3, 4]

    within("from_web", beside)
    project.run(["from_web"])
    assert ids(project, "sales") == [1, 2, 3, 4, 5, 6, 7]
    reflected = {path[0]: entry[-1].last for path, entry in versions(project, "sales").items()}
    points = {name: project.reader.channel(name).state.latest_distinct for name in ("web", "desk")}
    assert reflected == {**points, "sales": project.reader.channel("sales").state.latest_distinct}
    project.run()
    assert ids(project, "seen") == [1, 2, 3, 4, 5, 6, 7]
    assert project.due() == {}
    assert [
        made.channel for made in recompute(project) if count_differences(project.read(made.channel), made.rows)
    ] == []


def versions(project: Project, channel: str) -> dict[Any, Any]:
    state = project.reader.channel(channel).state
    return dict(state.version(state.latest_readable).entries)


def test_the_last_point_wins_where_writers_say_the_same_key(
    project: Project, put: Callable[..., None], within: Callable[..., None]
) -> None:
    workflow = shop(key="id")
    project.apply(workflow)
    spark = project.warehouse.spark
    put("web", 1)
    project.ingest("desk", spark.createDataFrame([(1, 5)], "id bigint, amount bigint"))
    within("from_desk", lambda: project.run(["from_web"]))
    project.run(["from_desk"])
    assert [tuple(row) for row in project.read("sales").collect()] == [(1, 10)]
    project.compact("sales")
    put("desk", 1, 2)
    project.run(["from_desk"])
    assert ids(project, "sales") == [1, 2]
    assert [
        made.channel for made in recompute(project) if count_differences(project.read(made.channel), made.rows)
    ] == []


def test_a_writer_that_dies_leaves_an_empty_delta(project: Project, put: Callable[..., None]) -> None:
    project.apply(shop())
    put("web", 1)
    put("desk", 2)
    with project.catalog.writing() as tx:
        runs.start(
            tx,
            kind=RunKind.TASKS,
            tasks=["from_web"],
            writes=["sales"],
            owner="dead",
            lease=timedelta(seconds=-1),
        )
    project.run(["from_desk"])
    assert ids(project, "sales") == [2]
    project.run()
    assert ids(project, "sales") == ids(project, "seen") == [1, 2]


def test_a_run_does_not_read_past_a_running_writer(
    project: Project, put: Callable[..., None], within: Callable[..., None]
) -> None:
    project.apply(shop())
    put("web", 1)
    put("desk", 2)

    def beside() -> None:
        project.run(["from_desk", "follow"])
        assert ids(project, "sales") == ids(project, "seen") == []

    within("from_web", beside)
    project.run(["from_web"])
    project.run()
    assert ids(project, "sales") == ids(project, "seen") == [1, 2]


def test_a_writer_whose_logic_changes_is_refused_once_it_has_written(
    project: Project, put: Callable[..., None]
) -> None:
    project.apply(shop())
    project.apply(shop(least=5))
    put("web", 1)
    put("desk", 2)
    project.run(["from_web"])
    with pytest.raises(DeclarationError, match=r"cannot be replaced.* \[channel sales, task from_web\]"):
        project.plan(shop(least=6))
    gone = kn.Workflow("shop")
    gone.channel("sales", "id bigint, amount bigint", several_writers=True)
    project.apply(gone)
    with pytest.raises(DeclarationError, match="cannot be replaced"):
        project.apply(shop(least=5))
    project.drop("sales")
    project.apply(shop(least=6))
    project.run()
    assert ids(project, "sales") == [1, 2]


def test_what_would_erase_the_rows_of_others_is_refused(project: Project, put: Callable[..., None]) -> None:
    project.apply(shop())
    put("sales", 1)
    with pytest.raises(DeclarationError, match=r"the relation cannot be replaced.* \[channel sales\]"):
        project.ingest("sales", project.read("sales"), replace=True)
    alone = kn.Workflow("shop")
    alone.channel("sales", "id bigint, amount bigint")
    with pytest.raises(DeclarationError, match=r"the channel contains rows of several writers.* \[channel sales\]"):
        project.apply(alone)


def test_a_writer_that_cannot_process_the_new_input_does_not_start_from_scratch(
    project: Project, put: Callable[..., None]
) -> None:
    workflow = kn.Workflow("shop")
    workflow.channel("web", "id bigint, amount bigint")
    workflow.channel("sales", "id bigint, amount bigint", several_writers=True)

    @workflow.task(writes="sales")
    def from_web(web: kn.Inserts) -> kn.Delta:
        return web

    project.apply(workflow)
    put("web", 1)
    project.run()
    project.ingest("web", project.read("web").where("id > 1"), replace=True)
    with pytest.raises(InvalidState, match="has other writers: rows of web may have been removed"):
        project.run()
    assert ids(project, "sales") == [1]
