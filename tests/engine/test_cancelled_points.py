"""A cancelled point has the rows of the point before it, also if it is the first one, which nothing lists any more."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.errors import NotFound, TaskFailed
from kilonova.service.project import Project


def failing(project: Project, fails: bool) -> kn.Workflow:
    workflow = kn.Workflow("shop")
    workflow.channel("numbers", "n int")

    @workflow.task(schema="n int")
    def doubled(numbers: kn.All) -> kn.Base:
        if fails:
            raise ValueError("not today")
        return numbers.select((F.col("n") * 2).alias("n"))

    return workflow


def shown(project: Project, **when: int) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in project.read("doubled", **when).collect())


def test_a_cancelled_first_point_reads_as_the_empty_relation(project: Project) -> None:
    project.apply(failing(project, fails=True))
    project.ingest("numbers", project.warehouse.spark.createDataFrame([(1,)], "n int"))
    with pytest.raises(TaskFailed):
        project.run()
    project.apply(failing(project, fails=False))
    project.run()
    project.ingest("numbers", project.warehouse.spark.createDataFrame([(2,)], "n int"))
    project.run()
    assert shown(project) == [(2,), (4,)]
    assert (shown(project, at=0), shown(project, at=1), shown(project, at=2)) == ([], [], [(2,)])
    assert shown(project, at=2, since=1) == [(2, 1)]
    assert shown(project, at=1, since=1) == []
    plan = project.reader.snapshot_plan("doubled", 1)
    assert (plan.base, plan.deltas) == (None, ())
    project.collect_garbage()
    assert (shown(project, at=1), shown(project, since=1)) == ([], [(2, 1), (4, 1)])
    with pytest.raises(NotFound, match="garbage-collected"):
        shown(project, at=2)
