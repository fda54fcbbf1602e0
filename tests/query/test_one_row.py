"""The change of a query that joins relations of one row."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import kilonova as kn
from kilonova.model.schema import Schema
from kilonova.query.maintenance_context import MaintenanceContext
from kilonova.query.properties import single
from kilonova.query.view_tasks import change_of, delta_of, known_of


def change_of_subqueries(count: int, source: str = "") -> str:
    """SQL of the change of a query with so many scalar subqueries, beside rows of a source if there is one."""
    workflow = kn.Workflow("w")
    workflow.channel("t", "id int, x int", key="id")
    workflow.channel("big", "id int, x int", key="id")
    sums = ", ".join(f"(SELECT SUM(x) FROM t WHERE id % 99 = {n}) AS s{n}" for n in range(count))
    workflow.view("v", f"SELECT {'id, ' if source else ''}{sums}{f' FROM {source}' if source else ''}")
    declared = workflow.declared().workflow
    task = next(task for task in declared.tasks if task.name == "v")
    logic = change_of(task)
    assert logic is not None
    text = logic.text
    channels = {channel.name: channel for channel in declared.channels}
    for name, channel in channels.items():
        if channel.schema is None and name != "v":
            found = re.search(rf"`(_sum\w*)`[^`]* FROM `{name}`", text)
            assert found is not None
            channels[name] = replace(channel, schema=Schema.of((found[1], "bigint")))
    columns = [*([("id", "int")] if source else []), *((f"s{n}", "bigint") for n in range(count))]
    channels["v"] = replace(channels["v"], schema=Schema.of(*columns))
    few = [name for name in channels if name.startswith("v__")]
    known = known_of(channels, few)
    assert single(logic.tree, known) == (not source)
    found_as = MaintenanceContext(moved=frozenset(task.reads), sizes=dict.fromkeys(task.reads, 1) | {"big": 10**9})
    delta = delta_of(logic.tree, channels["v"], Schema.of(*columns), known, found_as)
    assert delta is not None
    return delta.sql


@pytest.mark.parametrize("source", ["", "big"])
def test_the_change_of_scalar_subqueries_grows_with_their_number_and_no_faster(source: str) -> None:
    few, many = change_of_subqueries(15, source), change_of_subqueries(30, source)
    assert len(many) < 2.5 * len(few)
    assert many.count(" JOIN ") <= (2 if not source else 3) * 30 + 5
