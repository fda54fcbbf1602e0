"""A process that dies, or is overtaken, before and after every single step of what it does."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kilonova.catalog import runs
from kilonova.catalog.database import Catalog
from kilonova.catalog.read_models import run_queries
from kilonova.errors import Cancelled, Conflict, KilonovaError, LeaseLost
from kilonova.model.run import RunState
from tests.databases import DIALECTS, Clock, emptied, empty_database
from tests.engine.plain import LEASE, Fuse, Killed, Process, declare
from tests.seeds import SEED, some

STRIDE = int(os.environ.get("KILONOVA_STRIDE", "6"))
"""Every how many steps a process dies, from a first step that differs from run to run."""

Operation = Callable[[Process], object]


def ingest(*rows: int) -> Operation:
    def operation(process: Process) -> None:
        if not set(rows) & set(process.relation("source")):  # else it was committed before the crash
            process.ingest(*rows)

    return operation


def share(*rows: int) -> Operation:
    """Ingest rows, whose block another run shares."""

    def operation(process: Process) -> None:
        if not set(rows) & set(process.relation("source")):
            process.share(*rows)

    return operation


def run(process: Process) -> None:
    process.run()


def compact(channel: str) -> Operation:
    return lambda process: process.compact(channel)


def collect(process: Process) -> None:
    process.collect()


def gather(files: dict[str, str]) -> Operation:
    """Drop files into the directory of `source`, and take what is there."""

    def operation(process: Process) -> None:
        inbox = process.storage.root.parent / "inbox"
        for name, text in files.items():
            if not (inbox / name).exists():  # else it was dropped before the crash
                (inbox / name).write_text(text)
        process.gather(inbox.parent)

    return operation


def drop(channel: str) -> Operation:
    return lambda process: process.drop(channel)


SCENARIOS: dict[str, tuple[list[Operation], list[Operation], list[int]]] = {
    "ingest and run": ([ingest(1, 2)], [ingest(3, 4), run, ingest(5), run], [1, 2, 3, 4, 5]),
    "compact and collect": (
        [ingest(1, 2), run, ingest(3), ingest(4)],
        [compact("source"), collect, run, compact("copied"), collect],
        [1, 2, 3, 4],
    ),
    "first run after compaction": ([ingest(1), ingest(2), ingest(3)], [compact("source"), collect, run], [1, 2, 3]),
    "gather": (
        [gather({"a": "1 2"})],
        [gather({"b": "3", "bad": "x", "c": "4", "d": "5", "e": "6"}), run, gather({"f": "7"}), run],
        [1, 2, 3, 4, 5, 6, 7],
    ),
    "drop": ([ingest(1, 2), run], [drop("counted"), ingest(3), run, collect], [1, 2, 3]),
}


SHARING: dict[str, tuple[list[Operation], list[Operation], list[int]]] = {
    "share": ([ingest(1)], [share(2, 3), run, share(4), compact("source"), collect], [1, 2, 3, 4]),
}
"""Scenarios in which two runs go on at once, of which only one may be struck."""


class World:
    """A database and a folder that can be set back to a scenario's beginning."""

    def __init__(self, url: str, root: Path) -> None:
        self.url, self.root = url, root
        self._owner = Catalog(url)
        self._owner.create()

    def begin(self, before: list[Operation]) -> Clock:
        emptied(self._owner)
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        shutil.rmtree(self.root.parent / "inbox", ignore_errors=True)
        (self.root.parent / "inbox").mkdir()
        declare(self._owner)
        clock = Clock()
        process = Process.started(self.url, self.root, clock)
        for operation in before:
            operation(process)
        process.end()
        return clock

    def close(self) -> None:
        self._owner.close()


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow if name != "sqlite" else ()) for name in DIALECTS])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with empty_database(request.param) as url:
        made = World(url, tmp_path / "warehouse")
        yield made
        made.close()


def check_end(process: Process, expected: list[int]) -> None:
    process.check()
    process.collect()
    process.check()
    process.check_clean()
    assert process.relation("source") == process.relation("copied") == expected
    mirrored = process.relation("mirror")
    assert mirrored == sorted({*mirrored} & {*expected}), "a block was shared twice, or is not that of the source"


