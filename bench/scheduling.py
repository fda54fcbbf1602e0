"""What the scheduler itself takes: many registered tasks, many firings, and workers that do nothing.

Everything is real but Spark: servers fire, claim and start; runs are prepared, reserve points, hold leases and commit.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pgserver

import kilonova as kn
from bench.report import Goal, Report, Scale
from kilonova.catalog import channel_store, firings, runs
from kilonova.catalog.database import Catalog
from kilonova.catalog.firings import Batch
from kilonova.catalog.runs import Advance
from kilonova.engine.executor import start_claimed
from kilonova.engine.run_events import no_listener
from kilonova.engine.run_protocol import ActiveRun, RunEnvironment, RunResults
from kilonova.engine.run_request import TaskPlan
from kilonova.model.block import Block, BlockName, Delta, Statistics
from kilonova.model.encoding import Append
from kilonova.model.event import EventKind
from kilonova.model.run import RunKind, RunOutput
from kilonova.model.schema import Schema
from kilonova.model.version import Version
from kilonova.scheduler.loop import Server
from kilonova.scheduler.messages import BatchEnded, Dismissal, FiringOutcome, Work, WorkerReady
from kilonova.scheduler.workers import Heard, Worker
from kilonova.service.project import Project, open_project

SCHEMA = Schema.of(("id", "bigint"))
READERS = 10
"""How many tasks read each source."""

_SPAWNED = multiprocessing.get_context("spawn")

LEASE = timedelta(seconds=60)


def measure(scale: Scale) -> list[Report]:
    """On SQLite and PostgreSQL."""
    tasks, minutes = (500, 0.2) if scale is Scale.QUICK else (10_000, 1.0)
    rows: list[tuple[object, ...]] = []
    goals = []
    for kind in ("SQLite", "PostgreSQL"):
        with project_on(kind) as project:
            began = time.monotonic()
            project.apply(_workflow(tasks))
            applied = time.monotonic() - began
            lags, idle, rate = _served(project, tasks, minutes)
        median, worst = statistics.median(lags), statistics.quantiles(lags, n=20)[-1]
        rows.append((kind, tasks, applied, len(lags), 1000 * idle, 1000 * median, 1000 * worst, rate))
        goals.append(Goal(f"{kind}: seconds to register {tasks:,} tasks", applied, 10))
        goals.append(Goal(f"{kind}: milliseconds to the start of a run on an idle server", 1000 * idle, 50))
        goals.append(Goal(f"{kind}: firings a minute at most", rate, 5000, at_least=True))
    return [
        Report(
            name="scheduling",
            title="From data to the start of runs, with workers that do nothing",
            columns=(
                "catalog",
                "tasks",
                "registered in, s",
                "firings",
                "idle: to the start, ms",
                "1,000 a minute: median, ms",
                "95%, ms",
                "at most, per minute",
            ),
            rows=rows,
            goals=goals,
            timings={},
            note=f"Each arrival fires {READERS} bindings. Idle: the median of single arrivals on a channel that"
            " one task reads. At most: all that fires at once, until it has ended.",
        )
    ]


@contextmanager
def project_on(kind: str) -> Iterator[Project]:
    """A project with a catalog of its own, in SQLite or PostgreSQL."""
    with tempfile.TemporaryDirectory() as place:
        if kind == "SQLite":
            with open_project(place) as project:
                project.create()
                yield project
            return
        server = pgserver.get_server(Path(place) / "data", cleanup_mode="stop")
        try:
            with open_project(place, catalog=server.get_uri("postgres")) as project:
                project.create()
                yield project
        finally:
            server.cleanup()


def _workflow(tasks: int) -> kn.Workflow:
    workflow = kn.Workflow("many")
    workflow.channel("lonely", "id bigint")
    workflow.sql("only", "SELECT * FROM {lonely}", reads={"lonely": kn.New}, produces=kn.Delta, schema="id bigint")
    for number in range(tasks):
        source = f"s{number // READERS}"
        if number % READERS == 0:
            workflow.channel(source, "id bigint")
        workflow.sql(
            f"t{number}", f"SELECT * FROM {{{source}}}", reads={source: kn.New}, produces=kn.Delta, schema="id bigint"
        )
    return workflow


class NoFiles:
    """A warehouse without files."""

    def delete(self, blocks: object) -> None: ...

    def blocks(self) -> list[BlockName]:
        return []

    def seal(self, block: BlockName, manifest: str) -> None: ...

    def unseal(self, placements: object) -> None: ...

    def mark_committed(self, placements: object) -> None: ...

    def keep_log(self, run: int, day: object, text: str) -> None: ...

    def delete_logs(self, before: object) -> None: ...

    def branches(self) -> list[str]:
        return []

    def delete_branch(self, name: str) -> None: ...


class _Idler(Worker):
    """A process that runs nothing, and says that it is done."""

    def __init__(self, project: Project, _directory: Path, _settings: Mapping[str, Any], heard: Heard) -> None:
        self._heard = heard
        self._pipe, other = _SPAWNED.Pipe()
        self._owner = f"idler {id(self)}"
        self._idle = _SPAWNED.Process(target=_idle, args=(project.catalog.url, self._owner, other), daemon=True)
        self._idle.start()
        other.close()
        self.doing, self.answer, self.since, self.killed, self.ready = None, None, 0.0, "", False
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def owner(self) -> str:
        return self._owner

    def give(self, work: Work | Dismissal, answer: object = None) -> None:
        self.doing, self.since = work, time.monotonic()
        self._pipe.send(work)

    def _listen(self) -> None:
        while True:
            try:
                message = self._pipe.recv()
            except EOFError:
                self._heard(self, None)
                return
            self.ready = True
            self._heard(self, message)

    def kill(self, why: str) -> None:
        self.killed = why
        self._idle.kill()


def _idle(catalog: str, owner: str, pipe: Connection) -> None:
    """Run all firings that come through a pipe, without doing anything."""
    environment = RunEnvironment(
        catalog=Catalog(catalog), files=NoFiles(), owner=owner, lease=LEASE, listener=no_listener
    )
    pipe.send(WorkerReady())
    while isinstance(work := pipe.recv(), Batch):
        for run in start_claimed(environment, work.claims):
            if run is not None:
                run.complete(nothing)
        pipe.send(BatchEnded((FiringOutcome(),) * len(work.claims)))


def nothing(begun: ActiveRun[TaskPlan]) -> RunResults:
    """A run that reads everything and finds nothing to write."""
    outputs, advances = [], []
    for progress, _ in begun.plan.steps:
        points = tuple((name, begun.plan.channels[name].latest_readable) for name in progress.task.reads)
        advances.append(Advance(task=progress.task.name, logic=progress.logic, points=points))
        for channel in progress.task.writes:
            outputs.append(
                RunOutput(
                    channel=channel,
                    point=begun.points[channel],
                    block=None,
                    version=Version(),
                    task=progress.task.name,
                    reason="nothing",
                    seconds=0.0,
                )
            )
    return RunResults(inputs=(), outputs=tuple(outputs), advances=tuple(advances))


def arrive(project: Project, channel: str) -> tuple[int, str]:
    """A block comes; the run that brought it, and the occurrence that it is."""
    with project.catalog.writing() as tx:
        run, points = runs.start(tx, kind=RunKind.INGEST, tasks=(), writes=(channel,), owner="feed", lease=LEASE)
        point = points[channel]
        name = channel_store.new_block(tx, channel, run)
        block = Block(
            number=name.number,
            suffix=name.suffix,
            kind=Delta(point - 1, point),
            schema=SCHEMA,
            encoding=Append(),
            columns=SCHEMA,
            buckets=0,
            statistics=Statistics(rows=1, bytes=1, files=1, removals=0, net_rows=1),
        )
    with project.catalog.writing() as tx:
        output = RunOutput(
            channel=channel,
            point=point,
            block=block,
            version=Version.source(channel, point),
            task=None,
            reason="feed",
            seconds=0.0,
        )
        runs.commit(tx, run, inputs=(), outputs=[output], advances=())
    return run, f"{channel}@{point}"


def _served(project: Project, tasks: int, minutes: float) -> tuple[list[float], float, float]:
    """Seconds to the start of runs under load, the median of those on an idle server, and the greatest rate."""
    sources = [f"s{number}" for number in range(tasks // READERS)]
    given = {"catalog": project.catalog.url, "serve": {"workers": 4, "maintenance_interval": 0}}
    server = Server(project.directory, given, lambda text, event: None, hire=lambda *rest: _Idler(project, *rest))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        _quiet(project)
        alone = []
        for _ in range(20):
            alone += _lags(project, [arrive(project, "lonely")], 1)
            time.sleep(0.2)
        arrivals = round(1000 * minutes / READERS)
        begun, pause = [], 60 * minutes / arrivals
        start = time.monotonic()
        for number in range(arrivals):
            time.sleep(max(0.0, start + number * pause - time.monotonic()))
            begun.append(arrive(project, sources[number % len(sources)]))
        lags = _lags(project, begun, READERS)
        server_busy = time.monotonic()
        begun = [arrive(project, source) for source in sources[: max(1, len(sources) // 10)]]
        _lags(project, begun, READERS)
        _quiet(project)
        rate = 60 * len(begun) * READERS / (time.monotonic() - server_busy)
    finally:
        server.stop()
        thread.join()
    return lags, statistics.median(alone), rate


def _quiet(project: Project) -> None:
    """Wait until nothing is due."""
    while True:
        with project.catalog.reading() as tx:
            if not firings.any_unended(tx):
                return
        time.sleep(0.02)


def _lags(project: Project, arrivals: list[tuple[int, str]], readers: int) -> list[float]:
    """Seconds from each arrival to the starts of its runs, once all have started."""
    wanted, count = {occurrence for _, occurrence in arrivals}, len(arrivals) * readers
    while True:
        with project.catalog.reading() as tx:
            fired = [one for one in firings.firings(tx, count + 100) if one.occurrence in wanted]
        if len(fired) == count and all(one.run is not None for one in fired):
            break
        time.sleep(0.02 if len(arrivals) == 1 else 0.5)
    events = project.events()
    ended = {event.run: event.time for event in events if event.kind is EventKind.SUCCEEDED}
    came = {occurrence: ended[run] for run, occurrence in arrivals}
    launched = {event.run: event.time for event in events if event.kind is EventKind.LAUNCHED}
    return [(launched[one.run] - came[one.occurrence]).total_seconds() for one in fired]
