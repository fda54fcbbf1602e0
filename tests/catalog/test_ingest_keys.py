"""Idempotency keys: whatever becomes of the runs that carry an ingest out, one of them publishes it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from kilonova.catalog import channel_registry, channel_store, ingest_keys, runs
from kilonova.catalog.database import Catalog, Transaction
from kilonova.errors import Conflict, KeyReused
from kilonova.model.block import Delta
from kilonova.model.idempotency import IdempotencyKey
from kilonova.model.run import Committed, RunState
from tests.catalog.building import LEASE, a_block, a_channel, an_output, begin
from tests.databases import DIALECTS, Clock, emptied, empty_database, rows

CHANNELS = ("clicks", "users")
Keyed = tuple[str, str]


def start(tx: Transaction, channel: str, key: IdempotencyKey) -> int:
    """Begin a run under a key, as an ingest does."""
    assert ingest_keys.finished(tx, channel, key) is None
    run, _ = begin(tx, channel)
    ingest_keys.claim(tx, run, channel, key)
    return run


def commit(tx: Transaction, channel: str, run: int) -> bool:
    """Publish a block for a run; whether it was still to be."""
    point = (
        tx.connection.execute(channel_store.tables.point.select().where(channel_store.tables.point.c.run_id == run))
        .one()
        .number
    )
    if not runs.is_running(tx, run):
        return isinstance(runs.commit(tx, run, inputs=(), outputs=(), advances=()), Committed)
    block = a_block(channel_store.new_block(tx, channel, run), Delta(point - 1, point))
    outputs = [an_output(channel, point, block)]
    return isinstance(runs.commit(tx, run, inputs=(), outputs=outputs, advances=()), Committed)


@dataclass
class Attempt:
    """A run that the model knows."""

    keyed: Keyed
    digest: str
    until: float
    state: RunState = RunState.RUNNING


@dataclass
class Model:
    """What should be: the runs, and which stands for a key of a channel."""

    now: float = 0.0
    runs: dict[int, Attempt] = field(default_factory=dict)
    holder: dict[Keyed, int] = field(default_factory=dict)
    used: dict[Keyed, float] = field(default_factory=dict)


class KeyMachine(RuleBasedStateMachine):
    """Ingests under a few keys, each a transaction at its start and one at its end, in any order."""

    catalogs: tuple[Catalog, ...]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.clocks = []
        for catalog in self.catalogs:
            emptied(catalog)
            self.clocks.append(Clock())
            catalog.clock = self.clocks[-1]
            with catalog.writing() as tx:
                channel_registry.add_channels(tx, [a_channel(name) for name in CHANNELS], "w")

    def _expire(self) -> None:
        for attempt in self.model.runs.values():
            if attempt.state is RunState.RUNNING and attempt.until < self.model.now:
                attempt.state = RunState.ABANDONED

    @rule(channel=st.sampled_from(CHANNELS), text=st.sampled_from("ab"), digest=st.sampled_from("xy"))
    def ask(self, channel: str, text: str, digest: str) -> None:
        keyed, key = (channel, text), IdempotencyKey(text, digest)
        self._expire()
        known = self.model.runs.get(self.model.holder.get(keyed, 0))
        started = set()
        for catalog in self.catalogs:
            with catalog.writing() as tx:
                runs.expire(tx)
            with catalog.writing() as tx:
                match known:
                    case Attempt(state=RunState.RUNNING | RunState.SUCCEEDED, digest=other) if other != digest:
                        with pytest.raises(KeyReused):
                            ingest_keys.finished(tx, channel, key)
                    case Attempt(state=RunState.RUNNING):
                        with pytest.raises(Conflict):
                            ingest_keys.finished(tx, channel, key)
                    case Attempt(state=RunState.SUCCEEDED):
                        assert ingest_keys.finished(tx, channel, key) == self.model.holder[keyed]
                    case _:
                        started.add(start(tx, channel, key))
        for run in started:  # the same number in both
            until = self.model.now + LEASE.total_seconds()
            self.model.runs[run] = Attempt(keyed, digest, until)
            self.model.holder[keyed], self.model.used[keyed] = run, self.model.now

    @rule(data=st.data(), how=st.sampled_from(("commit", "commit", "fail", "cancel")))
    def end(self, data: st.DataObject, how: str) -> None:
        """A process goes on, however long it was away."""
        if not self.model.runs:
            return
        run = data.draw(st.sampled_from(sorted(self.model.runs)))
        attempt = self.model.runs[run]
        goes_on = attempt.state is RunState.RUNNING
        for catalog in self.catalogs:
            with catalog.writing() as tx:
                if how == "commit":
                    assert commit(tx, attempt.keyed[0], run) == goes_on
                elif how == "fail":
                    assert runs.fail(tx, run, "it failed") == goes_on
                elif goes_on:
                    runs.cancel(tx, run, "ann")
        if goes_on:
            states = {"commit": RunState.SUCCEEDED, "fail": RunState.FAILED, "cancel": RunState.CANCELLED}
            attempt.state = states[how]

    @rule(seconds=st.sampled_from((1, 11)))
    def wait(self, seconds: int) -> None:
        self.model.now += seconds
        for clock in self.clocks:
            clock.forward(seconds)

    @rule(age=st.sampled_from((5, 20)))
    def forget(self, age: int) -> None:
        for catalog in self.catalogs:
            with catalog.writing() as tx:
                ingest_keys.forget(tx, tx.now - timedelta(seconds=age))
        for keyed, run in list(self.model.holder.items()):
            running = self.model.runs[run].state is RunState.RUNNING
            if self.model.used[keyed] < self.model.now - age and not running:
                del self.model.holder[keyed]

    def teardown(self) -> None:
        published = [run for run, attempt in self.model.runs.items() if attempt.state is RunState.SUCCEEDED]
        for catalog in self.catalogs:
            with catalog.reading() as tx:
                assert sorted({row[0] for row in rows(tx, "run_output")}) == sorted(published)
                assert len(rows(tx, "ingest_key")) == len(self.model.holder)


@pytest.mark.parametrize("examples", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_a_key_stands_for_one_ingest_on_both_databases(examples: int) -> None:
    with contextlib.ExitStack() as stack:
        catalogs = []
        for dialect in DIALECTS:
            catalog = Catalog(stack.enter_context(empty_database(dialect)))
            stack.callback(catalog.close)
            catalog.create()
            catalogs.append(catalog)
        machine = type("Machine", (KeyMachine,), {"catalogs": tuple(catalogs)})
        how = settings(
            max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        )
        run_state_machine_as_test(machine, settings=how)


def test_a_channel_that_is_dropped_takes_its_keys_with_it(catalog: Catalog) -> None:
    key = IdempotencyKey("monday", "x")
    with catalog.writing() as tx:
        channel_registry.add_channels(tx, [a_channel("clicks"), a_channel("users")], "w")
        for channel in CHANNELS:
            commit(tx, channel, start(tx, channel, key))
    with catalog.writing() as tx:
        channel_store.drop_channel(tx, "clicks")
        channel_registry.add_channels(tx, [a_channel("clicks")], "w")
        assert ingest_keys.finished(tx, "clicks", key) is None
        assert ingest_keys.finished(tx, "users", key) is not None
