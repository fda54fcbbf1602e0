"""Recomputation of derived channels from the sources."""

from __future__ import annotations

import kilonova as kn
from kilonova.service.project import Project
from kilonova.testing.recompute import recompute


def test_a_task_that_has_not_run_has_an_empty_output_for_its_readers(project: Project) -> None:
    workflow = kn.Workflow("w")
    workflow.channel("a", "x bigint")
    workflow.channel("b", "y bigint")
    workflow.sql("copied", "SELECT y FROM {b}", reads={"b": kn.All}, produces=kn.Base, schema="y bigint")
    workflow.sql(
        "counted",
        "SELECT x, (SELECT count(*) FROM {copied}) AS n FROM {a}",
        reads={"a": kn.New, "copied": kn.All},
        produces=kn.Delta,
        schema="x bigint, n bigint",
    )
    project.apply(workflow)
    project.ingest("a", project.warehouse.spark.createDataFrame([(1,)], "x bigint"))
    project.run(["counted"])
    assert [(each.channel, each.rows.collect()) for each in recompute(project)] == [("counted", [(1, 0)])]
