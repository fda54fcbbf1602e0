"""Logic versions that require columns of their inputs: upgrades one by one, in any order, with lagging tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kilonova as kn
from kilonova.catalog import registry
from kilonova.catalog.channel_store import channel_state
from kilonova.errors import DeclarationError
from kilonova.model.channel import ChannelState
from kilonova.model.event import EventKind
from kilonova.model.schema import Schema
from kilonova.service.workflow_plan import WorkflowPlan
from tests.databases import Clock
from tests.generator.memory import GeneratedProject
from tests.generator.rows import Rows

TYPES = {"k": "bigint", "x": "bigint", "y": "bigint", "z": "bigint"}


@dataclass(frozen=True)
class Logic:
    """A version of a task: its output has these columns, `k` first; those that it reads are added to a constant."""

    columns: str
    reads: str
    constant: int = 0

    @property
    def schema(self) -> Schema:
        return Schema.of(*((name, TYPES[name]) for name in self.columns))

    def rows(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What it gives for rows; a column that it reads and that they lack is an error."""
        sums = [self.constant + sum(record[name] or 0 for name in self.reads) for record in records]
        return [
            {name: record["k"] if name == "k" else total for name in self.columns}
            for record, total in zip(records, sums, strict=True)
        ]


def ddl(names: str) -> str:
    return ", ".join(f"{name} {TYPES[name]}" for name in names)


def body_of(name: str, port: str, logic: Logic) -> Callable[..., Any]:
    def body(**frames):  # type: ignore[no-untyped-def]
        (frame,) = frames.values()
        return frame.of(logic.schema, logic.rows(frame.records))

    body.__name__ = name
    body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(port, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    )
    body.__annotations__ = {port: kn.New, "return": kn.Delta}
    return body


def workflow(name: str, port: str, logic: Logic, requires: str = "", declared: bool = True) -> kn.Workflow:
    """A task in a workflow of its own, which requires what it reads."""
    found = kn.Workflow(f"w_{name}")
    given = {port: ddl(requires)} if requires else None
    schema = ddl(logic.columns) if declared else None
    found.task(body_of(name, port, logic), schema=schema, encoding="append", requires=given)
    return found


def source(columns: str) -> kn.Workflow:
    found = kn.Workflow("w_source")
    found.channel("source", ddl(columns))
    return found


class World:
    """A project: `source` is read by `first`, and its output by `second`; each is in a workflow of its own."""

    def __init__(self, directory: Path) -> None:
        self.project = GeneratedProject(directory, Clock(), directory / "template.db")
        self.key = 0

    def first(self, logic: Logic, requires: str = "", **options: Any) -> WorkflowPlan:
        return self.project.apply(workflow("first", "source", logic, requires), **options)

    def second(self, logic: Logic, requires: str = "", **options: Any) -> WorkflowPlan:
        return self.project.apply(workflow("second", "first", logic, requires), **options)

    def ingest(self, columns: str) -> None:
        self.key += 1
        values = tuple(self.key if name == "k" else 10 * self.key for name in columns)
        schema = Schema.of(*((name, TYPES[name]) for name in columns))
        self.project.ingest("source", Rows(schema, (values,)))  # type: ignore[arg-type]

    def run(self, *tasks: str) -> None:
        self.project.run(tasks or None)

    def state(self, channel: str) -> ChannelState:
        with self.project.catalog.reading() as tx:
            return channel_state(tx, channel)

    def rows(self, channel: str, at: int | None = None) -> list[dict[str, Any]]:
        state = self.state(channel)
        (frame,) = self.project.look_up([state.snapshot(state.latest_readable if at is None else at)])
        assert isinstance(frame, Rows)
        return sorted(frame.records, key=lambda record: record["k"])

    def versions(self, channel: str) -> list[str]:
        """The versions of its filled points."""
        state = self.state(channel)
        return [str(point.version) for point in state.readable_points]

    def alerts(self) -> list[str]:
        kinds = EventKind.INCOMPATIBLE_SCHEMA
        return [event.text for event in self.project.events(0, 1000) if event.kind is kinds]

    def alert(self, task: str) -> str:
        return self.project.status().alerts.get(task, "")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    found.project.apply(source("kx"))
    yield found
    found.project.close()


