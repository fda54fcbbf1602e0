from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from kilonova.catalog import bindings, channel_store, firings, registry, run_records, runs
from kilonova.catalog.database import Catalog
from kilonova.catalog.read_models import run_queries
from kilonova.errors import NotFound
from kilonova.model.binding import Binding
from kilonova.model.block import Base
from kilonova.model.run import Run, RunKind, RunState
from kilonova.model.task import Mode
from tests.catalog.building import (
    LEASE,
    a_block,
    a_task,
    an_output,
    begin,
    claim_batches,
    commit,
    ingested,
    with_channels,
)
from tests.databases import NOON, Clock
from tests.seeds import SEED


def compacted(catalog: Catalog, channel: str) -> int:
    with catalog.writing() as tx:
        run, _ = begin(tx, kind=RunKind.COMPACTION)
        block = a_block(channel_store.new_block(tx, channel, run), Base(1))
        runs.commit(tx, run, inputs=(), outputs=[an_output(channel, 1, block)], advances=())
    return run


def fired(catalog: Catalog, binding: str, *, fails: bool) -> int:
    """A run of a binding that somebody fires."""
    with catalog.writing() as tx:
        firings.fire_manually(tx, binding, "me")
        [batch], _ = claim_batches(tx, "server", 1)
        run, points = runs.start(
            tx,
            kind=RunKind.TASKS,
            tasks=bindings.tasks_of(tx, binding),
            writes=(f"{binding}_out",),
            owner="worker",
            lease=LEASE,
            binding=binding,
        )
        firings.launch(tx, [(batch.claims[0], run)])
        if fails:
            runs.fail(tx, run, "no luck")
    if not fails:
        commit(catalog, run, points)
    return run


@pytest.fixture
def busy(catalog: Catalog, clock: Clock) -> Catalog:
    """A catalog of runs of all kinds, one of which goes on."""
    with_channels(catalog, "clicks", "users", "a_out", "b_out", "by_hand")
    with catalog.writing() as tx:
        registry.put_task(tx, a_task("a_task", {"clicks": Mode.NEW}, ("a_out",)), "w")
        registry.put_task(tx, a_task("b_task", {"users": Mode.NEW}, ("b_out",)), "w")
        bindings.put(tx, "w", [Binding(name="a", tasks=("a_task",)), Binding(name="b", tasks=("b_task",))])
    steps: list[Callable[[], Any]] = [
        lambda: ingested(catalog, "clicks"),
        lambda: ingested(catalog, "users"),
        lambda: fired(catalog, "a", fails=False),
        lambda: fired(catalog, "a", fails=True),
        lambda: fired(catalog, "b", fails=False),
        lambda: compacted(catalog, "clicks"),
        lambda: compacted(catalog, "a_out"),
    ]
    for step in [*steps, *steps, steps[3], *steps[::-1]]:
        clock.forward(60)
        step()
    with catalog.writing() as tx:
        by_hand, _ = begin(tx, "a_out", tasks=("a_task",), kind=RunKind.TASKS)
        runs.fail(tx, by_hand, "no luck")
        cancelled, _ = begin(tx, "b_out", tasks=("b_task",), kind=RunKind.TASKS)
        runs.cancel(tx, cancelled, "ann")
        recovery, nothing = begin(tx, kind=RunKind.RECOVERY)
        silent, _ = begin(tx, "users")
    commit(catalog, recovery, nothing)
    clock.forward(LEASE.total_seconds() + 1)
    with catalog.writing() as tx:
        assert [run.number for run in runs.expire(tx)] == [silent]
        begin(tx, "b_out", "a_out", tasks=("a_task", "b_task"), kind=RunKind.TASKS)
    return catalog


