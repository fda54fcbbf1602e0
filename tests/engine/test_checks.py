"""Checks on Spark: what is published satisfies them, at every point, and what does not is not published."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import kilonova as kn
from kilonova.errors import CheckFailed, Conflict, DeclarationError, KilonovaError, QueryError
from kilonova.service.plan_action import Action
from kilonova.service.project import Project
from kilonova.service.workflow_plan import WorkflowPlan

Row = tuple[Any, ...]
SCHEMA = "id int, code int, kind string"
CHECKS = {
    "not_null": ["kind"],
    "unique": ["code"],
    "accepted_values": {"kind": ["a", "b"]},
    "expressions": ["code >= 0"],
}


def violates(rows: Counter[Row]) -> bool:
    """What CHECKS mean."""
    codes = Counter(code for _, code, _ in rows.elements() if code is not None)
    return any(n > 1 for n in codes.values()) or any(
        kind not in ("a", "b") or (code is not None and code < 0) for _, code, kind in rows
    )


def merged(encoding: str, before: Counter[Row], delta: list[Row]) -> Counter[Row]:
    after = Counter(before)
    for *values, control in delta:
        row = tuple(values)
        if encoding == "upsert":
            after = Counter({old: n for old, n in after.items() if old[0] != row[0]})
            after += Counter() if control else Counter([row])
        else:
            after[row] += control
    return +after


def random_delta(encoding: str, before: Counter[Row], choice: random.Random) -> list[Row]:
    """A few rows, each with its control column; mostly such that they pass."""
    taken = [code for _, code, _ in before]
    rows: dict[Row, int] = {}
    for _ in range(choice.randint(1, 3)):
        code = choice.choice([None, choice.randrange(30), choice.randrange(30), choice.choice(taken or [0])])
        kind = choice.choice(["a", "b"] * 8 + ["c", None])
        rows[choice.randrange(6), -1 if choice.random() < 0.05 else code, kind] = 1
    if encoding == "upsert":
        by_key = {row[0]: (*row, choice.random() < 0.3) for row in rows}
        return [*by_key.values()]
    if encoding == "changes" and before:
        gone = choice.choice([*before])
        rows[gone] = -1
    return [(*row, weight) for row, weight in rows.items()]


@pytest.mark.parametrize("encoding", ["append", "upsert", "changes"])
def test_a_delta_is_refused_just_where_the_relation_after_it_violates_a_check(project: Project, encoding: str) -> None:
    workflow = kn.Workflow("w")
    workflow.channel("c", SCHEMA, key="id" if encoding == "upsert" else None, encoding=encoding, checks=CHECKS)
    project.apply(workflow)
    control = {"append": "", "upsert": ", _deleted boolean", "changes": ", _weight bigint"}[encoding]
    choice = random.Random(f"{encoding} 2")  # with checks on one row and on several violated
    rows: Counter[Row] = Counter()
    outcomes: Counter[bool] = Counter()
    for step in range(7):
        delta = random_delta(encoding, rows, choice)
        after = merged(encoding, rows, delta)
        given = [row if control else row[:-1] for row in delta]
        frame = project.warehouse.spark.createDataFrame(given, SCHEMA + control)
        outcomes[violates(after)] += 1
        if violates(after):
            with pytest.raises(CheckFailed) as raised:
                project.ingest("c", frame)
            assert raised.value.channel == "c"
        else:
            project.ingest("c", frame)
            rows = after
        if step == 3:
            project.compact("c")
        assert Counter(map(tuple, project.read("c").collect())) == rows
    assert len(outcomes) == 2, outcomes


def shop(**view: Any) -> kn.Workflow:
    workflow = kn.Workflow("shop")
    workflow.channel("orders", "id int, customer string, amount int", key="id")
    workflow.view("spent", "SELECT customer, sum(amount) AS amount FROM orders GROUP BY customer", **view)
    workflow.view("large", "SELECT id, customer FROM orders WHERE amount > 5", refresh="incremental")
    return workflow


def put(project: Project, *rows: Row) -> None:
    columns = "id int, customer string, amount int"
    project.ingest("orders", project.warehouse.spark.createDataFrame(list(rows), columns))


def change_of(plan: WorkflowPlan, channel: str) -> str:
    return next(item.detail for item in plan.channels if item.channel.name == channel)


def test_a_violated_check_fails_the_run_and_publishes_nothing(project: Project) -> None:
    project.apply(shop(checks={"expressions": ["amount >= 0"], "not_null": "customer"}))
    put(project, (1, "ann", 10), (2, "bob", 10))
    project.run()
    put(project, (3, "ann", -15), (4, "cleo", -1), (5, "dan", 9))
    with pytest.raises(CheckFailed) as raised:
        project.run(all_or_nothing=True)
    error = raised.value
    assert (error.channel, error.task, error.check, error.code) == (
        "spent",
        "spent",
        "expression(amount >= 0)",
        "check",
    )
    assert '2 rows violate it, for example {"customer":"ann","amount":-5}' in str(error)
    assert {row[0]: row[1] for row in project.read("spent").collect()} == {"ann": 10, "bob": 10}
    assert {row[0] for row in project.read("large").collect()} == {1, 2}
    put(project, (3, "ann", 15), (4, "cleo", 1))
    project.run()
    put(project, (6, None, 1))
    with pytest.raises(
        CheckFailed, match=r'1 row violates it, for example {"customer":null.*not_null\(customer\), run \d+\]'
    ):
        project.run()


def test_an_added_check_is_evaluated_once_on_existing_rows_and_recomputes_nothing(project: Project) -> None:
    project.apply(shop())
    put(project, (1, "ann", 10), (2, "bob", 10))
    project.run()
    checked = shop(checks={"expressions": ["amount > 5"], "unique": "customer"})
    said = "adds the check expression(amount > 5), adds the check unique(customer)"
    assert change_of(project.plan(checked), "spent") == said
    plan = project.apply(checked)
    assert [item.action for item in plan.tasks if item.task.name == "spent"] == [Action.KEEP]
    assert project.apply(checked).empty
    assert project.run() is None

    for checks in ({"unique": "amount"}, {"expressions": ["amount <> 10"]}, {"accepted_values": {"customer": ["ann"]}}):
        with pytest.raises(CheckFailed, match="for example") as raised:
            project.apply(shop(checks=checks))
        assert raised.value.channel == "spent"
    assert project.apply(checked).empty

    put(project, (3, "ann", -6))
    with pytest.raises(CheckFailed):
        project.run()
    assert "removes the check" in change_of(project.apply(shop()), "spent")
    project.run()
    assert {row[0]: row[1] for row in project.read("spent").collect()} == {"ann": 4, "bob": 10}


def test_a_check_that_is_added_with_another_query_is_evaluated_when_the_view_is_recomputed(project: Project) -> None:
    project.apply(shop())
    put(project, (1, "ann", 10))
    project.run()
    changed = kn.Workflow("shop")
    changed.channel("orders", "id int, customer string, amount int", key="id")
    changed.view("spent", "SELECT customer, -amount AS less FROM orders", checks={"expressions": "less >= 0"})
    project.apply(changed)
    with pytest.raises(CheckFailed):
        project.run()


def test_a_check_waits_for_a_run_that_is_going_on(project: Project) -> None:
    project.apply(shop())
    put(project, (1, "ann", 10))
    failures: list[KilonovaError] = []

    def listener(_: object) -> None:
        try:
            other = kn.open_project(project.directory)
            other.apply(shop(checks={"not_null": "customer"}))
        except KilonovaError as error:
            failures.append(error)

    project.resources.listener = listener
    project.run(["large"])
    assert failures == []
    project.apply(shop())
    project.run()
    assert failures
    assert all(isinstance(error, Conflict) and "is writing" in str(error) for error in failures), failures


BAD: dict[str, tuple[Callable[[], kn.Workflow], str]] = {
    "a misspelt column": (lambda: shop(checks={"not_null": "custmer"}), "Did you mean customer"),
    "a misspelt column in a condition": (lambda: shop(checks={"expressions": "amonut > 0"}), "Did you mean amount"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_check_of_an_unknown_column_is_refused_before_anything_is_registered(project: Project, what: str) -> None:
    declare, says = BAD[what]
    for attempt in (project.plan, project.apply):
        with pytest.raises(DeclarationError, match=says):
            attempt(declare())
    assert project.status().channels == {}


def test_a_condition_that_spark_refuses_fails_the_run_with_its_name(project: Project) -> None:
    project.apply(shop(checks={"expressions": "no_such_function(amount)"}))
    put(project, (1, "ann", 10))
    with pytest.raises(QueryError, match=r"Spark rejected.* check expression\(no_such_function\(amount\)\), run \d+\]"):
        project.run()
