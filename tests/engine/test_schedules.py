"""Schedules in runs: a view is left out until its time has come, unless somebody asks for it."""

from __future__ import annotations

from typing import Any

import kilonova as kn
from kilonova.service.project import Project
from kilonova.service.reports import RunReport
from tests.databases import NOON, Clock


def shop(query: str, schedule: str | None) -> kn.Workflow:
    workflow = kn.Workflow("shop")
    workflow.channel("orders", "id int, customer string, amount int", key="id")
    workflow.view("spent", query, schedule=schedule)
    workflow.view("known", "SELECT DISTINCT customer FROM spent")
    workflow.view("large", "SELECT id FROM orders WHERE amount > 5")
    return workflow


SPENT = "SELECT customer, sum(amount) AS amount FROM orders GROUP BY customer HAVING sum(amount) > 0"


def put(project: Project, *rows: tuple[Any, ...]) -> None:
    columns = "id int, customer string, amount int"
    project.ingest("orders", project.warehouse.spark.createDataFrame(list(rows), columns))


def made(report: RunReport | None) -> set[str]:
    return set() if report is None else {item.channel.partition("__")[0] for item in report.made}


def test_a_view_is_left_out_until_its_time_unless_it_is_asked_for(project: Project) -> None:
    project.catalog.clock = clock = Clock(NOON)
    project.apply(shop(SPENT, "every 1 hour"))
    put(project, (1, "ann", 10))
    assert made(project.run()) == {"spent", "known", "large"}

    clock.forward(3599)
    put(project, (2, "bob", 10))
    assert set(project.due()) == {"large"}
    status = project.status()
    assert {name: (wait - NOON).total_seconds() for name, wait in status.waits.items()} == {
        "spent": 3600,
        "spent__1": 3600,
    }
    assert made(project.run()) == {"large"}
    assert project.run() is None
    clock.forward(1)
    assert made(project.run()) == {"spent", "known"}
    assert project.read("spent").count() == 2

    put(project, (3, "cleo", 10))
    assert made(project.run(["spent"])) == {"spent"}
    assert project.read("spent").count() == 3
    assert made(project.run()) == {"known", "large"}

    put(project, (4, "dan", 10))
    project.apply(shop(SPENT.replace("sum", "max"), "every 1 hour"))
    assert made(project.run()) == {"spent", "known", "large"}
    put(project, (5, "eva", 10))
    project.apply(shop(SPENT.replace("sum", "max"), None))
    assert made(project.run()) == {"spent", "known", "large"}
    assert project.read("spent").count() == 5
