"""The catalog and a small model of it, driven side by side on both databases.

The model knows what was published when, and nothing of tables. After every step the catalog of either database
must show what the model says, and what must always hold (design, section 5).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Table

from kilonova.catalog import channel_registry, channel_store, gc_roots, pins, registry, runs, tables
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.read_models import run_queries
from kilonova.errors import Conflict, InvalidState, LeaseLost, NotFound
from kilonova.model.block import Base, Delta, Kind
from kilonova.model.channel import PointState
from kilonova.model.run import CommitResult, Committed, LeaseExpired, RunInput, RunKind, RunState
from kilonova.model.task import Mode
from kilonova.schedule.garbage import Provenance, decide_collection
from tests.catalog.building import LEASE, a_block, a_channel, a_task, an_output
from tests.databases import DIALECTS, Clock, contents, emptied, empty_database, rows

CHANNELS = ("clicks", "users", "joined", "counts")
HOW = settings(stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
READS = {"joined": {"clicks": Mode.NEW, "users": Mode.ALL}, "counts": {"joined": Mode.CHANGES}}


@dataclass
class ModelRun:
    """What the model knows of a run."""

    tasks: tuple[str, ...]
    points: dict[str, int]
    until: float
    state: RunState = RunState.RUNNING
    named: list[tuple[str, int]] = field(default_factory=list)
    pins: set[int] = field(default_factory=set)
    read: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    compacts: tuple[str, int] | None = None


@dataclass
class Model:
    """What should be."""

    now: float = 0.0
    runs: dict[int, ModelRun] = field(default_factory=dict)
    points: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in CHANNELS})
    blocks: dict[int, str] = field(default_factory=dict)
    contents: dict[str, dict[int, frozenset[int]]] = field(default_factory=lambda: {name: {} for name in CHANNELS})
    cursors: dict[tuple[str, str], int] = field(default_factory=dict)
    readers: dict[str, tuple[set[int], float]] = field(default_factory=dict)

    def readable(self, channel: str) -> int:
        states = self.points[channel]
        return states.index("reserved") if "reserved" in states else len(states)

    def end(self, number: int, state: RunState) -> None:
        run = self.runs[number]
        run.state = state
        for channel, point in run.points.items():
            if self.points[channel][point - 1] == "reserved":
                self.points[channel][point - 1] = "cancelled"
        for _, block in run.named:
            if self.blocks[block] == "writing":
                self.blocks[block] = "doomed"

    def expire(self) -> list[int]:
        silent = [n for n, run in self.runs.items() if run.state is RunState.RUNNING and run.until < self.now]
        for number in silent:
            self.end(number, RunState.ABANDONED)
        self.readers = {name: held for name, held in self.readers.items() if held[1] >= self.now}
        return silent

    def pinned(self) -> set[int]:
        held = [blocks for blocks, until in self.readers.values() if until >= self.now]
        mine = [run.pins for run in self.runs.values() if run.state is RunState.RUNNING and run.until >= self.now]
        return set().union(*held, *mine)


class CatalogMachine(RuleBasedStateMachine):
    """Several owners start runs, name blocks, commit, fail, fall silent, read and collect."""

    catalogs: tuple[Catalog, ...]
    going = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.clock = Clock()
        self.began = self.clock.now
        self.readers = 0
        for catalog in self.catalogs:
            catalog.clock = self.clock
            emptied(catalog)
            with catalog.writing() as tx:
                for name in CHANNELS:
                    channel_registry.add_channels(tx, [a_channel(name)], "w")
                for name, ports in READS.items():
                    registry.put_task(tx, a_task(name, ports, (name,)), "w")

    def both(self, change: Callable[[Transaction], object]) -> object:
        """Do the same to every catalog; what comes of it must be the same."""
        found: list[object] = []
        for catalog in self.catalogs:
            try:
                with catalog.writing() as tx:
                    found.append(change(tx))
            except (Conflict, LeaseLost, InvalidState, NotFound) as error:
                found.append((type(error), str(error)))
        assert all(item == found[0] for item in found)
        return found[0]

    # Runs

    @rule(target=going, channels=st.sets(st.sampled_from(("clicks", "users")), min_size=1))
    def ingest_starts(self, channels: set[str]) -> object:
        return self._start(RunKind.INGEST, (), tuple(sorted(channels)))

    @rule(target=going, tasks=st.sets(st.sampled_from(tuple(READS)), min_size=1))
    def tasks_start(self, tasks: set[str]) -> object:
        return self._start(RunKind.TASKS, tuple(sorted(tasks, reverse=True)), tuple(sorted(tasks, reverse=True)))

    def _start(self, kind: RunKind, tasks: tuple[str, ...], writes: tuple[str, ...]) -> object:
        def start(tx: Transaction) -> object:
            number, points = runs.start(tx, kind=kind, tasks=tasks, writes=writes, owner="me", lease=LEASE)
            known = registry.tasks(tx)
            read, blocks = {}, set()
            for task in tasks:
                for channel, mode in READS[task].items():
                    channel_state = channel_store.channel_state(tx, channel)
                    begin = known[task].cursor(channel) if mode.advances else 0
                    read[task, channel] = (begin, channel_state.latest_readable)
                    blocks |= {
                        block.number for block in channel_state.delta(begin, channel_state.latest_readable).blocks
                    }
            pins.pin(tx, pins.holder_of(number), blocks, LEASE)
            return number, points, read, frozenset(blocks)

        taken = {t for run in self.model.runs.values() if run.state is RunState.RUNNING for t in run.tasks}
        outcome = self.both(start)
        assert isinstance(outcome, tuple)
        if taken & set(tasks):
            assert outcome[0] is Conflict
            return multiple()
        number, points, read, blocks = outcome
        for channel in writes:
            self.model.points[channel].append("reserved")
            assert points[channel] == len(self.model.points[channel])
        for (task, channel), (begin, end) in read.items():
            assert begin == self.model.cursors.get((task, channel), 0) if READS[task][channel].advances else begin == 0
            assert end == self.model.readable(channel)
        self.model.runs[number] = ModelRun(tasks, points, self.model.now + 10, pins=set(blocks), read=read)
        return number

    @rule(target=going, channel=st.sampled_from(CHANNELS))
    def compaction_starts(self, channel: str) -> object:
        def start(tx: Transaction) -> object:
            channel_state = channel_store.channel_state(tx, channel)
            snapshot = channel_state.snapshot(channel_state.latest_readable)
            if not snapshot.deltas:
                return None
            number, _ = runs.start(tx, kind=RunKind.COMPACTION, tasks=(), writes=(), owner="me", lease=LEASE)
            blocks = [block.number for block in snapshot.blocks]
            pins.pin(tx, pins.holder_of(number), blocks, LEASE)
            return number, channel_state.latest_distinct, frozenset(blocks)

        outcome = self.both(start)
        if outcome is None:
            return multiple()
        assert isinstance(outcome, tuple)
        number, point, blocks = outcome
        self.model.runs[number] = ModelRun((), {}, self.model.now + 10, pins=set(blocks), compacts=(channel, point))
        return number

    @rule(number=going)
    def block_is_named(self, number: int) -> None:
        run = self.model.runs[number]
        channels = [*run.points, *([run.compacts[0]] if run.compacts else [])]
        for channel in channels:
            outcome = self.both(lambda tx, channel=channel: channel_store.new_block(tx, channel, number).number)
            if run.state is RunState.RUNNING:
                assert isinstance(outcome, int)
                run.named.append((channel, outcome))
                self.model.blocks[outcome] = "writing"
            else:
                assert isinstance(outcome, tuple)
                assert outcome[0] is LeaseLost

    @rule(number=going, whole=st.booleans())
    def run_commits(self, number: int, whole: bool) -> None:
        run = self.model.runs[number]
        latest = dict(run.named)
        kind: Kind

        outputs, published = [], {}
        for channel, point in run.points.items():
            kind = Base(point) if whole else Delta(point - 1, point)
            block = latest.get(channel)
            outputs.append(an_output(channel, point, None if block is None else a_block(block, kind)))
            if block is not None:
                published[channel] = (point, block)
        if run.compacts and run.compacts[0] in latest:
            channel, point = run.compacts
            outputs.append(an_output(channel, point, a_block(latest[channel], Base(point)), "compaction"))
        inputs = tuple(
            RunInput(task=task, port=channel, channel=channel, start=begin, end=end, blocks=())
            for (task, channel), (begin, end) in run.read.items()
        )
        advances = tuple(
            runs.Advance(task=task, logic=0, points=tuple((c, e) for (t, c), (_, e) in run.read.items() if t == task))
            for task in run.tasks
        )

        def commit(tx: Transaction) -> CommitResult:
            return runs.commit(tx, number, inputs=inputs, outputs=outputs, advances=advances)

        outcome = self.both(commit)
        if run.state is not RunState.RUNNING:
            assert outcome == LeaseExpired()
            return
        assert outcome == Committed()
        for channel, (point, block) in published.items():
            self.model.points[channel][point - 1] = "filled"
            self.model.blocks[block] = "live"
            self.model.contents[channel][point] = frozenset({block}) if whole else frozenset({-block})
        if run.compacts and run.compacts[0] in latest:
            self.model.blocks[latest[run.compacts[0]]] = "live"
        for (task, channel), (_, end) in run.read.items():
            self.model.cursors[task, channel] = end
        self.model.end(number, RunState.SUCCEEDED)

    @rule(number=going)
    def run_fails(self, number: int) -> None:
        running = self.model.runs[number].state is RunState.RUNNING
        assert self.both(lambda tx: runs.fail(tx, number, "no luck")) is running
        if running:
            self.model.end(number, RunState.FAILED)

    @rule(number=going)
    def run_is_cancelled(self, number: int) -> None:
        running = self.model.runs[number].state is RunState.RUNNING
        outcome = self.both(lambda tx: runs.cancel(tx, number, "ann"))
        assert (outcome is None) is running
        if running:
            self.model.end(number, RunState.CANCELLED)

    @rule(number=going)
    def heart_beats(self, number: int) -> None:
        run = self.model.runs[number]
        assert self.both(lambda tx: runs.renew_lease(tx, number, LEASE)) is (run.state is RunState.RUNNING)
        if run.state is RunState.RUNNING:
            run.until = self.model.now + 10

    @rule(seconds=st.sampled_from((1.0, 6.0, 20.0)))
    def time_passes(self, seconds: float) -> None:
        self.clock.forward(seconds)
        self.model.now += seconds

    @rule()
    def somebody_looks_for_silent_runs(self) -> None:
        found = self.both(lambda tx: [run.number for run in runs.expire(tx)])
        assert found == self.model.expire()

    # Readers and garbage

    @rule(channel=st.sampled_from(CHANNELS))
    def reader_comes(self, channel: str) -> None:
        self.readers += 1
        name = f"reader {self.readers}"

        def pin(tx: Transaction) -> frozenset[int]:
            channel_state = channel_store.channel_state(tx, channel)
            blocks = frozenset(block.number for block in channel_state.snapshot(channel_state.latest_readable).blocks)
            pins.pin(tx, name, blocks, LEASE)
            return blocks

        pinned = self.both(pin)
        assert isinstance(pinned, frozenset)
        self.model.readers[name] = (set(pinned), self.model.now + 10)

    @rule(data=st.data())
    def reader_goes(self, data: st.DataObject) -> None:
        if self.model.readers:
            name = data.draw(st.sampled_from(sorted(self.model.readers)))
            self.both(lambda tx: pins.unpin(tx, name))
            del self.model.readers[name]

    @rule(provenance=st.sampled_from(Provenance))
    def garbage_is_collected(self, provenance: Provenance) -> None:
        def doom(tx: Transaction) -> frozenset[int]:
            runs.expire(tx)
            verdicts = decide_collection(gc_roots.gc_roots(tx, provenance), None, provenance)
            gone = [verdict for verdict in verdicts if verdict.goes]
            for verdict in gone:
                channel_store.remove_blocks(tx, verdict.channel, [verdict.block.number])
            return frozenset(verdict.block.number for verdict in gone)

        self.model.expire()
        pinned = self.model.pinned()
        gone = self.both(doom)
        assert isinstance(gone, frozenset)
        assert not gone & pinned
        assert all(self.model.blocks[block] == "live" for block in gone)
        self.model.blocks |= dict.fromkeys(gone, "doomed")

    @rule()
    def files_are_deleted(self) -> None:
        def bury(tx: Transaction) -> frozenset[int]:
            doomed = channel_store.marked_for_deletion(tx)
            numbers = frozenset(name.number for name in doomed)
            channel_store.mark_deleted(tx, numbers)
            return numbers

        buried = self.both(bury)
        assert buried == {block for block, state in self.model.blocks.items() if state == "doomed"}
        self.model.blocks |= dict.fromkeys(buried, "gone")

    # What must hold

    @invariant()
    def the_catalogs_say_what_the_model_says(self) -> None:
        for catalog in self.catalogs:
            with catalog.reading() as tx:
                assert {
                    name.number: state for name, state in channel_store.block_states(tx).items()
                } == self.model.blocks
                found = {run.number: run.state for run in run_queries.runs(tx)}
                assert found == {number: run.state for number, run in self.model.runs.items()}
                claims = {(row[0], row[1]) for row in rows(tx, "claim")}
                assert claims == {
                    (registry.task_id(tx, task), number)
                    for number, run in self.model.runs.items()
                    if run.state is RunState.RUNNING
                    for task in run.tasks
                }
                known = registry.tasks(tx)
                for task, ports in READS.items():
                    for channel in ports:
                        assert known[task].cursor(channel) == self.model.cursors.get((task, channel), 0)
                for name, channel_state in channel_store.channel_states(tx).items():
                    states = self.model.points[name]
                    assert channel_state.latest == len(states)
                    found = {point.number: point.state.value for point in channel_state.points}
                    assert all(states[number - 1] == state for number, state in found.items())
                    left_out = {number for number in range(1, len(states) + 1) if number not in found}
                    assert all(n < channel_state.first_retained or states[n - 1] == "cancelled" for n in left_out)
                    cursors = [at for (_, channel), at in self.model.cursors.items() if channel == name]
                    assert all(
                        channel_state.is_equivalent(channel_state.first_retained, at)
                        or channel_state.first_retained < at
                        for at in cursors
                    )
                    assert channel_state.latest_readable == self.model.readable(name)
                    assert all((p.time is None) is (p.state is PointState.RESERVED) for p in channel_state.points)

    @invariant()
    def readers_see_exactly_what_was_committed(self) -> None:
        """The blocks of a snapshot stand for the points filled since the last base, and for no others."""
        for catalog in self.catalogs:
            with catalog.reading() as tx:
                found = channel_store.channel_states(tx)
                known = registry.tasks(tx)
            for name, channel_state in found.items():
                self._covers(
                    channel_state.snapshot(channel_state.latest_readable).blocks, name, 0, channel_state.latest_readable
                )
                for task in READS:
                    if READS[task].get(name, Mode.ALL).advances and known[task].started:
                        cursor = known[task].cursor(name)
                        reading = channel_state.delta(cursor, channel_state.latest_readable)
                        states = self.model.points[name][cursor : channel_state.latest_readable]
                        assert bool(reading.blocks) or "filled" not in states

    def _covers(self, blocks: tuple[object, ...], channel: str, start: int, end: int) -> None:
        covered = start
        for block in blocks:
            kind = block.kind  # type: ignore[attr-defined]
            if isinstance(kind, Base):
                covered = kind.at
                continue
            between = self.model.points[channel][covered : kind.start]
            assert "filled" not in between, "a block was left out"
            assert covered <= kind.end
            covered = kind.end
        assert "filled" not in self.model.points[channel][covered:end], "a block was left out"

    def teardown(self) -> None:
        if len(self.catalogs) > 1:
            first, second = (contents(catalog) for catalog in self.catalogs)
            first.pop("identity"), second.pop("identity")
            for found in (first, second):
                for table, column in (("block", "suffix"), ("channel", "stamp"), ("placement", "stamp")):
                    found[table] = [without(row, tables.metadata.tables[table], column) for row in found[table]]
            assert first == second


def without(row: tuple[object, ...], table: Table, column: str) -> tuple[object, ...]:
    """A row of a table without one of its columns, which is random."""
    return tuple(value for each, value in zip(table.columns, row, strict=True) if each.name != column)


@pytest.mark.parametrize("examples", [8, pytest.param(80, marks=pytest.mark.slow)])
def test_the_catalog_behaves_like_its_model_on_both_databases(examples: int) -> None:
    with contextlib.ExitStack() as stack:
        catalogs = []
        for dialect in DIALECTS:
            catalog = Catalog(stack.enter_context(empty_database(dialect)))
            stack.callback(catalog.close)
            catalog.create()
            catalogs.append(catalog)
        machine = type("Machine", (CatalogMachine,), {"catalogs": tuple(catalogs)})
        run_state_machine_as_test(machine, settings=settings(HOW, max_examples=examples))
