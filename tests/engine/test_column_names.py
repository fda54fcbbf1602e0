"""Columns may have names that Spark or Kilonova use elsewhere."""

from __future__ import annotations

from dataclasses import replace

import kilonova as kn
from kilonova.service.project import Project


def test_columns_are_called_as_those_that_spark_adds_to_files(project: Project) -> None:
    flow = kn.Workflow("names")
    flow.channel("taken", "_metadata int, _block string, file_name string", key="_metadata")
    project.apply(flow)
    spark, expected = project.warehouse.spark, {}
    for local in (0, project.warehouse.sizes.local_check_max):
        project.warehouse.sizes = replace(project.warehouse.sizes, local_check_max=local)
        for turn in range(3):
            new = {key: (f"b{local}{turn}", f"f{key}") for key in range(turn, turn + 2)}
            expected |= new
            rows = [(key, *rest) for key, rest in new.items()]
            project.ingest("taken", spark.createDataFrame(rows, "_metadata int, _block string, file_name string"))
    assert {row[0]: tuple(row[1:]) for row in project.read("taken").collect()} == expected
