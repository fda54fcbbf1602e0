"""How long the writers' lock is held: 100,000 blocks in a channel, 10,000 tasks, a year of missed minutes.

Everything is real but Spark, as in `scheduling`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import select, update

import kilonova as kn
from bench.report import Goal, Report, Scale
from bench.scheduling import LEASE, NoFiles, arrive, nothing, project_on
from kilonova.catalog import channel_store, codec, scheduling, tables
from kilonova.catalog.database import Transaction, insert_all
from kilonova.engine.garbage import collect_garbage
from kilonova.engine.ingest import ingest_target
from kilonova.engine.run_events import no_listener
from kilonova.engine.run_protocol import ActiveRun, RunEnvironment, RunPlan, RunResults, execute_run
from kilonova.engine.run_request import RunDue, plan_run
from kilonova.model.block import Base, Delta
from kilonova.model.run import RunKind, RunOutput
from kilonova.model.task import Production
from kilonova.model.version import Version
from kilonova.schedule.scheduler import TriggerScheduler
from kilonova.service.project import Project

AT_MOST = 200.0
"""For how many milliseconds a transaction should hold the writers' lock at most."""

YEAR = timedelta(days=365)

ROUNDS = 3
"""How often each is measured; the least counts, because other programs use the machine too."""


def measure(scale: Scale) -> list[Report]:
    """On SQLite and PostgreSQL."""
    blocks, tasks = (5_000, 500) if scale is Scale.QUICK else (100_000, 10_000)
    rows: list[tuple[object, ...]] = []
    goals = []
    for kind in ("SQLite", "PostgreSQL"):
        for what, milliseconds, seconds in _measured(kind, blocks, tasks):
            rows.append((kind, what, milliseconds, seconds))
            goals.append(Goal(f"{kind}: {what}, milliseconds", milliseconds, AT_MOST))
    return [
        Report(
            name="scale",
            title="How long the writers' lock is held",
            columns=("catalog", "what", "longest transaction, ms", "in all, s"),
            rows=rows,
            goals=goals,
            note=f"{blocks:,} live blocks in one channel and {tasks:,} tasks; the least of {ROUNDS} rounds.",
        )
    ]


def _measured(kind: str, blocks: int, tasks: int) -> Iterator[tuple[str, float, float]]:
    with project_on(kind) as project:
        held = _Held(project)
        environment = RunEnvironment(
            catalog=project.catalog, files=NoFiles(), owner="bench", lease=LEASE, listener=no_listener
        )
        project.apply(_crowded())
        arrive(project, "crowded")
        execute_run(environment, partial(plan_run, request=RunDue()), nothing)
        _fill(project, blocks)
        yield held.longest(f"an ingest beside {blocks:,} blocks", lambda: _ingest(environment))

        def run() -> None:
            arrive(project, "crowded")
            held.forget()
            execute_run(environment, partial(plan_run, request=RunDue()), nothing)

        yield held.longest(f"a run that reads one of {blocks:,} blocks", run)
        yield held.longest(
            f"garbage collection that keeps {blocks:,} blocks",
            lambda: collect_garbage(project.catalog, NoFiles(), no_listener),
        )
        _missed(project)
        yield held.longest("a year of missed minutes", lambda: _fire(project), rounds=1)
        _replace(environment)
        yield held.longest(
            f"garbage collection of {blocks:,} blocks",
            lambda: collect_garbage(project.catalog, NoFiles(), no_listener),
            rounds=1,
        )
    with project_on(kind) as project:
        held = _Held(project)
        environment = RunEnvironment(
            catalog=project.catalog, files=NoFiles(), owner="bench", lease=LEASE, listener=no_listener
        )
        project.apply(_many(tasks))

        def due() -> None:
            arrive(project, "lonely")
            held.forget()
            execute_run(environment, partial(plan_run, request=RunDue(("only",))), nothing)

        yield held.longest(f"a run of one of {tasks:,} tasks", due)


class _Held:
    """How long each transaction of a project holds the writers' lock."""

    def __init__(self, project: Project) -> None:
        self._longest = 0.0
        writing = project.catalog.writing

        @contextmanager
        def timed(*, brief: bool = False) -> Iterator[Transaction]:
            began = None
            try:
                with writing(brief=brief) as tx:
                    began = time.perf_counter()
                    yield tx
            finally:
                if began is not None:
                    self._longest = max(self._longest, time.perf_counter() - began)

        project.catalog.writing = timed  # type: ignore[method-assign]

    def forget(self) -> None:
        """Count from here."""
        self._longest = 0.0

    def longest(self, what: str, act: Callable[[], Any], rounds: int = ROUNDS) -> tuple[str, float, float]:
        """The longest transaction of an act, in milliseconds, and the seconds of the whole."""
        found = []
        for _ in range(rounds):
            self.forget()
            began = time.perf_counter()
            act()
            found.append((1000 * self._longest, time.perf_counter() - began))
        milliseconds, seconds = min(found)
        return what, milliseconds, seconds


