"""The order in which bindings run, and that the failure of one holds back no other."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.engine.run_order import AT_ONCE, run_in_order, run_order
from kilonova.errors import Conflict, TaskFailed
from kilonova.model.task import Mode, Task
from tests.catalog.building import a_task


def task(name: str, reads: str, writes: str) -> Task:
    return a_task(name, dict.fromkeys(reads, Mode.NEW), tuple(writes))


def test_bindings_that_read_of_each_other_go_in_the_order_of_their_first_tasks() -> None:
    tasks = [task("a1", "s", "p"), task("b1", "p", "q"), task("a2", "q", "r"), task("c1", "r", "t")]
    found = run_order(tasks, {"a1": "a", "b1": "b", "a2": "a", "c1": "c"})
    assert found.waits_for == {"a": frozenset(), "b": {"a"}, "c": {"a"}}
    assert found.circular
    assert not run_order(tasks, {each.name: each.name for each in tasks}).circular


def test_a_binding_waits_for_all_that_its_tasks_read() -> None:
    tasks = [task("a1", "s", "p"), task("b1", "s", "q"), task("a2", "q", "r")]
    found = run_order(tasks, {"a1": "a", "b1": "b", "a2": "a"})
    assert found.waits_for == {"a": {"b"}, "b": frozenset()}
    assert not found.circular


@st.composite
def orders(draw: st.DrawFn) -> dict[str, frozenset[str]]:
    names = [f"b{place}" for place in range(draw(st.integers(0, 12)))]
    return {
        name: frozenset(draw(st.sets(st.sampled_from(names[:place])))) if place else frozenset()
        for place, name in enumerate(names)
    }


@given(orders(), st.data())
def test_each_runs_once_after_those_it_waits_for_whatever_fails(
    waits_for: dict[str, frozenset[str]], data: st.DataObject
) -> None:
    failing = data.draw(st.sets(st.sampled_from(sorted(waits_for)))) if waits_for else set()
    ended: list[str] = []
    going: set[str] = set()

    def run(name: str) -> str:
        assert waits_for[name] <= set(ended)
        going.add(name)
        assert len(going) <= AT_ONCE
        going.discard(name)
        ended.append(name)
        if name in failing:
            raise TaskFailed("no luck")
        return name

    done, failed = run_in_order(waits_for, {name: name for name in waits_for}, run, lambda: None)
    assert sorted(ended) == sorted(waits_for)
    assert failed.keys() == failing
    assert set(done) == waits_for.keys() - failing


def test_what_is_busy_is_tried_again_after_the_others_and_before_what_waits_for_it() -> None:
    tries: list[str] = []

    def run(name: str) -> str:
        tries.append(name)
        if tries.count("busy") == 1 and name == "busy":
            raise Conflict("another run has one of the tasks")
        if name == "taken":
            raise Conflict("another run has one of the tasks")
        return name

    nothing = frozenset[str]()
    order = {
        "busy": nothing, "taken": nothing, "after_busy": frozenset({"busy"}), "after_taken": frozenset({"taken"}),
        "free": nothing, "after_free": frozenset({"free"}),
    }  # fmt: skip
    done, failed = run_in_order(order, {name: name for name in order}, run, lambda: None)
    assert sorted(done) == ["after_busy", "after_free", "after_taken", "busy", "free"]
    assert list(failed) == ["taken"]
    assert [tries.count(name) for name in order] == [2, 2, 1, 1, 1, 1]
    again = len(tries) - 1 - tries[::-1].index("busy")
    assert tries.index("after_free") < again < tries.index("after_busy")


def test_an_interruption_ends_the_current_runs() -> None:
    ended = threading.Event()

    def run(name: str) -> None:
        if name == "first":
            raise KeyboardInterrupt
        assert ended.wait(30)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_in_order(
            {"first": frozenset(), "second": frozenset()}, {"first": "first", "second": "second"}, run, ended.set
        )
    assert time.monotonic() - began < 30
