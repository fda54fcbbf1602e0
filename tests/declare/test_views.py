"""Views as tasks: what they read, and which of them are made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

import kilonova as kn
from kilonova.errors import QueryError
from kilonova.model.task import Task


def tasks(**views: str) -> dict[str, Task]:
    """The tasks of some views over two channels, by name."""
    workflow = kn.Workflow("w")
    workflow.channel("Orders", "id bigint, customer string, x int", key="id")
    workflow.channel("people", "customer string, user string")
    for name, query in views.items():
        workflow.view(name, query)
    return {task.name: task for task in workflow.declared().workflow.tasks}


UNSTEADY = (
    "rand()", "random()", "randn()", "uniform(0, 9)", "randstr(5)", "uuid()", "shuffle(array(1, 2))", "now()",
    "monotonically_increasing_id()", "spark_partition_id()", "input_file_name()", "current_timestamp", "current_date()",
    "current_time()", "current_time", "localtimestamp()", "unix_timestamp()", "current_timezone()", "current_user()",
    "current_user", "user", "user()", "session_user()", "session_user", "current_catalog()", "current_database()",
    "current_schema()", "reflect('java.util.UUID', 'randomUUID')",
)  # fmt: skip


@pytest.mark.parametrize("value", UNSTEADY)
def test_views_with_non_deterministic_functions_are_recomputed(value: str) -> None:
    made = tasks(v=f"SELECT id, {value} AS something FROM orders", w=f"SELECT x FROM orders ORDER BY {value} LIMIT 3")
    assert "a non-deterministic function" in made["v"].note
    assert "a non-deterministic function" in made["w"].note


def test_a_column_takes_precedence_over_a_function_without_parentheses() -> None:
    assert tasks(v="SELECT user FROM people")["v"].note == "new rows are appended"


@pytest.mark.parametrize(("value", "at"), [("EXTRACT(ISODOW FROM day)", 12), ("date_part('isodow', day)", 14)])
@pytest.mark.parametrize("rest", ["", " SORT BY id"])
def test_a_field_that_spark_does_not_extract_is_refused_where_it_stands(value: str, at: int, rest: str) -> None:
    with pytest.raises(QueryError, match=rf"(?i)ISODOW.*Line: 2, Col: {at}.*DAYOFWEEK_ISO"):
        tasks(v=f"SELECT id,\n   {value} AS d\nFROM (SELECT id, current_date() AS day FROM orders){rest}")
    assert tasks(v="SELECT EXTRACT(DOW_ISO FROM DATE '2026-01-01') AS d, date_part('w', x) AS w FROM orders")


@pytest.mark.parametrize("query", ["SELECT customer FROM ORDERS", "SELECT x FROM orders SORT BY x"])
def test_channels_are_found_in_any_case(query: str) -> None:
    (port, *_) = tasks(v=query)["v"].variants[-1].ports
    assert port.channel == "Orders"


def test_views_find_each_other_in_any_case() -> None:
    workflow = kn.Workflow("w")
    workflow.channel("t", "a int")
    workflow.view("Above", "SELECT a FROM middle")
    workflow.view("Middle", "SELECT a FROM BELOW UNION ALL SELECT a FROM below SORT BY a")
    workflow.view("Below", "SELECT a FROM T", materialized=False)
    made = {task.name: task for task in workflow.declared().workflow.tasks}
    assert set(made) == {"Above", "Middle"}
    assert made["Middle"].reads == ("t",)


def test_parts_of_a_view_are_what_it_keeps_and_not_what_is_called_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kilonova.service.explain_view import parts

    monkeypatch.setenv("KILONOVA_SPARK__ANALYSE", "false")
    workflow = kn.Workflow("w")
    workflow.channel("t", "a int, b int")
    workflow.view("v__7", "SELECT a, b FROM t WHERE a > 0")
    workflow.view(
        "v", "SELECT a, n FROM (SELECT a, count(*) AS n FROM v__7 GROUP BY a) WHERE n > 1 ORDER BY n, a LIMIT 3"
    )
    with kn.open_project(tmp_path) as project:
        project.create()
        project.apply(workflow)
        with project.catalog.reading() as tx:
            assert list(parts(tx, "v")) == ["v__1", "v"]
            assert list(parts(tx, "v__7")) == ["v__7"]
