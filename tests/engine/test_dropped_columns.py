"""Channels that lose a column: rows that differed in it only are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kilonova as kn
from kilonova.service.project import Project, open_project
from tests.seeds import some


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


PAGES = "id bigint, site string, n int"

TOP = {
    "large": "SELECT id, n FROM pages WHERE n > 1",
    "sums": "SELECT site, count(n) AS c, sum(n) AS s FROM pages GROUP BY site",
    "sites": "SELECT site, count(*) AS pages FROM pages GROUP BY site",
}


def pages(columns: str, how: dict[str, str]) -> kn.Workflow:
    made = kn.Workflow("pages")
    made.channel("pages", columns, **how)
    return made


def readers(refresh: str) -> kn.Workflow:
    made = kn.Workflow("readers")
    for name, query in TOP.items():
        made.view(name, query, refresh=refresh)

    @made.task(schema="id bigint, n int", encoding="changes")
    def copied(pages: kn.Changes) -> kn.Delta:
        return pages.select("id", "n", "_weight").where("n > 1")

    return made


@pytest.mark.parametrize("how", some([{}, {"key": "id"}, {"encoding": "changes"}], 1), ids=str)
@pytest.mark.parametrize("refresh", some(["auto", "incremental"], 1))
@pytest.mark.parametrize("between", [False, True], ids=["at once", "run in between"])
def test_a_column_that_is_added_again_is_another_one_for_readers(
    project: Project, how: dict[str, str], refresh: str, between: bool
) -> None:
    def arrive(columns: str, *rows: tuple[object, ...]) -> None:
        project.ingest("pages", project.warehouse.spark.createDataFrame(list(rows), columns))

    project.apply(pages(PAGES, how))
    project.apply(readers(refresh))
    arrive(PAGES, *((number, f"s{number % 2}", number) for number in range(6)))
    project.run()
    project.apply(pages("id bigint, site string", how))
    arrive("id bigint, site string", (7, "s1"))
    if between:
        project.run(["sites"])
    project.apply(pages(PAGES, how))
    arrive(PAGES, (8, "s0", 9))
    project.run()
    project.read("pages").createOrReplaceTempView("pages")
    for name, query in (*TOP.items(), ("copied", TOP["large"])):
        expected = project.warehouse.spark.sql(query)
        assert sorted(map(repr, project.read(name).collect())) == sorted(map(repr, expected.collect())), name
    made = {output.channel: output.reason for run in reversed(project.runs(9)) for output in run.made}
    if refresh == "incremental":
        assert all("pages has another column n than at point 1" in made[name] for name in ("large", "sums", "copied"))
        assert made["sites"].startswith("incremental")