def _crowded() -> kn.Workflow:
    workflow = kn.Workflow("crowd")
    workflow.channel("crowded", "id bigint")
    workflow.sql("copied", "SELECT * FROM {crowded}", reads={"crowded": kn.New}, produces=kn.Delta, schema="id bigint")
    workflow.workflowette("copying", ["copied"], on=kn.cron("* * * * *"))
    return workflow


def _many(tasks: int) -> kn.Workflow:
    workflow = kn.Workflow("many")
    workflow.channel("lonely", "id bigint")
    for number in range(tasks):
        name = "only" if number == 0 else f"t{number}"
        workflow.sql(name, "SELECT * FROM {lonely}", reads={"lonely": kn.New}, produces=kn.Delta, schema="id bigint")
    return workflow


def _fill(project: Project, blocks: int) -> None:
    """Put blocks like the newest one after it, which all tasks have read."""
    with project.catalog.writing() as tx:
        channel = channel_store.channel_id(tx, "crowded")
        block = tx.connection.execute(select(tables.block)).one()._asdict()
        place = tx.connection.execute(select(tables.placement)).one()._asdict()
        point = tx.connection.execute(select(tables.point).where(tables.point.c.channel_id == channel)).one()._asdict()
        number = point["number"]
        first = block["id"] + 1
        insert_all(tx, tables.block, [{**block, "id": first + each} for each in range(blocks)])
        if project.catalog.dialect == "postgresql":  # numbers that are given do not advance its sequence
            highest = "SELECT setval(pg_get_serial_sequence('block', 'id'), (SELECT max(id) FROM block))"
            tx.connection.exec_driver_sql(highest)
        many = [
            {**place, "block_id": first + each, "start": number + each, "end": number + each + 1}
            for each in range(blocks)
        ]
        insert_all(tx, tables.placement, many)
        insert_all(tx, tables.point, [{**point, "number": number + 1 + each} for each in range(blocks)])
        read = update(tables.cursor).where(tables.cursor.c.channel_id == channel)
        tx.connection.execute(read.values(point=number + blocks))
        channel_store.mark_changed(tx, [channel])


def _ingest(environment: RunEnvironment, *, whole: bool = False) -> None:
    def prepare(tx: Transaction) -> RunPlan[Any]:
        found = ingest_target(tx, "crowded", Production.DELTA)
        return RunPlan(kind=RunKind.INGEST, tasks=(), writes=("crowded",), pins=found.pins, plan=found)

    execute_run(environment, prepare, partial(_rows, whole=whole))


def _rows(begun: ActiveRun[Any], whole: bool) -> RunResults:
    point, name = begun.points["crowded"], begun.name_block("crowded")
    like = begun.plan.state.blocks[-1]
    kind = Base(point) if whole else Delta(point - 1, point)
    block = replace(like, number=name.number, suffix=name.suffix, kind=kind)
    output = RunOutput(
        channel="crowded",
        point=point,
        block=block,
        version=Version.source("crowded", point),
        task=None,
        reason="feed",
        seconds=0.0,
    )
    return RunResults(inputs=(), outputs=(output,), advances=())


def _replace(environment: RunEnvironment) -> None:
    """Have nothing need the blocks any more."""
    _ingest(environment, whole=True)
    execute_run(environment, partial(plan_run, request=RunDue()), nothing)


def _missed(project: Project) -> None:
    """Have the trigger on the clock not been looked at for a year."""
    with project.catalog.writing() as tx:
        for row in tx.connection.execute(select(tables.trigger)).all():
            state = codec.state_from_json(row.state)
            past = tuple(replace(each, time=each.time - YEAR) if each.time else each for each in state)
            here = update(tables.trigger).where(tables.trigger.c.id == row.id)
            tx.connection.execute(here.values(state=codec.state_to_json(past), next_check=tx.now - YEAR))


def _fire(project: Project) -> None:
    with project.catalog.writing() as tx:
        numbers = scheduling.trigger_interests(tx).every
        decision = TriggerScheduler().decide(scheduling.observe(tx, numbers, free_workers=0))
        scheduling.store(tx, decision, "bench")
