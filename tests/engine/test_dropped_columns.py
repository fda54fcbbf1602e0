"""Channels that lose a column: rows that differed in it only are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.service.project import open_project


def workflow(columns: str) -> kn.Workflow:
    made = kn.Workflow("w")
    made.channel("c", columns, key="k", encoding="changes")
    return made


@pytest.mark.parametrize("sizes", [{}, {"local_check_max": 0}], ids=["in this process", "by Spark"])
def test_changes_are_added_up_without_it(tmp_path: Path, spark: SparkSession, sizes: dict[str, int]) -> None:
    with open_project(tmp_path, session=spark, sizes=sizes) as project:
        project.create()
        project.apply(workflow("k int, v int, w string"))
        project.ingest("c", spark.createDataFrame([(1, 1, "a"), (2, 1, "a")], "k int, v int, w string"))
        weighted = "k int, v int, w string, _weight bigint"
        changes = [(1, 1, "b", 1), (1, 1, "a", -1), (2, 2, "a", 1), (2, 1, "a", -1)]
        project.ingest("c", spark.createDataFrame(changes, weighted))
        assert project.read("c", since=1).count() == 4
        project.apply(workflow("k int, v int"))
        assert sorted(map(tuple, project.read("c", since=1).collect())) == [(2, 1, -1), (2, 2, 1)]
