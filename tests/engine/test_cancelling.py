"""Runs that somebody cancels while Spark, or Python, is at work for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

import kilonova as kn
from kilonova.engine.run_events import no_listener
from kilonova.errors import Cancelled, InvalidState, StorageFailed
from kilonova.model.firing import FiringState
from kilonova.model.run import Run, RunState
from kilonova.service.project import Project
from kilonova.service.resources import ProjectResources
from kilonova.warehouse.job_tracking import track_jobs
from tests.catalog.building import claim_batches

SOON = 6.0
"""Seconds after which a cancelled run has stopped, on a machine with other things to do."""


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to it in time"
        time.sleep(0.05)


def a_workflow() -> kn.Workflow:
    workflow = kn.Workflow("numbering")
    workflow.channel("numbers", "n bigint")
    return workflow


def given(project: Project, *numbers: int) -> None:
    rows = [(number,) for number in numbers]
    project.ingest("numbers", project.warehouse.spark.createDataFrame(rows, "n bigint"))


def asleep(place: Path, frame: DataFrame) -> DataFrame:
    """The rows of a frame, by a Python process of Spark's that sleeps until there is a file, and says so by another."""

    def sleeping(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            (place / "asleep").touch()
            while not (place / "wake").exists():
                time.sleep(0.05)
            yield batch

    return frame.coalesce(1).mapInPandas(sleeping, frame.schema)


def crossed(place: Path, frame: DataFrame) -> DataFrame:
    """Nothing, after hours of work within Spark; what is there at once if there is a file."""
    if (place / "wake").exists():
        return frame
    (place / "asleep").touch()
    spark = frame.sparkSession
    many = spark.range(0, 3_000_000, 1, 2).crossJoin(spark.range(0, 1_000_000).toDF("m"))
    return many.where("(id * m) % 1000003 = 999999 AND id + m < 5").selectExpr("id AS n")


def going(project: Project) -> Run:
    until(lambda: project.runs(1)[0].run.state is RunState.RUNNING)
    return project.runs(1)[0].run


def blocks_on_disk(project: Project) -> list[str]:
    return sorted(each.name for each in (project.directory / ".kilonova" / "warehouse").glob("block_*"))


def stopped(project: Project, run: Future[object], number: int) -> Cancelled:
    """Cancel a run, and wait for its end."""
    began = time.monotonic()
    project.cancel(number, "ann")
    error = run.exception(60)
    assert time.monotonic() - began < SOON
    assert isinstance(error, Cancelled)
    assert (error.run, error.code, error.transient) == (number, "cancelled", False)
    return error


@pytest.mark.parametrize("work", [asleep, crossed])
def test_a_run_stops_within_seconds_and_leaves_nothing_behind(
    project: Project, tmp_path: Path, work: Callable[[Path, DataFrame], DataFrame]
) -> None:
    workflow = a_workflow()

    @workflow.task(schema="n bigint")
    def slow(numbers: kn.New) -> kn.Delta:
        return work(tmp_path, numbers)

    @workflow.task(schema="n bigint")
    def later(slow: kn.New) -> kn.Delta:
        (tmp_path / "later").touch()
        return slow

    project.apply(workflow)
    given(project, 1, 2)
    before = blocks_on_disk(project)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(project.run)
        until((tmp_path / "asleep").exists)
        time.sleep(0.5)
        number = going(project).number
        error = stopped(project, run, number)
    assert str(error) == f"the run was cancelled by ann. Nothing was published. [binding slow, run {number}]"
    assert not (tmp_path / "later").exists()
    found = project.run_detail(number).run
    assert (found.state, found.error, found.progress) == (RunState.CANCELLED, "cancelled by ann", None)
    log = project.log(number).text.splitlines()
    assert [line.split(" ", 1)[1] for line in log[-2:]] == ["run: stopped", "run: cancelled by ann"]
    assert not [line for line in log if "failed" in line]
    with pytest.raises(InvalidState, match="as cancelled: cancelled by ann"):
        project.cancel(number)
    assert blocks_on_disk(project) == before
    assert project.status().channels["slow"].latest == project.status().channels["slow"].latest_readable
    (tmp_path / "wake").touch()
    assert project.run() is not None
    assert sorted(project.rows("later")[1]) == [(1,), (2,)]


def test_python_that_spark_does_not_run_cannot_be_interrupted_but_publishes_nothing(
    project: Project, tmp_path: Path
) -> None:
    workflow = a_workflow()

    @workflow.task(schema="n bigint")
    def slow(numbers: kn.New) -> kn.Delta:
        (tmp_path / "asleep").touch()
        until((tmp_path / "wake").exists)
        return numbers

    project.apply(workflow)
    given(project, 1)
    before = blocks_on_disk(project)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(project.run)
        until((tmp_path / "asleep").exists)
        number = going(project).number
        until(lambda: "executes slow" in project.log(number).text)
        project.cancel(number, "ann")
        assert "run: cancelled by ann" in project.log(number).text
        assert "slow" in project.due()
        time.sleep(1.5)
        assert not run.done()
        (tmp_path / "wake").touch()
        assert isinstance(run.exception(60), Cancelled)
    assert project.rows("slow")[1] == []
    assert blocks_on_disk(project) == before
    assert project.run() is not None
    assert project.rows("slow")[1] == [(1,)]


def test_a_cancelled_run_does_not_wait_for_another_attempt(project: Project, tmp_path: Path) -> None:
    workflow = a_workflow()

    @workflow.task(schema="n bigint")
    def unlucky(numbers: kn.New) -> kn.Delta:
        with (tmp_path / "attempts").open("a") as file:
            file.write("x")
        raise StorageFailed("the disk is away")

    project.apply(workflow)
    given(project, 1)
    retry = project.settings.retry.model_copy(update={"wait": 30.0})
    settings = project.settings.model_copy(update={"retry": retry})
    patient = Project(ProjectResources(settings, project.directory, no_listener, project.warehouse.spark))
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(patient.run)
        until((tmp_path / "attempts").exists)
        stopped(project, run, going(project).number)
    assert (tmp_path / "attempts").read_text() == "x"


def test_an_ingest_can_be_cancelled(project: Project, tmp_path: Path) -> None:
    project.apply(a_workflow())
    given(project, 1)
    rows = asleep(tmp_path, project.warehouse.spark.range(3).toDF("n"))
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(project.ingest, "numbers", rows)
        until((tmp_path / "asleep").exists)
        number = going(project).number
        stopped(project, run, number)
    assert project.rows("numbers")[1] == [(1,)]
    with pytest.raises(InvalidState, match=r"it was an ingest\. Ingest the file again\."):
        project.retry_run(number)


def merging(place: Path) -> kn.Workflow:
    copies = kn.Workflowette("copies")
    copies.channel("rows", "n bigint")
    copies.channel("made", "n bigint")

    @copies.task(writes="made")
    def doubled(rows: kn.All) -> kn.Base:
        return asleep(place, rows).selectExpr("2 * n AS n")

    workflow = a_workflow()
    for name in ("one", "two"):
        workflow.bind(name, copies, {"rows": "numbers"})
    return workflow


@pytest.mark.parametrize("first", [True, False], ids=["that does it", "that waits for it"])
def test_of_merged_runs_only_the_one_that_is_cancelled_stops(project: Project, tmp_path: Path, first: bool) -> None:
    project.apply(merging(tmp_path))
    given(project, 1, 2)
    for name in ("one", "two"):
        project.fire(name)
    with project.catalog.writing() as tx:
        batches, _ = claim_batches(tx, "server", 2)
    parts = {part.binding: part for batch in batches for part in batch.claims}
    with project.runner.shared_batch(list(parts.values())) as shared_steps, ThreadPoolExecutor(2) as pool:
        launch = partial(project.runner.run_claim, shared_steps=shared_steps)
        one = pool.submit(launch, parts["one"])
        until((tmp_path / "asleep").exists)
        number = going(project).number
        two = pool.submit(launch, parts["two"])
        until(lambda: project.runs(1)[0].run.number > number)
        time.sleep(0.5)
        chosen, other = (one, two) if first else (two, one)
        project.cancel(number if first else number + 1, "ann")
        time.sleep(1.5)
        (tmp_path / "wake").touch()
        assert isinstance(chosen.exception(60), Cancelled)
        assert other.result(60) is not None
    states = {each.binding: each.state for each in project.reader.firings(2)}
    lost, done = ("one", "two") if first else ("two", "one")
    assert states == {lost: FiringState.FAILED, done: FiringState.SUCCEEDED}
    assert sorted(project.rows(f"{done}__made")[1]) == [(2,), (4,)]
    assert project.rows(f"{lost}__made")[1] == []
    assert [each.binding for each in project.retry_run(number if first else number + 1, "ben")] == [lost]
    assert project.reader.firings(1)[0].occurrence.endswith("again, ben")


def test_only_what_a_thread_asks_of_spark_within_the_block_is_interrupted(spark: SparkSession, tmp_path: Path) -> None:
    ended = []
    with ThreadPoolExecutor(1) as pool, track_jobs(spark, "one") as mine:

        def other() -> int:
            with track_jobs(spark, "two"):
                return asleep(tmp_path, spark.range(3)).count()

        run = pool.submit(other)
        until((tmp_path / "asleep").exists)
        mine.interrupt()
        (tmp_path / "wake").touch()
        ended.append(run.result(60))
    assert ended == [3]
