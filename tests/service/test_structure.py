"""Filters are inserted and removed between two tasks while data arrive: nothing is recomputed, and no row is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kilonova as kn
from kilonova.catalog import channel_store, runs
from kilonova.errors import Conflict, DeclarationError
from kilonova.model.run import RunKind
from kilonova.model.schema import Schema
from kilonova.service.workflow_plan import WorkflowPlan
from tests.databases import Clock
from tests.generator.memory import GeneratedProject
from tests.generator.rows import Rows

COLUMNS = "k bigint, v bigint"
SCHEMA = Schema.of(("k", "bigint"), ("v", "bigint"))


@dataclass(frozen=True)
class Filter:
    """A task that lets through the values that are not a multiple of a number."""

    name: str
    factor: int

    def declare(self, workflow: kn.Workflow, before: str) -> None:
        factor = self.factor

        def filtered(rows: kn.New) -> kn.Delta:
            records = rows.records
            for each in records:
                each["_deleted"] = each["_deleted"] or each["v"] % factor == 0
            return type(rows).of(rows.schema, records)

        filtered.__name__ = self.name
        workflow.task(schema=COLUMNS, key="k", reads={"rows": before})(filtered)


def declared(filters: Sequence[Filter]) -> kn.Workflow:
    """The workflow: source, then filters, then two tasks that pass rows on."""
    workflow = kn.Workflow("w")
    workflow.channel("source", COLUMNS, key="k")
    before = "source"
    for each in filters:
        each.declare(workflow, before)
        before = each.name
    add_readers(workflow, before)
    return workflow


def add_readers(workflow: kn.Workflow, before: str) -> None:
    def passed(rows: kn.New) -> kn.Delta:
        return rows

    for name in ("first", "second"):
        passed.__name__ = name
        workflow.task(schema=COLUMNS, key="k", reads={"rows": before})(passed)
        before = name


@dataclass
class Flow:
    """A project, and what has been ingested."""

    project: GeneratedProject
    filters: list[Filter] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    made: int = 0

    def apply(self) -> WorkflowPlan:
        planned = self.project.plan(declared(self.filters))
        plan = self.project.apply(declared(self.filters))
        assert [(each.task.name, each.detail) for each in planned.tasks] == [
            (each.task.name, each.detail) for each in plan.tasks
        ]
        assert self.project.plan(declared(self.filters)).empty
        return plan

    def ingest(self, *rows: tuple[int, int]) -> None:
        self.project.ingest("source", Rows(SCHEMA, rows))  # type: ignore[arg-type]
        self.rows |= dict(rows)

    def insert(self, place: int, *factors: int) -> None:
        names = [f"filter_{self.made + n}" for n in range(len(factors))]
        self.made += len(factors)
        self.filters[place:place] = [Filter(name, factor) for name, factor in zip(names, factors, strict=True)]

    def found(self, name: str) -> dict[int, int]:
        with self.project.catalog.reading() as tx:
            channel = channel_store.channel_state(tx, name)
        return dict(self.project.warehouse.open(channel.snapshot(channel.latest_readable)).rows)

    def check(self) -> None:
        expected = {k: v for k, v in self.rows.items() if all(v % each.factor for each in self.filters)}
        assert self.found("first") == self.found("second") == expected
        with self.project.catalog.reading() as tx:
            states = channel_store.channel_states(tx)
        for state in states.values():
            for earlier, later in zip(state.points, state.points[1:], strict=False):
                assert not later.version.precedes(earlier.version)


STEPS = st.one_of(
    st.tuples(st.just("ingest"), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30)), min_size=1, max_size=4)),
    st.tuples(st.just("insert"), st.tuples(st.integers(0, 3), st.lists(st.integers(2, 5), min_size=1, max_size=2))),
    st.tuples(st.just("remove"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["run", "run", "compact", "collect"]), st.none()),
)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=3, max_size=14))
def test_rows_are_right_after_any_changes_of_the_structure(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    directory = tmp_path_factory.mktemp("flow")
    template = tmp_path_factory.getbasetemp() / "structure.db"
    with GeneratedProject(directory, Clock(), template) as project:
        flow = Flow(project)
        flow.apply()
        flow.ingest((1, 4), (2, 9), (3, 25), (4, 7))
        flow.project.run()
        for kind, what in steps:
            match kind:
                case "ingest":
                    flow.ingest(*dict(what).items())
                case "insert":
                    flow.insert(min(what[0], len(flow.filters)), *what[1])
                    flow.apply()
                case "remove" if flow.filters:
                    del flow.filters[what % len(flow.filters)]
                    flow.apply()
                case "run":
                    project.run()
                    flow.check()
                case "compact":
                    project.compact("source")
                case "collect":
                    project.collect_garbage()
        project.run()
        flow.check()


def test_what_is_inserted_and_what_is_not(tmp_path: Path) -> None:
    with GeneratedProject(tmp_path, Clock(), tmp_path / "template.db") as project:
        flow = Flow(project)
        flow.apply()
        flow.ingest((1, 4), (2, 9))
        project.run()
        flow.insert(0, 2, 3)
        details = {each.task.name: each.detail for each in flow.apply().tasks}
        assert "inserted between source and first" in details["filter_0"]
        assert "inserted between source and first" in details["filter_1"]
        assert details["first"] == "reads filter_1 instead of source, from its cursor on"
        with project.catalog.reading() as tx:
            states = channel_store.channel_states(tx)
        assert {block.number for block in states["filter_1"].blocks} == {b.number for b in states["source"].blocks}
        assert str(states["second"].version(1)) == "source›filter_0›filter_1›first›second 1[s,s,0,0]"
        project.run()
        flow.check()
        del flow.filters[:]
        details = {each.task.name: each.detail for each in flow.apply().tasks}
        assert details["first"].startswith("reads source directly, as filter_0, filter_1 is removed")
        flow.insert(0, 5)
        details = {each.task.name: each.detail for each in flow.apply().tasks}
        assert "inserted" not in details["filter_2"]  # the difference of the removal has not been processed yet
        project.run()
        assert flow.found("first") == {1: 4, 2: 9}
        flow.check()


def test_a_run_of_a_task_downstream_and_two_possible_tasks_are_obstacles(tmp_path: Path) -> None:
    with GeneratedProject(tmp_path, Clock(), tmp_path / "template.db") as project:
        flow = Flow(project)
        flow.apply()
        flow.ingest((1, 4))
        project.run()
        flow.insert(0, 3)
        with project.catalog.writing() as tx:
            lease = timedelta(minutes=1)
            run, _ = runs.start(tx, kind=RunKind.TASKS, tasks=["second"], writes=["second"], owner="me", lease=lease)
        with pytest.raises(Conflict, match="a task is inserted or removed before this one, which is running"):
            project.apply(declared(flow.filters))
        with project.catalog.writing() as tx:
            runs.fail(tx, run, "stopped")
        flow.apply()

        def both(one: kn.New, other: kn.New) -> kn.Delta:
            return one

        def joined(rows: kn.New) -> kn.Delta:
            return rows

        def workflow(inputs: Sequence[str]) -> kn.Workflow:
            made = kn.Workflow("v")
            for name in inputs:
                Filter(name, 7).declare(made, "source")
            if inputs:
                made.task(schema=COLUMNS, key="k", reads=dict(zip(("one", "other"), inputs, strict=True)))(both)
            made.task(schema=COLUMNS, key="k", reads={"rows": "both" if inputs else "source"})(joined)
            return made

        project.apply(workflow(()))
        project.run()
        (detail,) = (each.detail for each in project.plan(workflow(("a", "b"))).tasks if each.task.name == "joined")
        assert "more than one task leads from source to its new inputs, so that none counts as inserted" in detail


def test_rows_that_are_there_stay_only_if_they_are_not_computed_again(tmp_path: Path) -> None:
    def whole(rows: kn.All) -> kn.Base:
        return rows

    with GeneratedProject(tmp_path, Clock(), tmp_path / "template.db") as project:
        flow = Flow(project)
        flow.apply()
        flow.ingest((1, 4))
        project.run()
        workflow = kn.Workflow("w")
        workflow.channel("source", COLUMNS, key="k")
        workflow.task(schema=COLUMNS, key="k", reads={"rows": "source"})(whole)
        add_readers(workflow, "whole")
        with pytest.raises(DeclarationError, match="it may compute its output again"):
            project.plan(workflow, same_logic=["whole"])
        assert "inserted between source and first" in project.plan(workflow).tasks[0].detail
