"""Every logic answers what the planner and the engine ask, without being told apart by its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import kilonova as kn
from kilonova.model.block import Base, Block, Delta, Kind, Statistics
from kilonova.model.channel import ChannelState, Point, PointState
from kilonova.model.encoding import Changes
from kilonova.model.logic import Compilation, Function, Logic, LogicInput, RunScale, Sql
from kilonova.model.run import RefreshMethod
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Task
from kilonova.model.version import Version
from kilonova.query.view_tasks import change_of
from tests.databases import NOON


class Recording:
    """A runtime that gives back what it is asked to execute."""

    def sql(self, text: str, inputs: Mapping[str, Any]) -> Any:
        return text, dict(inputs)

    def function(self, pickled: bytes) -> Any:
        return lambda **inputs: (pickled, inputs)


def view(query: str) -> tuple[Task, dict[str, ChannelState]]:
    """The task of a view over rows of groups, which has run once, before one row was added; and its channels."""
    workflow = kn.Workflow("w")
    workflow.channel("rows", "g string, x bigint", key=None)
    workflow.view("v", query)
    declared = workflow.declared().workflow
    channels = {channel.name: channel for channel in declared.channels}
    own = Schema.of(("g", "string"), ("s", "bigint"))
    stored = Schema((*own.columns, *Schema.of(("_kept_rows", "bigint"), ("_kept_sum__s", "bigint")).columns))
    channels["v"] = replace(channels["v"], schema=own)

    def state(name: str, *blocks: Block) -> ChannelState:
        points = tuple(
            Point(number=number, state=PointState.FILLED, version=Version(), time=NOON, run=number)
            for number in range(1, len(blocks) + 1)
        )
        return ChannelState(channels[name], points, blocks)

    def block(number: int, kind: Kind, schema: Schema, rows: int) -> Block:
        return Block(
            number=number,
            kind=kind,
            schema=schema,
            encoding=Changes(),
            columns=schema,
            buckets=0,
            statistics=Statistics(rows=rows, bytes=rows * 100, files=1, removals=0, net_rows=rows),
        )

    given = channels["rows"].schema
    assert given is not None
    states = {
        "rows": state("rows", block(1, Base(1), given, 1000), block(2, Delta(1, 2), given, 1)),
        "v": state("v", block(3, Base(1), stored, 10)),
    }
    (task,) = declared.tasks
    return task, states


def test_functions_and_sql_are_executed_as_they_are() -> None:
    reading = view("SELECT g, sum(x) AS s FROM rows GROUP BY g")[1]["rows"].snapshot(1)
    reads = (LogicInput(port="p", channel="rows", reading=reading, changed=False),)
    run = Compilation(writes=("out",), reads=reads, states={}, method=RefreshMethod.FULL)
    sql, function = Sql(text="SELECT * FROM {p}"), Function(pickled=b"f", source="def f(p): ...")
    results = {}
    every: tuple[Sql | Function, ...] = (sql, function)
    for logic in every:
        compiled = logic.compile(run)
        assert [(name, read.port, read.stored) for name, read in compiled.inputs.items()] == [("p", "p", False)]
        results[logic.language] = compiled.executable.call(Recording(), {"p": 1})
    assert results == {"sql": ("SELECT * FROM {p}", {"p": 1}), "python": (b"f", {"p": 1})}


@pytest.mark.parametrize(
    ("logic", "language", "derived"),
    [
        (Sql(text="SELECT 1"), "sql", False),
        (Function(pickled=b"", source="SELECT 1"), "python", False),
        (change_of(view("SELECT g, sum(x) AS s FROM rows GROUP BY g")[0]), "sql", True),
    ],
)
def test_only_what_follows_from_a_query_is_derived(logic: Logic, language: str, derived: bool) -> None:
    assert (logic.language, logic.derived, logic.shareable) == (language, derived, not derived)
    assert (RefreshMethod.AFFECTED_GROUPS in logic.methods) == derived
    assert RefreshMethod.INCREMENTAL in logic.methods
    assert "SELECT" in logic.text


@pytest.mark.parametrize("scale", RunScale)
@pytest.mark.parametrize("method", [RefreshMethod.INCREMENTAL, RefreshMethod.AFFECTED_GROUPS])
def test_a_view_is_compiled_to_sql_over_what_it_needs(scale: RunScale, method: RefreshMethod) -> None:
    task, states = view("SELECT g, sum(x) AS s FROM rows GROUP BY g")
    logic = change_of(task)
    assert logic is not None
    variant = next(each for each in task.variants if each.logic == logic)
    start, end = 1, 2

    def reads(moved: bool) -> tuple[LogicInput, ...]:
        readings = {
            Mode.CHANGES: states["rows"].changes(start if moved else end, end),
            Mode.INSERTS: states["rows"].changes(start if moved else end, end),
            Mode.OLD: states["rows"].snapshot(start),
            Mode.ALL: states["rows"].snapshot(end),
        }
        return tuple(
            LogicInput(
                port=port.name,
                channel=port.channel,
                reading=readings[port.mode] if port.channel == "rows" else states["v"].snapshot(1),
                changed=moved and port.mode.advances,
            )
            for port in variant.ports
        )

    run = Compilation(writes=("v",), reads=reads(True), states=states, method=method, scale=scale)
    compiled = logic.compile(run)
    assert compiled is not None
    text, frames = compiled.executable.call(Recording(), dict.fromkeys(compiled.inputs, "frame"))
    assert all(read.stored and f"{{{name}}}" in text for name, read in compiled.inputs.items())
    ports = {read.port for read in compiled.inputs.values()}
    assert "rows__change" in ports
    assert ("rows__new" in ports) == (method is RefreshMethod.AFFECTED_GROUPS)
    assert set(frames) == set(compiled.inputs)
    assert ("COALESCE(1)" in text) == (scale is RunScale.SINGLE_PARTITION)
    assert logic.compile(replace(run, reads=reads(False))) is None
