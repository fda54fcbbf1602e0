"""Channels that get, lose and change columns while data stay: columns have an identity, and readers go on."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.errors import DeclarationError
from kilonova.service.project import Project
from tests.seeds import some


def declared(ddl: str, **how: Any) -> kn.Workflow:
    wf = kn.Workflow("columns")
    wf.channel("c", ddl, **how)
    return wf


def arrive(project: Project, ddl: str, *rows: tuple[Any, ...]) -> None:
    project.ingest("c", project.warehouse.spark.createDataFrame(list(rows), ddl))


def shown(project: Project, channel: str = "c", **when: int) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in project.read(channel, **when).collect()), key=repr)


@pytest.mark.parametrize(
    "how", some([{}, {"key": "id"}, {"encoding": "changes"}, {"key": "id", "encoding": "columns"}], 2)
)
def test_a_column_that_is_added_again_is_another_one(project: Project, how: dict[str, Any]) -> None:
    project.apply(declared("id int, x int", **how))
    arrive(project, "id int, x int", (1, 10), (9, 9))
    project.apply(declared("id int", **how))
    arrive(project, "id int", (2,))
    project.apply(declared("id int, x string", **how))
    arrive(project, "id int, x string", (3, "007"))
    rows = [(1, None), (2, None), (3, "007"), (9, None)]
    assert shown(project) == rows
    assert shown(project, at=1) == [(1, 10), (9, 9)]
    arrive(project, "id int, x string", (5, "abc"))
    project.compact("c")
    assert shown(project) == sorted([*rows, (5, "abc")], key=repr)
    changed = sorted((*row[:2], row[-1]) for row in shown(project, since=2))
    assert changed == [(3, "007", 1), (5, "abc", 1)]


def test_the_same_whether_the_channel_was_compacted_or_not(project: Project) -> None:
    """A base that was written while the column was not declared does not have it."""
    project.apply(declared("id int, x int", key="id"))
    arrive(project, "id int, x int", (1, 10))
    project.apply(declared("id int", key="id"))
    arrive(project, "id int", (2,))
    project.compact("c")
    project.apply(declared("id int, x int", key="id"))
    assert shown(project) == [(1, None), (2, None)]


def test_a_type_that_rows_do_not_have_is_refused(project: Project) -> None:
    project.apply(declared("id int, x int"))
    arrive(project, "id int, x int", (1, 10))
    with pytest.raises(DeclarationError, match="holds the column as int, which cannot become string") as raised:
        project.apply(declared("id int, x string"))
    assert (raised.value.channel, raised.value.column) == ("c", "x")


def test_ports_have_the_declared_columns_before_data_with_them_come(project: Project) -> None:
    def workflow(ddl: str) -> kn.Workflow:
        wf = declared(ddl)

        @wf.task(reads={"old": "c"}, schema="n bigint, known bigint")
        def counted(c: kn.New, old: kn.Old) -> kn.Delta:
            both = old.unionByName(c)
            known = F.count("x") if "x" in both.columns else F.lit(0).cast("bigint")
            return both.agg(F.count("*").alias("n"), known.alias("known"))

        return wf

    project.apply(workflow("id int"))
    arrive(project, "id int", (1,))
    project.run()
    project.apply(workflow("id int, x string"))
    assert project.read("c").columns == ["id", "x"]
    arrive(project, "id int, x string", (2, "a"))
    project.run()
    assert (2, 1) in shown(project, "counted")
    assert not project.due()


def test_a_task_without_a_schema_takes_over_the_columns_that_its_input_gets(project: Project) -> None:
    def workflow(ddl: str) -> kn.Workflow:
        wf = declared(ddl, key="id")

        @wf.task(key="id")
        def passed(c: kn.New) -> kn.Delta:
            return c

        @wf.task(key="id", schema="id int")
        def ids(passed: kn.Changes) -> kn.Delta:
            return passed.where("_weight > 0").select("id")

        return wf

    project.apply(workflow("id int"))
    arrive(project, "id int", (1,), (2,))
    project.run()
    project.apply(workflow("id int, x string"))
    arrive(project, "id int, x string", (2, "b"), (3, "c"))
    project.run()
    assert shown(project, "passed") == [(1, None), (2, "b"), (3, "c")]
    assert shown(project, "ids") == [(1,), (2,), (3,)]
    assert not project.due()
