"""What a process left when it died does not stand in the way of the next."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame

import kilonova as kn
from kilonova.catalog import runs
from kilonova.engine.run_events import RunNotification, StepStarted
from kilonova.model.run import RunKind, RunState
from kilonova.service.project import Project

copies = kn.Workflow("copies")
copies.channel("numbers", "n int")
copies.channel("unread", "n int")


@copies.task
def copied(numbers: kn.New) -> kn.Delta:
    return numbers


def dies_ingesting(project: Project, channel: str) -> int:
    with project.catalog.writing() as tx:
        lease = timedelta(hours=1)
        return runs.start(tx, kind=RunKind.INGEST, tasks=(), writes=(channel,), owner="dead", lease=lease)[0]


def later(project: Project) -> None:
    now = project.catalog.clock
    project.catalog.clock = lambda: now() + timedelta(hours=2)


def test_rows_behind_the_point_of_a_dead_ingest_are_due_once_its_lease_is_over(project: Project) -> None:
    project.apply(copies)
    dead = dies_ingesting(project, "numbers")
    project.ingest("numbers", project.warehouse.spark.createDataFrame([(1,)], "n int"))
    assert project.run() is None, "the dead run may still be alive"
    later(project)
    assert project.run() is not None
    assert project.rows("copied")[1] == [(1,)]
    with project.catalog.reading() as tx:
        assert runs.find_run(tx, dead).state is RunState.ABANDONED


def test_a_channel_can_be_dropped_after_a_process_died_writing_it(project: Project) -> None:
    project.apply(copies)
    dies_ingesting(project, "unread")
    later(project)
    project.drop("unread")


def test_blocks_that_a_later_task_may_read_are_kept_during_a_run(project: Project) -> None:
    """Only after `a` has run is it known that `b` cannot take its news, and reads all of `y` again."""
    flips = kn.Workflow("flips")
    flips.channel("x", "n int", key="n")
    flips.channel("y", "n int")
    flips.channel("a", "n int", encoding="changes")
    flips.channel("b", "n int")

    @flips.task
    def a(x: kn.Changes) -> kn.Delta:
        return x

    @flips.task
    def b(a: kn.Inserts, y: kn.New) -> kn.Delta:
        return a.unionByName(y)

    @b.variant
    def batch(a: kn.All, y: kn.All) -> kn.Base:
        return a.unionByName(y)

    def rows(schema: str, *values: tuple[object, ...]) -> DataFrame:
        return project.warehouse.spark.createDataFrame(values, schema)

    project.apply(flips)
    project.ingest("x", rows("n int", (1,), (2,)))
    for number in (10, 20):
        project.ingest("y", rows("n int", (number,)))
    project.run()
    project.ingest("x", rows("n int, _deleted boolean", (1, True)))

    def compacts(notification: RunNotification) -> None:
        if isinstance(notification, StepStarted) and notification.step == "a":
            project.compact("y")
            project.collect_garbage()

    project.resources.listener = compacts
    project.run()
    assert sorted(project.rows("b")[1]) == [(2,), (10,), (20,)]
