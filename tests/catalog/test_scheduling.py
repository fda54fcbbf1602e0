"""Observations and decisions in the catalog, beside a world of plain Python, on both databases."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from kilonova.catalog import bindings, events, firings, registry, runs, scheduling, tables
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.firings import Claim
from kilonova.model.binding import Binding
from kilonova.model.run import RunKind
from kilonova.model.task import Mode
from kilonova.model.trigger import RunOutcome
from kilonova.schedule.queueing import ObservedBinding
from kilonova.schedule.scheduler import TriggerScheduler
from tests.catalog.building import LEASE, a_task, an_output, ingested, with_channels
from tests.databases import DIALECTS, Clock, emptied, empty_database
from tests.schedule.trigger_histories import START, triggers
from tests.schedule.world import World

NAMES = "wxyz"
names = st.sampled_from(NAMES)
windows = st.none() | st.integers(0, 30).map(float)


class SchedulingMachine(RuleBasedStateMachine):
    """Whatever happens, the catalog's observation leads to the decision that the world's does, and stores the same."""

    catalogs: tuple[Catalog, ...] = ()
    clock: Clock

    @initialize(
        triggers=st.lists(st.tuples(names, triggers), min_size=1, max_size=6),
        properties=st.lists(
            st.tuples(st.sampled_from("uv"), st.integers(0, 2), windows, st.sampled_from("ab")), min_size=4, max_size=4
        ),
    )
    def register(self, triggers: list[tuple[str, Any]], properties: list[tuple[str, int, float | None, str]]) -> None:
        self.clock.now = START
        self.claims: dict[str, Claim] = {}
        self.people = itertools.count(1)
        self.seen = [0 for _ in self.catalogs]
        own = dict(zip(NAMES, properties, strict=True))
        for catalog in self.catalogs:
            emptied(catalog)
            with_channels(catalog, "a", "b", *(f"{name}_out" for name in NAMES))
            with catalog.writing() as tx:
                for name, (workflow, _, _, channel) in own.items():
                    task = a_task(f"{name}_task", {channel: Mode.NEW, f"{name}_out": Mode.ALL}, (f"{name}_out",))
                    registry.put_task(tx, task, workflow)
                for workflow in "uv":
                    members = [
                        Binding(
                            name=name,
                            tasks=(f"{name}_task",),
                            triggers=tuple(dict.fromkeys(trigger for of, trigger in triggers if of == name)),
                            priority=priority,
                            merge_window=window,
                        )
                        for name, (where, priority, window, _) in own.items()
                        if where == workflow
                    ]
                    bindings.put(tx, workflow, members)
        with self.catalogs[0].reading() as tx:
            observed = [scheduling.observed_trigger(row) for row in tx.connection.execute(scheduling.triggers())]
        self.world = World(
            {
                name: ObservedBinding(
                    name=name,
                    workflow=workflow,
                    priority=priority,
                    merge_window=window,
                    reads=frozenset({(channel, 0)}),
                )
                for name, (workflow, priority, window, channel) in own.items()
            },
            {each.number: each for each in sorted(observed, key=lambda each: each.number)},
        )

    def _on_all(self, act: Callable[[Transaction], Any]) -> Any:
        """What is the same on all catalogs."""
        found = []
        for catalog in self.catalogs:
            with catalog.writing() as tx:
                found.append(act(tx))
        assert all(each == found[0] for each in found)
        return found[0]

    @rule(channel=st.sampled_from("ab"))
    def arrive(self, channel: str) -> None:
        self.clock.forward(1)
        for catalog in self.catalogs:
            ingested(catalog, channel)
        self.world.points.setdefault(channel, []).append(self.clock.now)

    @rule(seconds=st.integers(1, 20))
    def wait(self, seconds: int) -> None:
        self.clock.forward(seconds)

    @rule(binding=names)
    def fire(self, binding: str) -> None:
        who = f"person {next(self.people)}"
        self._on_all(lambda tx: firings.fire_manually(tx, binding, who))
        self.world.fire_manually(binding, who, self.clock.now)

    @rule(binding=names, paused=st.booleans())
    def pause(self, binding: str, paused: bool) -> None:
        self._on_all(lambda tx: bindings.pause(tx, binding, paused, "ann"))
        self.world.pause(binding, paused, self.clock.now)

    @rule(free_workers=st.integers(0, 3), limit=st.none() | st.integers(1, 2))
    def decide(self, free_workers: int, limit: int | None) -> None:
        """Evaluate only the triggers that are due or that events concern: none other would fire."""
        self.clock.forward(1)
        expected = TriggerScheduler().decide(self.world.observation(self.clock.now, free_workers, limit))
        stored: list[list[tuple[Claim, ...]]] = []
        for number, catalog in enumerate(self.catalogs):
            with catalog.writing() as tx:
                happened = events.since(tx, self.seen[number])
                self.seen[number] = events.newest(tx)
                interests = scheduling.trigger_interests(tx)
                numbers = set(scheduling.triggers_due(tx)).union(*(interests.concerned(each) for each in happened))
                observation = scheduling.observe(tx, numbers, free_workers=free_workers, workflow_limit=limit)
                decision = TriggerScheduler().decide(observation)
                assert decision == expected
                stored.append([each.claims for each in scheduling.store(tx, decision, "one")])
        wanted = self.world.store(expected)
        for found in stored:
            assert [[(claim.binding, claim.firings) for claim in batch] for batch in found] == wanted
        for batch in stored[0]:
            self.claims |= {claim.binding: claim for claim in batch}

    @precondition(lambda self: self.claims)
    @rule(which=st.integers(0, 9), seconds=st.none() | st.sampled_from([0.0, 0.1, 0.3, 9.0]))
    def run(self, which: int, seconds: float | None) -> None:
        """A binding runs, and its tasks take so many seconds; None if they fail."""
        binding = sorted(self.claims)[which % len(self.claims)]
        claimed, output = self.claims.pop(binding), f"{binding}_out"
        start = runs.NewRun(
            kind=RunKind.TASKS, tasks=(f"{binding}_task",), writes=(output,), binding=binding, claim=claimed
        )

        def launch(tx: Transaction) -> tuple[int, int]:
            [(number, _)] = runs.start_all(tx, [start], owner="me", lease=LEASE)
            return number, events.newest(tx)

        def end(tx: Transaction) -> int:
            if seconds is None:
                runs.fail(tx, number, "no luck")
            else:
                written = [
                    replace(an_output(output, number, None), seconds=seconds / 2),
                    replace(an_output(output, number + 1, None), seconds=seconds / 2),
                ]
                runs.commit(tx, number, inputs=(), outputs=written, advances=())
            return events.newest(tx)

        number, event = self._on_all(launch)
        self.world.events.append((event, binding, RunOutcome.LAUNCHED, self.clock.now))
        outcome = RunOutcome.FAILED if seconds is None else RunOutcome.SUCCEEDED
        self.world.end(binding, outcome, self._on_all(end), self.clock.now)
        self.world.bindings[binding] = replace(self.world.bindings[binding], seconds=seconds)

    @precondition(lambda self: self.claims)
    @rule(which=st.integers(0, 9), end=st.sampled_from(["skip", "fail", "requeue"]))
    def end(self, which: int, end: str) -> None:
        binding = sorted(self.claims)[which % len(self.claims)]
        claimed = self.claims.pop(binding)
        match end:
            case "requeue":
                self._on_all(lambda tx: firings.requeue(tx, claimed, counted=True))
                self.world.requeue(binding, firings.ATTEMPTS)
            case "skip":
                event = self._on_all(lambda tx: (firings.skip(tx, claimed, "nothing to do"), events.newest(tx))[1])
                self.world.end(binding, RunOutcome.SUCCEEDED, event, self.clock.now)
            case _:
                event = self._on_all(lambda tx: (firings.fail(tx, claimed, "no luck"), events.newest(tx))[1])
                self.world.end(binding, RunOutcome.FAILED, event, self.clock.now)

    def teardown(self) -> None:
        for catalog in self.catalogs:
            with catalog.reading() as tx:
                rows = tx.connection.execute(scheduling.triggers().order_by(tables.trigger.c.id)).all()
                kept = {row.id: scheduling.observed_trigger(row) for row in rows}
                found = [(each.number, each.binding, each.occurrence) for each in firings.firings(tx, 1000)]
            assert kept == self.world.triggers
            assert found[::-1] == [(each.number, each.binding, each.occurrence.name) for each in self.world.stored]


@pytest.mark.parametrize("examples", [15, pytest.param(150, marks=pytest.mark.slow)])
def test_what_is_observed_and_stored_is_what_the_model_has_on_both_databases(examples: int) -> None:
    with contextlib.ExitStack() as stack:
        clock, catalogs = Clock(), []
        for dialect in DIALECTS:
            catalog = Catalog(stack.enter_context(empty_database(dialect)), clock)
            stack.callback(catalog.close)
            catalog.create()
            catalogs.append(catalog)
        machine = type("Machine", (SchedulingMachine,), {"catalogs": tuple(catalogs), "clock": clock})
        how = settings(
            max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        )
        run_state_machine_as_test(machine, settings=how)
