"""The logs of runs, and how far they have come, as they are seen from outside."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.engine.run_events import ProgressUpdated, RunNotification
from kilonova.errors import KilonovaError, NotFound
from kilonova.model.progress import RunProgress
from kilonova.model.run import Run
from kilonova.service.project import Project, open_project


def until(condition: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to it in time"
        time.sleep(0.05)


def given(project: Project, *numbers: int) -> None:
    rows = [(number,) for number in numbers]
    project.ingest("numbers", project.warehouse.spark.createDataFrame(rows, "n int"))


def a_workflow() -> kn.Workflow:
    workflow = kn.Workflow("numbering")
    workflow.channel("numbers", "n int")
    return workflow


def test_the_log_of_a_run_that_failed_says_what_it_did_and_why_it_failed(project: Project) -> None:
    workflow = a_workflow()

    @workflow.task(schema="n int")
    def copied(numbers: kn.New) -> kn.Delta:
        print("copying")
        logging.getLogger("numbering").warning("they are %s", "few")
        print("copied", end="", file=sys.stderr)
        return numbers

    @workflow.task(schema="n int")
    def halved(copied: kn.New) -> kn.Delta:
        def half(number: int) -> float:
            return number / 0

        half(3)
        return copied

    project.apply(workflow)
    given(project, 1, 2)
    with pytest.raises(KilonovaError):
        project.run(all_or_nothing=True)
    log = project.log()
    steps = [line.split(" ", 1)[1] for line in log.text.splitlines() if line.startswith("2")]
    assert steps[1] == "run: executes copied, halved"
    assert steps[2].startswith("copied: begins, ")
    assert steps[3:5] == ["copied [stdout] copying", "copied [WARNING numbering] they are few"]
    assert steps[5] == "copied [stderr] copied"
    assert [line for line in steps if line.startswith("copied: ended, 2 rows in ")]
    assert [
        line for line in steps if line.startswith("halved: failed: the task raised ZeroDivisionError: division by zero")
    ]
    assert steps[-1].startswith("run: failed: the task raised ZeroDivisionError")
    assert "in half\n        return number / 0" in log.text
    assert "kilonova/engine" not in log.text
    assert "run: succeeded" in project.log(1).text


def test_the_lines_of_runs_side_by_side_are_not_mixed_up(project: Project, tmp_path: Path) -> None:
    workflow = a_workflow()

    def meet(name: str, other: str) -> None:
        (tmp_path / name).touch()
        end = time.monotonic() + 60
        while not (tmp_path / other).exists():
            assert time.monotonic() < end
            time.sleep(0.01)

    @workflow.task(schema="n int")
    def left(numbers: kn.New) -> kn.Delta:
        meet("left", "right")
        for number in range(100):
            print("from the left", number)
            time.sleep(0.001)
        return numbers

    @workflow.task(schema="n int")
    def right(numbers: kn.New) -> kn.Delta:
        meet("right", "left")
        for number in range(100):
            print("from the right", number)
            time.sleep(0.001)
        return numbers

    project.apply(workflow)
    given(project, 1)
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda name: project.run([name]), ("left", "right")))
    for name, other, report in zip(("left", "right"), ("right", "left"), reports, strict=True):
        assert report is not None
        text = project.log(report.runs[0].run).text
        said = [line.split(" ", 1)[1] for line in text.splitlines() if "[stdout]" in line]
        assert said == [f"{name} [stdout] from the {name} {number}" for number in range(100)]
        assert other not in text


def test_garbage_collection_leaves_logs_alone_until_they_are_old(project: Project) -> None:
    project.apply(a_workflow())
    given(project, 1)
    collected = project.collect_garbage()
    assert collected.unknown_directories == ()
    text = project.log(1).text
    now = project.catalog.clock
    project.catalog.clock = lambda: now() + timedelta(days=89)
    project.collect_garbage()
    assert project.log(1).text == text
    project.catalog.clock = lambda: now() + timedelta(days=91)
    project.collect_garbage(["numbers"])
    project.collect_garbage(dry_run=True)
    assert project.log(1).text == text
    project.collect_garbage()
    with pytest.raises(NotFound, match="90 days"):
        project.log(1)


def test_a_log_that_cannot_be_written_stops_nothing(project: Project, tmp_path: Path) -> None:
    project.apply(a_workflow())
    (tmp_path / ".kilonova" / "warehouse" / "_logs").write_text("a file where a directory should be")
    given(project, 1)
    assert project.rows("numbers")[1] == [(1,)]
    with pytest.raises(KilonovaError):
        project.log()


def test_runs_that_are_not_there_have_no_log(project: Project) -> None:
    with pytest.raises(NotFound, match="no runs yet"):
        project.log()
    with pytest.raises(NotFound, match="no such run"):
        project.log(7)


def test_the_progress_of_a_run_is_in_the_catalog_while_it_runs(
    tmp_path: Path, spark: SparkSession, project: Project
) -> None:
    workflow, go = a_workflow(), tmp_path / "go"

    def waiting(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            while batch["id"][0] > 0 and not go.exists():
                time.sleep(0.05)
            yield batch

    @workflow.task(schema="n bigint")
    def counted(numbers: kn.New) -> kn.Delta:
        spark = numbers.sparkSession
        return spark.range(0, 6, 1, 6).mapInPandas(waiting, "id bigint").selectExpr("id AS n").repartition(1)

    def running() -> list[Run]:
        return [each.run for each in project.runs(1) if each.run.progress is not None]

    def seen() -> bool:
        return any(
            run.progress is not None
            and any(going.amount.done and going.amount.total >= 6 for going in run.progress.going)
            for run in running()
        )

    project.apply(workflow)
    given(project, 1)
    heard: list[RunNotification] = []
    with open_project(tmp_path, session=spark, listener=heard.append) as other, ThreadPoolExecutor(1) as pool:
        run = pool.submit(other.run)
        try:
            until(seen)
            [found] = running()
            assert found.progress is not None
            assert [(going.step, going.amount.total) for going in found.progress.going] == [("counted", 6)]
            assert (found.progress.steps, found.progress.ended) == (1, 0)
            assert "run: executes counted" in project.log().text
        finally:
            go.touch()
        assert run.result() is not None
    assert project.run_detail(2).run.progress is None
    told: list[RunProgress] = [
        notification.progress for notification in heard if isinstance(notification, ProgressUpdated)
    ]
    assert any(going.amount.total == 6 for progress in told for going in progress.going)