def test_a_new_version_takes_over_with_the_first_data_that_has_its_columns(world: World) -> None:
    world.first(Logic("kx", "x"))
    world.second(Logic("kx", "x"))
    world.ingest("kx")
    world.run()
    plan = world.second(Logic("kxy", "xy", 1), "xy")
    (change,) = plan.tasks
    assert "waits for the first data with y bigint of first: logic version 0 goes on until then" in change.detail
    assert (
        world.alert("second") == "logic version 1 waits for data with y bigint of first: version 0 goes on until then"
    )
    world.ingest("kx")
    world.run()
    assert world.rows("second") == [{"k": 1, "x": 10}, {"k": 2, "x": 20}]
    assert world.project.apply(workflow("second", "first", Logic("kxy", "xy", 1), "xy")).empty
    world.first(Logic("kxy", "x", 5))
    world.ingest("kx")
    world.run()
    assert world.rows("first") == [{"k": key, "x": 10 * key + 5, "y": 10 * key + 5} for key in (1, 2, 3)]
    assert world.rows("second") == [{"k": k, "x": 20 * k + 11, "y": 20 * k + 11} for k in (1, 2, 3)]
    assert world.alert("second") == ""
    with world.project.catalog.reading() as tx:
        assert [each.logic for each in registry.live_versions(tx)["second"]] == [1]
    world.ingest("kx")
    world.run()
    assert world.rows("second")[-1] == {"k": 4, "x": 91, "y": 91}


def test_data_without_the_columns_is_finished_by_the_version_before(world: World) -> None:
    world.first(Logic("kx", "x"))
    world.second(Logic("kx", "x"))
    world.ingest("kx")
    world.run()
    world.ingest("kx")
    world.run("first")
    world.first(Logic("kxy", "x", 5))
    world.ingest("kx")
    world.run("first")
    world.second(Logic("kxy", "xy", 1), "xy")
    before = world.state("second").latest
    world.run("second")
    assert world.versions("second")[-2:] == ["source›first›second 2[0,0]", "source›first›second 3[1,1]"]
    assert world.rows("second", before + 1) == [{"k": 1, "x": 10}, {"k": 2, "x": 20}]
    assert world.rows("second") == [{"k": k, "x": 20 * k + 11, "y": 20 * k + 11} for k in (1, 2, 3)]


def test_a_task_stops_before_data_without_the_columns_that_it_requires(world: World) -> None:
    world.first(Logic("kxy", "x"))
    world.second(Logic("kx", "xy"), "xy")
    world.ingest("kx")
    world.run()
    world.ingest("kx")
    world.run("first")
    plan = world.first(Logic("kx", "x", 5))
    (alert,) = map(str, plan.incompatible)
    assert alert.startswith("second requires y bigint of first, which will no longer be there")
    assert world.alerts() == [alert]
    world.ingest("kx")
    world.run()
    assert world.alerts()[1:] == ["second stops before point 3 of first: it requires y bigint of first"]
    assert world.rows("second") == [{"k": 1, "x": 20}, {"k": 2, "x": 40}]
    assert world.alert("second") == "stops after point 2 of first: version 0 requires y bigint of first"
    world.ingest("kx")
    world.run()
    world.run("second")
    assert len(world.rows("second")) == 2
    world.second(Logic("kx", "x", 1), "x")
    world.run()
    assert world.rows("second") == [{"k": k, "x": 10 * k + 6} for k in (1, 2, 3, 4)]
    assert world.alert("second") == ""
    assert len(world.alerts()) == 2


def test_a_stopped_task_goes_on_when_the_column_is_back(world: World) -> None:
    world.first(Logic("kxy", "x"))
    world.second(Logic("kx", "xy"), "xy")
    world.ingest("kx")
    world.run()
    world.first(Logic("kx", "x", 5))
    world.run()
    assert len(world.rows("second")) == 1
    world.first(Logic("kxy", "x", 7))
    world.ingest("kx")
    world.run()
    assert world.rows("second") == [{"k": k, "x": 20 * k + 14} for k in (1, 2)]


def test_an_incompatible_upgrade_can_be_refused(world: World) -> None:
    world.first(Logic("kxy", "x"))
    world.second(Logic("kx", "xy"), "xy")
    world.ingest("kx")
    world.run()
    with pytest.raises(DeclarationError, match="the upgrade is refused: second requires y bigint"):
        world.first(Logic("kx", "x", 5), refuse_incompatible=True)
    assert world.alerts() == []
    world.second(Logic("kx", "x", 1), "x")
    assert not world.first(Logic("kx", "x", 5), refuse_incompatible=True).incompatible


def test_a_version_that_waits_can_be_replaced(world: World) -> None:
    world.first(Logic("kx", "x"))
    world.second(Logic("kx", "x"))
    world.ingest("kx")
    world.run()
    world.second(Logic("kxy", "xy", 1), "xy")
    world.second(Logic("kxy", "x", 2), "x")
    world.ingest("kx")
    world.run()
    assert world.rows("second") == [{"k": k, "x": 10 * k + 2, "y": 10 * k + 2} for k in (1, 2)]


