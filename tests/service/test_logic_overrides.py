"""The user decides which tasks get a new logic version, where comparing definitions cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import kilonova as kn
from kilonova.catalog import registry
from kilonova.errors import DeclarationError, KilonovaError, NotFound
from kilonova.model.event import EventKind
from kilonova.service.project import Project, open_project

LARGE = "SELECT customer, sum(amount) AS total FROM orders WHERE amount > 1 GROUP BY customer"
SAME = {"same_logic": ["large"]}
LARGER = LARGE.replace("> 1", ">= 1.5")


def scored(factor: int) -> Callable[..., Any]:
    def scored(orders: kn.New) -> kn.Delta:
        return orders.select("id", (F.col("amount") * factor).alias("score"))

    return scored


def shop(
    view: str = LARGE, factor: int = 1, key: str | None = "customer", columns: str = "id int, score int"
) -> kn.Workflow:
    workflow = kn.Workflow("shop")
    workflow.channel("orders", "id int, customer string, amount int", key="id")
    workflow.channel("others", "id int, customer string, amount int", key="id")
    workflow.task(schema=columns, key="id")(scored(factor))
    workflow.view("large", view, key=key)
    return workflow


REFUSED: dict[str, tuple[kn.Workflow, dict[str, list[str]], type[KilonovaError], str]] = {
    "unknown": (shop(), {"same_logic": ["larger"]}, NotFound, "declares no such task"),
    "unknown, too": (shop(), {"new_version": ["larger"]}, NotFound, "declares no such task"),
    "both": (shop(), {"same_logic": ["large"], "new_version": ["large"]}, DeclarationError, "cannot both"),
    "another column": (shop(LARGE.replace("total", "sum")), SAME, DeclarationError, "not return the column total"),
    "one column more": (
        shop(LARGE.replace("sum(", "max(id) AS m, sum(")),
        SAME,
        DeclarationError,
        "also returns the column m",
    ),
    "another type": (shop(LARGE.replace("(amount)", "(amount + 0.5)")), SAME, DeclarationError, "total as decimal"),
    "another input": (shop(LARGE.replace("orders", "others")), SAME, DeclarationError, "reads other channels"),
    "no key": (shop(f"{LARGE}, id", key=None), SAME, DeclarationError, "declaration of the channel large"),
    "a declared column": (
        shop(columns="id int, score bigint"),
        {"same_logic": ["scored"]},
        DeclarationError,
        "the declaration of the channel scored has changed",
    ),
}


def versions(project: Project) -> dict[str, int]:
    with project.catalog.reading() as tx:
        return {name: known.logic for name, known in registry.tasks(tx).items()}


def rows(project: Project, channel: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, project.read(channel).collect()))


def test_output_stays_if_the_logic_is_the_same_and_is_recomputed_if_it_is_another(project: Project) -> None:
    def ingest(*orders: tuple[int, str, int]) -> None:
        project.ingest("orders", project.warehouse.spark.createDataFrame(orders, "id int, customer string, amount int"))

    project.apply(shop())
    ingest((1, "ada", 1), (2, "ada", 3), (3, "bob", 5))
    project.run()

    for what, (workflow, given, error, says) in REFUSED.items():
        with pytest.raises(error, match=says):
            project.apply(workflow, **given)
        assert versions(project) == {"scored": 0, "large": 0}, what

    plan = project.plan(shop(LARGER, 10), same_logic=["scored", "large"])
    assert {item.task.name: item.overruled for item in plan.tasks} == dict.fromkeys(
        ["scored", "large"], "same logic, as requested"
    )
    assert not any(item.anew or item.rows for item in plan.tasks)
    assert {item.task.name for item in plan.tasks if item.diff} == {"large"}
    project.apply(shop(LARGER, 10), same_logic=["scored", "large"])
    assert versions(project) == {"scored": 0, "large": 0}
    assert project.plan(shop(LARGER, 10)).empty
    assert project.plan(shop(LARGER, 10), same_logic=["large"]).empty
    ingest((4, "bob", 2))
    project.run()
    assert rows(project, "scored") == [(1, 1), (2, 3), (3, 5), (4, 20)]
    assert rows(project, "large") == [("ada", 3), ("bob", 7)]

    plan = project.apply(shop(LARGER, 10), new_version=["scored"])
    (item,) = (item for item in plan.tasks if item.anew)
    reason = "recomputed at the next run: what has changed is not known"
    assert item.detail == f"logic version 0 → 1: a new version, as requested; {reason}"
    assert versions(project) == {"scored": 1, "large": 0}
    project.run()
    assert rows(project, "scored") == [(1, 10), (2, 30), (3, 50), (4, 20)]
    said = [event.text for event in project.events() if event.kind is EventKind.APPLIED]
    assert "scored: a new version, as requested" in said
    assert "large: same logic, as requested" in said


def test_a_task_that_is_new_is_not_the_same(tmp_path: Path) -> None:
    with open_project(tmp_path, spark={"analyse": False}) as project:
        project.create()
        with pytest.raises(DeclarationError, match="it is new"):
            project.plan(shop(), same_logic=["large"])
        assert {item.logic for item in project.plan(shop(), new_version=["large"]).tasks} == {0}
