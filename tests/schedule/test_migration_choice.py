"""Migrations against recomputation: by what they read, and by who reads the output."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kilonova.model.block import Base, Block, Statistics
from kilonova.model.channel import Channel, ChannelState, Point, PointState
from kilonova.model.encoding import Changes
from kilonova.model.logic import Sql
from kilonova.model.run import CostSample, InputSize, RefreshMethod
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Port, Production, Task, Variant
from kilonova.model.version import Version
from kilonova.query.view_migration import ViewMigration
from kilonova.schedule.due import TaskState
from kilonova.schedule.planning import choose, migration_estimates, removal_condition

SCHEMA = Schema.of(("n", "int"))
MB = 1 << 20
WHOLE = Variant(
    name="full",
    ports=(Port("source", "source", Mode.ALL),),
    productions=(Production.BASE,),
    logic=Sql(text="SELECT * FROM {source}"),
    fingerprint="",
)


def channel(name: str, size: int) -> ChannelState:
    statistics = Statistics(rows=size // 10, bytes=size, files=1)
    block = Block(
        number=1, kind=Base(1), schema=SCHEMA, encoding=Changes(), columns=SCHEMA, buckets=0, statistics=statistics
    )
    point = Point(number=1, state=PointState.FILLED, version=Version.source(name, 1), time=None, run=1)
    return ChannelState(Channel(name=name, schema=SCHEMA, encoding=Changes()), (point,), (block,))


def migrating(readers: frozenset[str] | None, reads: tuple[str, ...], **content: Any) -> TaskState:
    """Return a task of a view whose new version can migrate its output."""
    migration = Variant(
        name="migration",
        ports=tuple(Port(name, name, Mode.ALL) for name in reads),
        productions=(Production.DELTA,),
        logic=ViewMigration(text="", stored=json.dumps({"tree": {}, **content})),
        fingerprint="",
        from_version=0,
    )
    before = Task(name="v", writes=("v",), variants=(WHOLE,), view="v")
    after = Task(name="v", writes=("v",), variants=(WHOLE,), view="v", migrations=(migration,))
    previous = TaskState(task=before, logic=0, started=True, cursors={"source": 1})
    return TaskState(task=after, logic=1, started=False, cursors={}, previous=previous, readers=readers)


def is_migrated(state: TaskState, source: int = 100 * MB, output: int = 10 * MB) -> bool:
    channels = {"source": channel("source", source), "v": channel("v", output)}
    return choose(state, channels).method is RefreshMethod.MIGRATION


BOTH = ("source", "v")


@pytest.mark.parametrize(("readers", "migrated"), [((), False), (("v",), False), (("v", "other"), True)])
def test_one_that_reads_as_much_is_chosen_for_readers_outside_of_the_view(
    readers: tuple[str, ...], migrated: bool
) -> None:
    assert is_migrated(migrating(frozenset(readers), BOTH)) == migrated


def test_one_is_chosen_where_its_readers_are_not_known() -> None:
    assert is_migrated(migrating(None, BOTH))


@pytest.mark.parametrize(("output", "migrated"), [(MB, False), (10 * MB, True)])
def test_what_reads_as_much_as_recomputing_is_chosen_for_large_outputs(output: int, migrated: bool) -> None:
    assert is_migrated(migrating(frozenset(), ("source",)), output=output) == migrated
    assert is_migrated(migrating(None, ("source",)), output=output)


def test_one_that_selects_few_rows_of_its_input_is_chosen() -> None:
    assert is_migrated(migrating(frozenset(), BOTH, cost_shares={"source": 0.6}))


@pytest.mark.parametrize(("output", "migrated"), [(MB, False), (20 * MB, True)])
def test_one_that_selects_as_few_rows_as_the_query_is_chosen_for_large_outputs(output: int, migrated: bool) -> None:
    state = migrating(frozenset(), ("source",), cost_shares={"source": 0.95})
    assert is_migrated(state, output=output) == migrated


def test_one_that_reads_the_output_only_is_chosen() -> None:
    assert is_migrated(migrating(frozenset(), ("v",)))


@pytest.mark.parametrize("seconds", [0.1, 100.0])
def test_one_that_reads_little_is_chosen_on_any_machine(seconds: float) -> None:
    taken = CostSample(RefreshMethod.FULL, InputSize(change=0, whole=MB), seconds=seconds)
    state = replace(migrating(frozenset(), BOTH), samples=(taken,) * 9)
    assert is_migrated(state, source=MB, output=MB)


def test_a_byte_costs_what_it_costs_to_recompute() -> None:
    full = CostSample(RefreshMethod.FULL, InputSize(change=0, whole=100 * MB), seconds=40.0)
    earlier = CostSample(RefreshMethod.MIGRATION, InputSize(change=0, whole=100 * MB), seconds=0.1)
    state = replace(migrating(frozenset(), BOTH), samples=(earlier, full) * 9)
    channels = {"source": channel("source", 100 * MB), "v": channel("v", 10 * MB)}
    found = migration_estimates(state, channels)
    assert found[RefreshMethod.MIGRATION] > found[RefreshMethod.FULL] > 20
    assert not is_migrated(state)


@pytest.mark.parametrize(("content", "nothing"), [({"tree": None}, True), ({"removal": "n > 1"}, True), ({}, False)])
def test_one_that_reads_nothing_costs_nothing(content: dict[str, Any], nothing: bool) -> None:
    state = migrating(frozenset(), ("v",), **content)
    channels = {"source": channel("source", MB), "v": channel("v", 1000 * MB)}
    assert (migration_estimates(state, channels)[RefreshMethod.MIGRATION] == 0) == nothing
    assert is_migrated(state, source=MB, output=1000 * MB) == nothing


@pytest.mark.parametrize(
    ("readers", "output", "recorded"),
    [((), 10 * MB, True), ((), MB, False), (("v",), 10 * MB, False), (None, 10 * MB, False)],
)
def test_a_condition_is_recorded_for_large_outputs_whose_changes_nobody_reads(
    readers: tuple[str, ...] | None, output: int, recorded: bool
) -> None:
    state = migrating(None if readers is None else frozenset(readers), ("v",), removal="n > 1")
    found = removal_condition(state.migrations[0], state, {"v": channel("v", output)})
    assert found == ("n > 1" if recorded else None)
