"""The overview says what the functions say that read a channel's or a task's whole past."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import event, select

from kilonova.catalog import (
    bindings,
    channel_registry,
    channel_store,
    events,
    files,
    firings,
    gc_roots,
    registry,
    run_records,
    runs,
    tables,
)
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.read_models import run_queries
from kilonova.catalog.read_models.overview import Overview, overview
from kilonova.errors import Conflict
from kilonova.model.binding import Binding
from kilonova.model.block import Base, Delta, Kind
from kilonova.model.channel import PointState
from kilonova.model.encoding import Append, Changes, Custom, Upsert
from kilonova.model.progress import RunProgress, StepProgress, TaskCount
from kilonova.model.row_count import RowCount
from kilonova.model.run import RunKind, RunOutput, RunState
from kilonova.model.task import Mode, Production, Task
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.model.watched_file import FileOutcome, FileState, Fingerprint
from kilonova.schedule.due import triggering_inputs
from kilonova.schedule.file_selection import FileDecision
from kilonova.schedule.garbage import Provenance, decide_collection
from kilonova.service.queries import ProjectReader
from tests.catalog.building import (
    LEASE,
    a_block,
    a_channel,
    a_function_variant,
    a_task,
    an_output,
    begin,
    claim_batches,
    commit,
    ingested,
    with_channels,
)
from tests.databases import Clock
from tests.seeds import SEED

SOURCES = ("clicks", "users", "prices", "spare")
TASKS = {
    "cleaned": a_task("cleaned", {"clicks": Mode.NEW}, ("cleaned",)),
    "split": a_task("split", {"cleaned": Mode.CHANGES, "users": Mode.ALL}, ("good", "bad")),
    "totals": a_task("totals", {"good": Mode.INSERTS, "totals": Mode.ALL}, ("totals",)),
    "looked_up": a_task("looked_up", {"users": Mode.ALL, "prices": Mode.ALL}, ("looked_up",)),
    "either": a_task(
        "either",
        {"prices": Mode.NEW},
        ("either",),
        more=(a_function_variant("whole", {"prices": Mode.ALL, "bad": Mode.ALL}, b"whole"),),
    ),
}
ENCODINGS = (Append(), Append(), Upsert(("id",)), Upsert(("id",)), Changes(), Custom(("id",), "f"))


class History:
    """Things that happen to a catalog, one at random after the other."""

    def __init__(self, catalog: Catalog, clock: Clock, seed: int) -> None:
        self.catalog = catalog
        self.clock = clock
        self.chance = random.Random(seed)
        self.going: dict[int, tuple[tuple[Task, ...], dict[str, int], dict[str, int]]] = {}
        self.tasks = dict(TASKS)
        self.sources = list(SOURCES)
        with catalog.writing() as tx:
            channel_registry.add_channels(tx, [a_channel(name) for name in SOURCES], "w")
            outputs = [channel for task in TASKS.values() for channel in task.writes]
            channel_registry.add_channels(tx, [a_channel(name, Upsert(("id",))) for name in outputs], "w")
            registry.put_tasks(tx, TASKS.values(), "w")
            bound = [Binding(name=name, tasks=(name,), triggers=(), implicit=True) for name in TASKS]
            bindings.put(tx, "w", bound)

    def happen(self) -> None:
        kinds = [self.ingest] * 4 + [self.run] * 4 + [self.end] * 7
        kinds += [self.compact, self.renew, self.silence, self.collect, self.pause]
        if self.chance.random() < 0.02:
            kinds = [self.drop]
        self.clock.forward(1)
        self.chance.choice(kinds)()

    def some(self, names: list[str]) -> list[str]:
        return self.chance.sample(names, self.chance.randint(1, min(3, len(names))))

    def ingest(self) -> None:
        with self.catalog.writing() as tx:
            number, points = begin(tx, *self.some(self.sources))
        self.going[number] = ((), points, {})

    def run(self) -> None:
        chosen = [task for name, task in self.tasks.items() if name in self.some(list(self.tasks))]
        writes = [channel for task in chosen for channel in task.writes]
        try:
            with self.catalog.writing() as tx:
                read = {name: found.latest_readable for name, found in channel_store.channel_states(tx).items()}
                number, points = begin(tx, *writes, tasks=tuple(t.name for t in chosen), kind=RunKind.TASKS)
        except Conflict:
            return
        self.going[number] = (tuple(chosen), points, read)

    def end(self) -> None:
        if not self.going:
            return
        number = self.chance.choice(list(self.going))
        tasks, points, read = self.going.pop(number)
        with self.catalog.writing() as tx:
            if self.chance.random() < 0.3:
                runs.fail(tx, number, "no luck")
                return
            writer = {channel: task.name for task in tasks for channel in task.writes}
            outputs = [self.output(tx, number, channel, at, writer.get(channel)) for channel, at in points.items()]
            seen = read | {each.channel: each.point for each in outputs if each.block is not None}
            advances = [
                runs.Advance(
                    task=task.name,
                    logic=registry.tasks(tx)[task.name].logic,
                    points=tuple((channel, seen[channel]) for channel in task.reads),
                )
                for task in tasks
            ]
            runs.commit(tx, number, inputs=(), outputs=outputs, advances=advances)

    def output(self, tx: Transaction, run: int, channel: str, point: int, task: str | None) -> RunOutput:
        if self.chance.random() < 0.2:
            return an_output(channel, point, None, task)
        kind: Kind = Base(point) if self.chance.random() < 0.2 else Delta(point - 1, point)
        rows, encoding = self.chance.randint(0, 9), self.chance.choice(ENCODINGS)
        block = a_block(channel_store.new_block(tx, channel, run), kind, rows, encoding)
        if self.chance.random() < 0.3 and not isinstance(kind, Base) and encoding != Append():
            block = replace(block, statistics=replace(block.statistics, net_rows=None))
        return an_output(channel, point, block, task)

    def compact(self) -> None:
        with self.catalog.writing() as tx:
            found = channel_store.channel_states(tx)
            channel = self.chance.choice(list(found))
            point = found[channel].latest_distinct
            if not found[channel].snapshot(found[channel].latest_readable).deltas:
                return
            number, _ = begin(tx, kind=RunKind.COMPACTION)
            block = a_block(channel_store.new_block(tx, channel, number), Base(point), 3)
            runs.commit(tx, number, inputs=(), outputs=[an_output(channel, point, block)], advances=())

    def renew(self) -> None:
        name = self.chance.choice(list(self.tasks))
        with self.catalog.writing() as tx:
            claimed = tx.connection.execute(select(tables.claim.c.task_id)).scalars().all()
            if registry.task_id(tx, name) not in claimed:
                registry.put_task(tx, self.tasks[name], "w", renew=True)

    def silence(self) -> None:
        self.clock.forward(LEASE.total_seconds() + 1)
        with self.catalog.writing() as tx:
            for run in runs.expire(tx):
                self.going.pop(run.number, None)

    def collect(self) -> None:
        provenance = self.chance.choice(list(Provenance))
        with self.catalog.writing() as tx:
            for each in decide_collection(gc_roots.gc_roots(tx, provenance), None, provenance):
                if each.goes:
                    channel_store.remove_blocks(tx, each.channel, [each.block.number])

    def pause(self) -> None:
        with self.catalog.writing() as tx:
            bindings.pause(tx, self.chance.choice(list(self.tasks)), self.chance.random() < 0.5, "ann")

    def drop(self) -> None:
        for name in ("spare", "totals", "either", "looked_up"):
            busy = any(name in points for _, points, _ in self.going.values())
            if busy or name not in [*self.sources, *self.tasks]:
                continue
            with self.catalog.writing() as tx:
                if name in self.tasks:
                    registry.drop_task(tx, name)
                    del self.tasks[name]
                else:
                    self.sources.remove(name)
                channel_store.drop_channel(tx, name)
                bindings.forget(tx, name)
            return


def glanced(catalog: Catalog) -> Overview:
    with catalog.reading() as tx:
        return overview(tx)


def check(catalog: Catalog) -> None:
    """Compare with what is read whole."""
    looking, found = ProjectReader(catalog), glanced(catalog)
    with catalog.reading() as tx:
        every, known, states = run_queries.runs(tx), registry.tasks(tx), channel_store.channel_states(tx)
        bound = bindings.bindings(tx)
        held = {
            run.number: run_records.run_holdings(tx, run.number).reserved
            for run in every
            if run.state is RunState.RUNNING
        }
        point = tables.point.c
        filled: dict[str, list[int]] = {}
        for row in tx.connection.execute(
            select(tables.channel.c.name, point.number)
            .join(tables.channel, tables.channel.c.id == point.channel_id)
            .where(point.state == PointState.FILLED.value)
        ):
            filled.setdefault(row.name, []).append(row.number)
        assert found.event == events.newest(tx)
    assert list(found.channels) == sorted(states)
    for name, glance in found.channels.items():
        state = states[name]
        newest = next((each for each in state.points if each.number == state.latest_distinct), None)
        blocks = state.snapshot(state.latest_readable).blocks
        assert (glance.point, glance.time) == (state.latest_distinct, newest and newest.time), name
        assert glance.rows == RowCount.of(blocks), name
        assert glance.bytes == sum(block.statistics.bytes for block in blocks), name
        assert glance.writing == tuple(sorted(number for number, points in held.items() if name in points)), name
    assert list(found.tasks) == sorted(known)
    for name, task in found.tasks.items():
        registered = known[name]
        mine = [run for run in every if name in run.tasks]
        last = next((run for run in mine if run.state is not RunState.RUNNING), None)
        assert task.due == (looking.task(name).due is not None), name
        assert (task.logic, task.started) == (registered.logic, registered.started), name
        assert task.running == next((run.number for run in mine if run.state is RunState.RUNNING), None), name
        ill = last is not None and last.state is not RunState.SUCCEEDED
        assert task.failed == (last.number if ill and last else None), name
        assert [each.channel for each in task.reads] == list(registered.task.reads), name
        assert {each.channel for each in task.reads if each.drives} == set(triggering_inputs(registered.task)), name
        assert task.writes == registered.task.writes, name
        for each in task.reads:
            state, cursor = states[each.channel], registered.cursor(each.channel)
            news = [number for number in filled.get(each.channel, ()) if cursor < number <= state.latest_readable]
            assert each.cursor == cursor, (name, each)
            assert each.behind == (len(news) if registered.started else bool(state.latest_distinct)), (name, each)
    assert {name: each.paused for name, each in found.bindings.items()} == {
        name: each.paused for name, each in bound.items()
    }
    assert dict.fromkeys(held) == found.running


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
def test_the_overview_says_what_the_whole_past_says(catalog: Catalog, clock: Clock, seed: int) -> None:
    past = History(catalog, clock, seed)
    check(catalog)
    for _ in range(15):
        for _ in range(5):
            past.happen()
        check(catalog)


def test_an_empty_catalog_has_an_empty_overview(catalog: Catalog, clock: Clock) -> None:
    found = glanced(catalog)
    assert (found.channels, found.tasks, found.bindings, found.running) == ({}, {}, {}, {})
    assert (found.event, found.time) == (0, clock.now)


def test_what_lies_above_a_reserved_point_does_not_count(catalog: Catalog) -> None:
    with_channels(catalog, "clicks")
    with catalog.writing() as tx:
        registry.put_task(tx, a_task("t", {"clicks": Mode.NEW}, ("news",)), "w")
    ingested(catalog, "clicks")
    with catalog.writing() as tx:
        registry.move_cursors(tx, "t", 0, [("clicks", 1)])
    with catalog.writing() as tx:
        slow, reserved = begin(tx, "clicks")
    ingested(catalog, "clicks", base=True)
    ingested(catalog, "clicks")
    glance = glanced(catalog).channels["clicks"]
    assert (glance.point, glance.rows, glance.bytes, glance.writing) == (1, RowCount(1, 1), 10, (slow,))
    assert not glanced(catalog).tasks["t"].due
    commit(catalog, slow, reserved)
    found = glanced(catalog)
    assert (found.channels["clicks"].point, found.channels["clicks"].rows) == (4, RowCount(2, 2))
    assert [each.behind for each in found.tasks["t"].reads] == [3]


def test_channels_and_tasks_are_described(catalog: Catalog) -> None:
    inbox = replace(a_channel("clicks"), watch=WatchedDirectory(location="inbox"))
    with catalog.writing() as tx:
        channel_registry.add_channels(tx, [inbox, a_channel("prices"), a_channel("bad")], "shop")
        registry.put_tasks(tx, [TASKS["totals"], TASKS["either"]], "other")
        channel_registry.add_channels(tx, [a_channel("good")], "shop")
    found = glanced(catalog)
    assert {name: each.watched for name, each in found.channels.items()} == {
        "bad": False,
        "clicks": True,
        "good": False,
        "prices": False,
    }
    assert {each.workflow for each in found.channels.values()} == {"shop"}
    assert not any(each.quarantined for each in found.channels.values())
    with catalog.writing() as tx:
        files.record(tx, "clicks", {path: (Fingerprint(3, None), FileDecision.READY) for path in "abc"})
        run, points = begin(tx, "clicks")
        files.claim_files(tx, run, "clicks", ["a", "b"])
        runs.commit(tx, run, inputs=(), outputs=[an_output("clicks", points["clicks"], None)], advances=())
        files.resolve_files(tx, run, "clicks", [FileOutcome(path, FileState.QUARANTINED, "bad") for path in "ab"])
    assert {name: each.quarantined for name, each in glanced(catalog).channels.items() if each.quarantined} == {
        "clicks": 2
    }
    totals, either = found.tasks["totals"], found.tasks["either"]
    assert (totals.workflow, totals.binding, totals.own) == ("other", "totals", ("totals",))
    assert (either.productions, either.view) == ((Production.DELTA, Production.BASE), True)
    assert [(each.channel, each.modes, each.mode) for each in either.reads] == [
        ("prices", (Mode.NEW, Mode.ALL), Mode.NEW),
        ("bad", (Mode.ALL,), Mode.ALL),
    ]


def test_bindings_tell_of_firings_that_have_not_ended(catalog: Catalog) -> None:
    with_channels(catalog, "clicks")
    with catalog.writing() as tx:
        registry.put_task(tx, TASKS["cleaned"], "w")
        bindings.put(tx, "w", [Binding(name="often", tasks=("cleaned",), triggers=(), workflowette="cleaning")])
        firings.fire_manually(tx, "often", "by hand")
    [each] = glanced(catalog).bindings.values()
    assert (each.name, each.workflowette, each.implicit, each.paused, each.due) == (
        "often",
        "cleaning",
        False,
        False,
        1,
    )
    assert glanced(catalog).tasks["cleaned"].binding == "often"
    with catalog.writing() as tx:
        [batch], _ = claim_batches(tx, "gauss", 1)
        firings.fail(tx, batch.claims[0], "no luck")
        bindings.pause(tx, "often", True, "ann")
    [each] = glanced(catalog).bindings.values()
    assert (each.due, each.paused) == (0, True)


def test_the_progress_of_runs_is_reported(catalog: Catalog) -> None:
    with_channels(catalog, "clicks")
    going = StepProgress("cleaned", TaskCount(1, 2))
    with catalog.writing() as tx:
        registry.put_task(tx, TASKS["cleaned"], "w")
        number, _ = begin(tx, tasks=("cleaned",), kind=RunKind.TASKS)
        runs.note_progress(tx, number, RunProgress(steps=1, ended=0, going=(going,)))
    found = glanced(catalog)
    assert found.tasks["cleaned"].running == number
    assert found.running[number] == RunProgress(steps=1, ended=0, going=(going,))


def counted(catalog: Catalog, look: Callable[[Catalog], object]) -> int:
    statements: list[str] = []

    def heard(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    event.listen(catalog._engine, "before_cursor_execute", heard)
    look(catalog)
    event.remove(catalog._engine, "before_cursor_execute", heard)
    return len(statements)


def test_however_many_tasks_have_failed_as_many_statements_are_made(catalog: Catalog) -> None:
    names = [f"t{number}" for number in range(30)]
    with_channels(catalog, "clicks", *names)
    with catalog.writing() as tx:
        registry.put_tasks(tx, [a_task(name, {"clicks": Mode.NEW}, (name,)) for name in names], "w")
    before = counted(catalog, glanced)
    for name in names:
        with catalog.writing() as tx:
            number, _ = begin(tx, name, tasks=(name,), kind=RunKind.TASKS)
            runs.fail(tx, number, "no luck")
    assert [task.failed for task in glanced(catalog).tasks.values()] == sorted(range(1, 31), key=lambda n: f"t{n - 1}")
    assert counted(catalog, glanced) == before