@pytest.mark.parametrize("scenario", some(SCENARIOS | SHARING, 3))
def test_a_crash_at_any_step_loses_nothing_and_leaves_nothing(world: World, scenario: str) -> None:
    before, operations, expected = (SCENARIOS | SHARING)[scenario]
    for moment in itertools.count(SEED % STRIDE, STRIDE):
        clock = world.begin(before)
        fuse = Fuse(moment)
        mortal = Process.started(world.url, world.root, clock, fuse)
        reached = 0
        try:
            for operation in operations:
                operation(mortal)
                reached += 1
        except Killed:
            pass
        finally:
            mortal.end()
        where = f"step {moment}, {fuse.steps[-1]}, operation {reached}"
        heir = Process.started(world.url, world.root, clock)
        try:
            heir.check()
            clock.forward(2 * LEASE.total_seconds())
            heir.check()
            for operation in operations[reached:]:
                operation(heir)
                heir.check()
            heir.run()
            check_end(heir, expected)
        except Exception as error:
            error.add_note(where)
            raise
        finally:
            heir.end()
        if not fuse.burnt:
            assert moment > 20
            return


@pytest.mark.slow
@pytest.mark.parametrize("expired", [False, True], ids=["beside it", "after its lease"])
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "drop"])
def test_another_process_may_do_everything_at_any_step(world: World, scenario: str, expired: bool) -> None:
    """It ingests, runs, compacts and collects between any two steps.

    Beside it, the first process must not notice. After its lease, the first goes on like one that was suspended,
    and either commits or finds that it was taken over.
    """
    before, operations, expected = SCENARIOS[scenario]
    for moment in itertools.count(SEED % STRIDE, STRIDE):
        clock = world.begin(before)

        def everything(clock: Clock = clock) -> None:
            if expired:
                clock.forward(2 * LEASE.total_seconds())
            other = Process.started(world.url, world.root, clock)
            try:
                other.check()
                other.ingest(100)
                for step in (
                    lambda: other.gather(world.root.parent),
                    other.run,
                    lambda: other.compact("source"),
                    other.collect,
                    lambda: other.compact("copied"),
                ):
                    try:
                        step()
                    except Conflict:
                        assert not expired
                    other.check()
                other.collect()
                other.check()
            finally:
                other.end()

        fuse = Fuse(moment, everything)
        slow = Process.started(world.url, world.root, clock, fuse)
        lost = 0
        try:
            for operation in operations:
                try:
                    operation(slow)
                except LeaseLost:
                    assert expired
                    lost += 1
                    slow.check()
                    operation(slow)
                slow.check()
            slow.run()
            if not fuse.burnt:
                assert moment > 20
                return
            clock.forward(2 * LEASE.total_seconds())
            check_end(slow, [*expected, 100])
            assert lost <= 1
        except (KilonovaError, AssertionError) as error:
            error.add_note(f"step {moment}: {fuse.steps[moment] if fuse.burnt else 'none'}")
            raise
        finally:
            slow.end()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "drop"])
def test_a_run_that_is_cancelled_at_any_step_is_published_as_a_whole_or_not_at_all(world: World, scenario: str) -> None:
    """Whatever is going on then is cancelled, and its files are swept by another process; it is done again later."""
    before, operations, expected = SCENARIOS[scenario]
    cancelled = 0
    for moment in itertools.count(SEED % STRIDE, STRIDE):
        clock = world.begin(before)
        struck: list[int] = []

        def cancel(clock: Clock = clock, struck: list[int] = struck) -> None:
            other = Process.started(world.url, world.root, clock)
            try:
                with other.catalog.writing() as tx:
                    struck += [run.number for run in run_queries.runs(tx, 100) if run.state is RunState.RUNNING]
                    for number in struck:
                        runs.cancel(tx, number, "ann")
                other.check()
                other.collect()
                other.check()
            finally:
                other.end()

        fuse = Fuse(moment, cancel)
        process = Process.started(world.url, world.root, clock, fuse)
        try:
            for operation in operations:
                lost: list[Cancelled] = []
                try:
                    operation(process)
                except Cancelled as error:
                    lost.append(error)
                assert [error.run for error in lost] == struck
                process.check()
                if struck:
                    assert "cancelled by ann" in str(lost[0])
                    process.check_clean()
                    operation(process)
                    cancelled += 1
                    struck.clear()
            process.run()
            check_end(process, expected)
        except (KilonovaError, AssertionError) as error:
            error.add_note(f"step {moment}: {fuse.steps[moment] if fuse.burnt else 'none'}")
            raise
        finally:
            process.end()
        if not fuse.burnt:
            assert moment > 20
            assert cancelled > 3
            return
