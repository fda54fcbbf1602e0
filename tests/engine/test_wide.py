"""Tables of many columns."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.service.project import Project
from kilonova.warehouse.equality import any_of

COLUMNS = 500


def test_a_condition_of_many_parts_is_analysed(spark: SparkSession) -> None:
    conditions = [F.col("id") == n for n in range(4 * COLUMNS)]
    assert spark.range(1).where(any_of(conditions)).count() == 1
    assert spark.range(1).where(any_of([])).count() == 0


@pytest.mark.slow
def test_a_keyed_channel_and_a_view_of_many_columns_follow_changes(project: Project) -> None:
    names = [f"c{n}" for n in range(1, COLUMNS)]
    sums = ", ".join(f"sum({name}) AS {name}" for name in names)
    wf = kn.Workflow("wide")
    wf.channel("readings", ", ".join(["id bigint", *(f"{name} bigint" for name in names)]), key="id")
    wf.view("totals", f"SELECT id % 3 AS part, {sums} FROM readings GROUP BY id % 3")
    project.apply(wf)

    def readings(first: int, last: int, more: int) -> DataFrame:
        values = ((F.col("id") + n + more).alias(name) for n, name in enumerate(names))
        return project.warehouse.spark.range(first, last).select("id", *values)

    for ids in ((0, 10, 0), (5, 12, 1)):
        project.ingest("readings", readings(*ids))
        project.run()
    assert "incremental" in project.runs(1)[0].made[0].reason
    project.compact("readings")
    some = [names[0], names[-1]]
    expected = project.read("readings").groupBy((F.col("id") % 3).alias("part")).agg(*(F.sum(n).alias(n) for n in some))
    found = project.read("totals").select("part", *some)
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, expected.collect()))
