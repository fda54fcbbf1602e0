"""Several runs at once in one process, on one Spark session."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.catalog import runs
from kilonova.catalog.database import Transaction
from kilonova.engine.run_protocol import ActiveRun, RunPlan, RunResults, execute_run
from kilonova.errors import Conflict
from kilonova.model.run import RunKind
from kilonova.service.project import Project
from kilonova.testing import count_differences, recompute

wf = kn.Workflow("side_by_side")
wf.channel("readings", "sensor string, value bigint")


@wf.task(schema="sensor string, n bigint", key="sensor", encoding=kn.increment("n"))
def counts(readings: kn.New) -> kn.Delta:
    return readings.groupBy("sensor").agg(F.count("*").alias("n"))


@wf.task(schema="sensor string, value bigint")
def high(readings: kn.New) -> kn.Delta:
    return readings.where("value > 5")


def test_ingests_and_runs_of_different_tasks_go_on_side_by_side(project: Project) -> None:
    project.apply(wf)
    spark = project.warehouse.spark

    def ingest(number: int) -> None:
        rows = [(f"s{number % 3}", number + offset) for offset in range(3)]
        project.ingest("readings", spark.createDataFrame(rows, "sensor string, value long"))

    def run(task: str) -> None:
        try:
            project.run([task])
        except Conflict:
            return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ingest, range(4)))
        work = [pool.submit(run, task) for _ in range(2) for task in ("counts", "high")]
        work += [pool.submit(ingest, number) for number in range(4, 8)]
        for item in work:
            item.result()
    project.run()
    assert project.due() == {}
    assert project.read("readings").count() == 24
    assert [
        made.channel for made in recompute(project) if count_differences(project.read(made.channel), made.rows)
    ] == []


def test_a_task_is_run_by_one_run_at_a_time(project: Project) -> None:
    project.apply(wf)
    spark = project.warehouse.spark
    project.ingest("readings", spark.createDataFrame([("a", 9)], "sensor string, value long"))
    with project.catalog.writing() as tx:
        runs.start(tx, kind=RunKind.TASKS, tasks=["high"], writes=["high"], owner="elsewhere", lease=timedelta(hours=1))
    with pytest.raises(Conflict) as refused:
        project.run(["high"])
    assert refused.value.task == "high"
    report = project.run(["counts"])
    assert report is not None
    assert [made.channel for made in report.made] == ["counts"]


def test_tasks_that_name_blocks_at_once_get_different_ones(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.apply(wf)
    writing = project.catalog.writing

    @contextmanager
    def lingering() -> Iterator[Transaction]:
        with writing() as tx:
            yield tx
        time.sleep(0.01)

    def prepare(tx: Transaction) -> RunPlan[None]:
        return RunPlan(kind=RunKind.INGEST, tasks=(), writes=("readings",), pins=(), plan=None)

    def work(begun: ActiveRun[None]) -> RunResults:
        monkeypatch.setattr(project.catalog, "writing", lingering)
        with ThreadPoolExecutor(8) as pool:
            named.extend(pool.map(lambda _: begun.name_block("readings"), range(40)))
        return RunResults(inputs=(), outputs=(), advances=())

    named: list[int] = []
    execute_run(project.resources.environment(), prepare, work)
    assert len(set(named)) == 40
