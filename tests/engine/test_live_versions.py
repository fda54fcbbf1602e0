"""Several live logic versions of one task: each has its own cursors, and is planned and retained for by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kilonova.catalog import channel_store, deferred, registry
from kilonova.catalog.planner_input import load_planner_input
from kilonova.errors import NotFound
from kilonova.model.run import RefreshMethod
from kilonova.model.task import Mode, Port
from kilonova.schedule.due import TaskState, due_tasks
from kilonova.schedule.planning import choose, port_inputs
from kilonova.service.migration_plan import plan_migration
from tests.databases import Clock
from tests.engine.plain import COPIED, Process, declare

LATER = replace(COPIED, variants=(replace(COPIED.variants[0], fingerprint="copy again"),))
LAST = replace(COPIED, variants=(replace(COPIED.variants[0], fingerprint="copy at last"),))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """A project whose source has the rows 1 to 6 at the points 1 to 6, and two versions of `copied`."""
    (tmp_path / "warehouse").mkdir()
    process = Process.started(f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse", Clock())
    process.catalog.create()
    declare(process.catalog)
    for row in range(1, 7):
        process.ingest(row)
    with process.catalog.writing() as tx:
        assert registry.add_version(tx, LATER) == 1
    yield process
    process.end()


def read(process: Process, cursors: dict[int, int]) -> None:
    """Set the cursors of versions on the source."""
    with process.catalog.writing() as tx:
        for logic, point in cursors.items():
            registry.move_cursors(tx, "copied", logic, [("source", point)])


def unread(process: Process) -> dict[int, Counter[int]]:
    """The rows that each live version would read now."""
    with process.catalog.reading() as tx:
        known = load_planner_input(tx, ["copied"])
    found = {}
    for state in known.versions["copied"]:
        (source,) = port_inputs(choose(state, known.channels), known.channels)
        found[state.logic] = process.rows(source.reading)
    return found


def test_each_version_reads_from_its_own_cursor(process: Process) -> None:
    read(process, {0: 2, 1: 5})
    assert unread(process) == {0: Counter([3, 4, 5, 6]), 1: Counter([6])}
    read(process, {0: 3})
    assert unread(process) == {0: Counter([4, 5, 6]), 1: Counter([6])}


@pytest.mark.parametrize("cursors", [{0: 2, 1: 5}, {0: 5, 1: 2}, {0: 6, 1: 1}])
def test_what_the_slower_version_has_not_read_is_kept(process: Process, cursors: dict[int, int]) -> None:
    read(process, cursors)
    process.compact("source")
    before = unread(process)
    process.collect()
    assert unread(process) == before == {logic: Counter(range(point + 1, 7)) for logic, point in cursors.items()}


def test_what_only_a_retired_version_has_not_read_is_collected(process: Process) -> None:
    read(process, {0: 1, 1: 5})
    process.compact("source")
    with process.catalog.writing() as tx:
        registry.put_task(tx, LAST, "w")
        registry.move_cursors(tx, "copied", 2, [("source", 5)])
    gone = {verdict.block.end for verdict in process.collect().verdicts if verdict.goes}
    assert gone == {1, 2, 3, 4, 5}
    assert unread(process) == {2: Counter([6])}


@pytest.mark.parametrize("deferring", [False, True])
def test_a_deferred_version_keeps_the_input_that_a_migration_may_read(process: Process, deferring: bool) -> None:
    read(process, {0: 2, 1: 6})
    process.compact("source")
    if deferring:
        with process.catalog.writing() as tx:
            deferred.defer(tx, "w", tx.now, {"copied": 2}, b"")
    process.collect()
    with process.catalog.reading() as tx:
        source = channel_store.channel_state(tx, "source")
    if deferring:
        assert process.rows(source.snapshot(2)) == Counter([1, 2])
    else:
        with pytest.raises(NotFound):
            source.snapshot(2)


@pytest.mark.parametrize("collected", [False, True])
def test_output_is_recomputed_if_what_a_migration_reads_was_collected(process: Process, collected: bool) -> None:
    read(process, {0: 2, 1: 6})
    process.compact("source")
    if collected:
        process.collect()
    migration = replace(LAST.variants[0], ports=(Port("source", "source", Mode.ALL),), from_version=0, name="migrate")
    task = replace(LAST, migrations=(migration,))
    with process.catalog.reading() as tx:
        written = registry.live_versions(tx, ["copied"])["copied"][-1]
        channels = channel_store.channel_states(tx)
    previous = TaskState(task=written.task, logic=0, started=True, cursors=written.cursors)
    state = TaskState(task=task, logic=2, started=False, cursors={}, previous=previous)
    plan = plan_migration(task, [written], channels, {}, (), None, frozenset(), {})
    assert plan is not None
    assert ("what a migration would read is gone: source" in plan.text) == collected
    assert (choose(state, channels).method is RefreshMethod.MIGRATION) != collected


def test_a_run_executes_the_newest_version_that_is_due(process: Process) -> None:
    def due() -> list[tuple[str, int]]:
        with process.catalog.reading() as tx:
            return [(state.task.name, state.logic) for state in due_tasks(load_planner_input(tx, ["copied"]))]

    assert due() == [("copied", 1)]
    read(process, {0: 2, 1: 5})
    assert due() == [("copied", 1)]
    read(process, {1: 6})
    assert due() == [("copied", 0)]
    read(process, {0: 6})
    assert due() == []