def test_a_version_goes_on_although_it_has_not_run_yet(world: World) -> None:
    world.first(Logic("kx", "x"))
    world.second(Logic("kx", "x"))
    world.ingest("kx")
    world.run("first")
    world.second(Logic("kxy", "xy", 1), "xy")
    world.run()
    assert world.rows("second") == [{"k": 1, "x": 10}]
    world.first(Logic("kxy", "x", 5))
    world.run()
    assert world.rows("second") == [{"k": 1, "x": 31, "y": 31}]


def test_a_new_task_waits_for_its_columns(world: World) -> None:
    world.first(Logic("kx", "x"))
    world.ingest("kx")
    world.run()
    world.second(Logic("kxy", "xy", 1), "xy")
    assert world.alert("second") == "logic version 0 waits for data with y bigint of first"
    world.run()
    assert world.state("second").latest_distinct == 0
    world.first(Logic("kxy", "x", 5))
    world.run()
    assert world.rows("second") == [{"k": 1, "x": 31, "y": 31}]


def test_what_a_lagging_task_still_reads_is_not_collected(world: World) -> None:
    world.first(Logic("kx", "x"))
    world.second(Logic("kx", "x"))
    world.ingest("kx")
    world.run()
    world.ingest("kx")
    world.run("first")
    world.first(Logic("kxy", "x", 5))
    world.second(Logic("kxy", "xy", 1), "xy")
    world.run("first")
    world.project.compact("first")
    world.project.collect_garbage()
    before = world.state("second").latest
    world.run("second")
    assert world.rows("second", before + 1) == [{"k": 1, "x": 10}, {"k": 2, "x": 20}]
    assert world.rows("second") == [{"k": k, "x": 20 * k + 11, "y": 20 * k + 11} for k in (1, 2)]


def test_a_lagging_task_reads_rows_of_a_source_with_the_columns_with_which_they_were_written(world: World) -> None:
    world.first(Logic("kx", "x"), "x")
    world.ingest("kx")
    world.run()
    world.ingest("kx")
    plan = world.project.apply(source("ky"))
    assert [each.task for each in plan.incompatible] == ["first"]
    world.project.compact("source")
    world.project.collect_garbage()
    world.run()
    assert world.rows("first") == [{"k": 1, "x": 10}, {"k": 2, "x": 20}]
    world.ingest("ky")
    assert world.alerts()[1:] == ["first stops before point 3 of source: it requires x bigint of source"]
    world.run()
    assert len(world.rows("first")) == 2
    world.first(Logic("ky", "y"), "y")
    world.run()
    assert world.rows("first") == [{"k": 1, "y": 0}, {"k": 2, "y": 0}, {"k": 3, "y": 30}]


def test_a_version_that_requires_nothing_of_one_input_reads_all_of_it(world: World) -> None:
    found = kn.Workflow("w_other")
    found.channel("other", ddl("kz"))
    world.project.apply(found)

    def joined(requires: dict[str, str]) -> kn.Workflow:
        own = kn.Workflow("w_joined")

        def body(**frames):  # type: ignore[no-untyped-def]
            others = {record["k"]: record["z"] for record in frames["other"].records}
            rows = [record | {"z": others.get(record["k"], 0)} for record in frames["source"].records]
            names = ("k", "y", "z") if requires else ("k", "z")
            return frames["source"].of(Schema.of(*((name, "bigint") for name in names)), rows)

        body.__name__ = "joined"
        parameters = [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in ("source", "other")]
        body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        body.__annotations__ = {"source": kn.All, "other": kn.All, "return": kn.Base}
        own.task(body, schema=ddl("kyz" if requires else "kz"), requires=requires)
        return own

    world.project.apply(joined({}))
    world.ingest("kx")
    world.run()
    world.project.apply(joined({"source": ddl("ky")}))
    schema = Schema.of(("k", "bigint"), ("z", "bigint"))
    world.project.ingest("other", Rows(schema, ((1, 7),)))  # type: ignore[arg-type]
    world.run()
    assert world.rows("joined") == [{"k": 1, "z": 7}]
    world.project.apply(source("kxy"))
    world.run()
    assert world.rows("joined") == [{"k": 1, "z": 7}]
    world.ingest("kxy")
    world.run()
    assert world.rows("joined") == [{"k": 1, "y": None, "z": 7}, {"k": 2, "y": 20, "z": 0}]
