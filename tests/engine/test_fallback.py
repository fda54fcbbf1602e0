"""Views that cannot run are refused before they are registered; a change that cannot be followed is made up for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import kilonova as kn
from kilonova.catalog import registry
from kilonova.engine.run_events import RunNotification, StepRecomputed
from kilonova.errors import DeclarationError, KilonovaError, QueryError, SparkUnavailable, TaskFailed
from kilonova.model.event import EventKind
from kilonova.model.run import RefreshMethod
from kilonova.query import view_tasks
from kilonova.query.view_migration import ViewMigration
from kilonova.query.view_tasks import DeltaQuery
from kilonova.service.project import Project, open_project
from kilonova.service.resources import ProjectResources
from kilonova.warehouse.guards import Guard

SCHEMA = "id int, g string, x int"


def workflow(query: str, **options: Any) -> kn.Workflow:
    made = kn.Workflow("w")
    made.channel("rows", SCHEMA, key="id")
    made.view("v", query, **options)
    return made


def put(project: Project, *rows: tuple[Any, ...]) -> None:
    project.ingest("rows", project.warehouse.spark.createDataFrame(list(rows), SCHEMA))


@pytest.mark.parametrize("query", ["SELECT x + ARRAY(1) AS d FROM rows"])
def test_a_view_that_spark_refuses_is_refused_before_anything_is_registered(project: Project, query: str) -> None:
    for refuse in (project.plan, project.apply):
        with pytest.raises(QueryError) as raised:
            refuse(workflow(query))
        assert raised.value.task == "v"
        assert "DATATYPE_MISMATCH" in raised.value.problem
        assert "array(1)" in raised.value.problem.lower().rpartition(", in ")[2]
        assert "\n" not in raised.value.problem
    with project.catalog.reading() as tx:
        assert not tx.connection.exec_driver_sql("SELECT * FROM channel").all()


def test_without_analysis_a_plan_starts_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(_resources: ProjectResources) -> None:
        raise SparkUnavailable("there is no Java")

    monkeypatch.setattr(ProjectResources, "warehouse", property(started))
    for analyse, said in ((True, "not analysed: there is no Java"), (False, "")):
        with open_project(tmp_path, spark={"analyse": analyse}) as project:
            project.create()
            (task,) = project.plan(workflow("SELECT id FROM rows")).tasks
            assert ("not analysed" in task.detail) == bool(said)
            assert said in task.detail


def test_a_view_over_views_that_have_not_run_is_analysed(project: Project) -> None:
    made = workflow("SELECT g, array_agg(x) AS all FROM rows GROUP BY g")
    made.view("above", "SELECT g, all + 1 AS more FROM v")
    with pytest.raises(QueryError, match="DATATYPE_MISMATCH") as raised:
        project.plan(made)
    assert raised.value.task == "above"


def breaking(monkeypatch: pytest.MonkeyPatch, broken: Callable[[DeltaQuery], DeltaQuery]) -> None:
    derive = view_tasks.delta_of

    def derived(*given: Any) -> DeltaQuery | None:
        delta = derive(*given)
        return None if delta is None else broken(delta)

    monkeypatch.setattr(view_tasks, "delta_of", derived)


def fail(_delta: DeltaQuery) -> DeltaQuery:
    raise AssertionError("a rule is wrong")


def with_filter(condition: str) -> Callable[[DeltaQuery], DeltaQuery]:
    return lambda delta: replace(delta, sql=f"SELECT * FROM ({delta.sql}) WHERE {condition}")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (with_filter("isnull(no_such_column)"), "UNRESOLVED_COLUMN"),
        (with_filter(f"CAST(raise_error('[{Guard.RETRACTION.value}] ') AS boolean)"), "retracted more often"),
        (with_filter(f"s * {2**63 - 1} IS NOT NULL"), "ARITHMETIC_OVERFLOW"),
        (fail, "a rule is wrong"),
    ],
    ids=["refused by Spark", "a broken law", "a number out of range", "a defect"],
)
def test_a_change_that_cannot_be_followed_is_made_up_for_in_the_same_run(
    project: Project, monkeypatch: pytest.MonkeyPatch, broken: Callable[[DeltaQuery], DeltaQuery], said: str
) -> None:
    told: list[RunNotification] = []
    project.resources.listener = told.append
    project.apply(workflow("SELECT g, sum(x) AS s FROM rows GROUP BY g", refresh="incremental"))
    put(project, (1, "a", 1), (2, "b", 2))
    project.run()
    breaking(monkeypatch, broken)
    put(project, (1, "a", 5), (3, "c", 3))
    report = project.run()
    assert report is not None
    (made,) = report.made
    assert made.reason.startswith("full: ")
    assert "the incremental refresh failed: " in made.reason
    assert said in made.reason
    assert project.reader.task_runs("v")[0].method is RefreshMethod.FULL
    assert Counter(map(tuple, project.read("v").collect())) == {("a", 5): 1, ("b", 2): 1, ("c", 3): 1}
    assert [item.step for item in told if isinstance(item, StepRecomputed)] == ["v"]
    (event,) = [each for each in project.events() if each.kind is EventKind.FELL_BACK]
    assert (event.run, event.channels) == (report.runs[0].run, ("v",))
    assert said in event.text


def test_rows_that_cannot_be_computed_are_an_error_with_the_expression(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[RunNotification] = []
    project.resources.listener = told.append
    project.apply(workflow("SELECT id, 10 div x AS y FROM rows", refresh="incremental"))
    put(project, (1, "a", 1))
    project.run()
    put(project, (2, "a", 0))
    capfd.readouterr()
    with pytest.raises(TaskFailed, match=r"DIVIDE_BY_ZERO.* in 10 DIV `x") as raised:
        project.run()
    assert "\n" not in raised.value.problem
    assert not [item for item in told if isinstance(item, StepRecomputed)]
    assert not capfd.readouterr().err


def test_a_sum_that_is_out_of_range_temporarily_is_recomputed(project: Project) -> None:
    """Sums of decimals have 38 digits at most; which of them go beyond depends on the order of the rows."""
    schema, largest = "id int, x decimal(38,0)", Decimal(10**38 - 1)
    made = kn.Workflow("w")
    made.channel("rows", schema, key="id")
    made.view("v", "SELECT sum(x) AS s FROM rows", refresh="incremental")
    project.apply(made)
    nothing = Decimal(0)
    for rows, total in (
        ([(1, largest)], largest),
        ([(1, Decimal(1 - 10**38)), (2, largest)], nothing),
        ([(1, largest), (2, nothing)], largest),
    ):
        project.ingest("rows", project.warehouse.spark.createDataFrame(rows, schema))
        project.run()
        assert [row.s for row in project.read("v").collect()] == [total]


def test_if_the_full_refresh_fails_as_well_its_error_is_raised(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.apply(workflow("SELECT id, 10 div x AS y FROM rows", refresh="incremental"))
    put(project, (1, "a", 1))
    project.run()
    breaking(monkeypatch, fail)
    put(project, (2, "a", 0))
    with pytest.raises(TaskFailed, match="DIVIDE_BY_ZERO"):
        project.run()
    assert EventKind.FELL_BACK not in {each.kind for each in project.events()}


def test_a_delta_query_that_spark_rejects_is_reported_by_the_plan(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kilonova.engine import view_analysis

    derive = view_analysis.delta_of

    def derived(*given: Any) -> DeltaQuery | None:
        delta = derive(*given)
        return None if delta is None else with_filter("isnull(no_such_column)")(delta)

    monkeypatch.setattr(view_analysis, "delta_of", derived)
    query = "SELECT g, sum(x) AS s FROM rows GROUP BY g"
    (task,) = project.plan(workflow(query)).tasks
    assert "fully recomputed in each run: " in task.detail
    assert "UNRESOLVED_COLUMN" in task.detail
    with pytest.raises(KilonovaError, match="UNRESOLVED_COLUMN") as raised:
        project.plan(workflow(query, refresh="incremental"))
    assert isinstance(raised.value, QueryError | DeclarationError)


@pytest.mark.parametrize(
    ("value", "steps", "rows"), [("sum(x) AS s", 1, [("b", 14)]), ("sum(x) + 1 AS t", 2, [("b", 15)])]
)
def test_a_migration_that_fails_before_new_input_is_made_up_for(
    project: Project, monkeypatch: pytest.MonkeyPatch, value: str, steps: int, rows: list[tuple[str, int]]
) -> None:
    """The output is recomputed from all input."""

    def failing(*_: Any) -> None:
        raise TaskFailed("broken")

    project.apply(workflow("SELECT g, sum(x) AS s FROM rows GROUP BY g", refresh="incremental"))
    put(project, (1, "a", 1), (2, "b", 2), (3, "b", 4))
    project.run()
    put(project, (4, "b", 8))
    project.apply(workflow(f"SELECT g, {value} FROM rows WHERE x > 1 GROUP BY g", refresh="incremental"))
    with project.catalog.reading() as tx:
        assert len(registry.tasks(tx, ["v"])["v"].task.migrations) == steps
    monkeypatch.setattr(ViewMigration, "compile", failing)
    monkeypatch.setattr("kilonova.engine.executor.may_succeed_in_full", lambda _: True)
    project.run()
    assert sorted(map(tuple, project.read("v").collect())) == rows
    detail = project.run_detail(project.runs(1)[0].run.number)
    assert [(each.port, each.start, each.end) for each in detail.inputs] == [("rows", 0, 2)]
    assert ["migration failed: broken" in each.reason for each in detail.made] == [True]


@pytest.mark.parametrize("refresh", ["auto", "incremental", "full"])
def test_a_view_is_recomputed_when_a_view_below_changes_a_type(project: Project, refresh: str) -> None:
    def web(query: str) -> kn.Workflow:
        made = workflow(query)
        made.view("above", "SELECT g FROM v WHERE n > 1", refresh=refresh)
        made.view("counted", "SELECT g, count(*) AS n FROM above GROUP BY g", refresh=refresh)
        return made

    project.apply(web("SELECT g, count(*) AS n FROM rows GROUP BY g"))
    put(project, (1, "a", 1), (2, "b", 2), (3, "b", 4), (4, "c", 1), (5, "c", 1))
    project.run()
    project.apply(web("SELECT n AS g, n FROM (SELECT g, count(*) AS n FROM rows GROUP BY g)"))
    put(project, (6, "a", 7))
    project.run()
    assert [tuple(row) for row in project.read("counted").collect()] == [(2, 3)]
    put(project, (6, "b", 7))
    project.run()
    assert sorted(map(tuple, project.read("counted").collect())) == [(2, 1), (3, 1)]


def test_columns_stay_the_same_ones_when_a_view_is_recomputed(project: Project) -> None:
    """A reader of its changes finds the values of a column that was added later in older blocks."""

    def web(columns: str, *, read: bool = True) -> kn.Workflow:
        made = workflow(f"SELECT {columns} FROM rows", refresh="incremental")
        if read:
            made.view("sums", "SELECT g, sum(x) AS s FROM v GROUP BY g", refresh="incremental")
        return made

    project.apply(web("id, g", read=False))
    put(project, (1, "a", 1), (2, "b", 2), (3, "b", 4))
    project.run()
    project.apply(web("id, g, x"))
    project.run()
    project.apply(web("id, g, x"), new_version=["v"])
    put(project, (2, "a", 2))
    project.run()
    assert sorted(map(tuple, project.read("sums").collect())) == [("a", 3), ("b", 4)]