def test_a_page_has_the_runs_that_the_filters_leave(busy: Catalog) -> None:
    with busy.reading() as tx:
        every = run_queries.runs(tx)
        wrote = {run.number: set(runs.written_by(tx, run.number)) for run in every}
        for made in run_records.outputs(tx, wrote):
            wrote[made.run].add(made.channel)
        numbers = [run.number for run in every]
        assert numbers == list(range(len(every), 0, -1))
        assert {run.state for run in every} == set(RunState)
        assert {run.kind for run in every} == set(RunKind)
        choices = product(
            (None, *RunState), (None, *RunKind), (None, "a"), (None, "a_task"), (None, "clicks", "a_out", "by_hand")
        )
        for state, kind, binding, task, channel in random.Random(SEED).sample(list(choices), 80):
            left = [
                run.number
                for run in every
                if state in (None, run.state)
                and kind in (None, run.kind)
                and binding in (None, run.binding)
                and (task is None or task in run.tasks)
                and (channel is None or channel in wrote[run.number])
            ]

            def page(**place: int | None) -> list[int]:
                asked = {"state": state, "kind": kind, "binding": binding, "task": task, "channel": channel}  # noqa: B023
                found = run_queries.runs(tx, **asked, **place)
                return [run.number for run in found]

            assert page() == left
            assert page(limit=2) == left[:2]
            assert page(limit=3, before=12) == [number for number in left if number < 12][:3]
            assert page(limit=3, after=12) == [number for number in left if number > 12][-3:]


def test_a_task_is_found_though_it_wrote_another_channel_once(busy: Catalog) -> None:
    with busy.writing() as tx:
        before = [run.number for run in run_queries.runs(tx, task="a_task")]
        registry.put_task(tx, a_task("a_task", {"clicks": Mode.NEW}, ("by_hand",), text="SELECT 2"), "w")
        [going] = run_queries.runs(tx, state=RunState.RUNNING)
        runs.fail(tx, going.number, "stopped")
        run, _ = begin(tx, "by_hand", tasks=("a_task",), kind=RunKind.TASKS)
        assert [each.number for each in run_queries.runs(tx, task="a_task")] == [run, *before]
        assert [each.number for each in run_queries.runs(tx, 2, task="a_task")] == [run, before[0]]
        assert [each.number for each in run_queries.runs(tx, 2, after=before[1], task="a_task")] == [run, before[0]]


def test_filters_by_what_is_not_there_are_refused(busy: Catalog) -> None:
    with busy.reading() as tx:
        for unknown in ("binding", "task", "channel"):
            with pytest.raises(NotFound):
                run_queries.runs(tx, **{unknown: "nothing"})


def test_runs_beside_one_another_are_found(busy: Catalog) -> None:
    with busy.reading() as tx:
        newest = run_queries.runs(tx, 1)[0].number
        assert run_queries.beside(tx, 1) == (None, 2)
        assert run_queries.beside(tx, 5) == (4, 6)
        assert run_queries.beside(tx, newest) == (newest - 1, None)


def test_runs_that_went_on_at_a_time_are_found(catalog: Catalog, clock: Clock) -> None:
    """Each run goes on for some minutes from some minute on; one goes on yet."""
    with_channels(catalog, *"abcdef")
    spans = {"a": (0, 5), "b": (2, 3), "c": (4, 30), "d": (6, None), "e": (20, 25), "f": (26, 28)}
    started: dict[str, tuple[int, dict[str, int]]] = {}
    for minute in range(40):
        clock.now = NOON + timedelta(minutes=minute)
        for name, (first, last) in spans.items():
            if minute == first:
                with catalog.writing() as tx:
                    started[name] = begin(tx, name)
            if minute == last:
                commit(catalog, *started[name])
    names = {run: name for name, (run, _) in started.items()}

    def going(first: int, last: int, limit: int = 500) -> str:
        with catalog.reading() as tx:
            found = run_queries.runs_between(tx, NOON + timedelta(minutes=first), NOON + timedelta(minutes=last), limit)
        return "".join(names[run.number] for run in found)

    for first, last in product(range(0, 40, 3), repeat=2):
        expected = [
            name
            for name, (begun, ended) in spans.items()
            if first <= last and begun <= last and (ended is None or ended >= first)
        ]
        if first <= last:
            assert going(first, last) == "".join(expected)
    assert going(0, 40, 2) == "ef"
    assert going(3 * 24 * 60, 3 * 24 * 60 + 1) == "d"


def test_a_run_says_which_binding_it_runs(busy: Catalog) -> None:
    with busy.reading() as tx:
        found: dict[str | None, Run] = {run.binding: run for run in run_queries.runs(tx)}
    assert set(found) == {None, "a", "b"}
    assert found["b"].tasks == ("b_task",)
