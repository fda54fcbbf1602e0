"""Servers over one PostgreSQL catalog that are killed at random, while data comes and the database is restarted.

    python -m tests.soak_servers --minutes 30 --seed 1

At the end: what was ingested is there once, every derived channel equals what plain Python makes of the sources, every
arrival has fired, no occurrence twice, every firing and every run has ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pgserver
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import kilonova as kn
from kilonova.catalog import channel_store, firings, scheduling
from kilonova.catalog.database import Transaction
from kilonova.catalog.read_models import run_queries
from kilonova.errors import CatalogError, Conflict, KilonovaError, LeaseLost
from kilonova.model.firing import FiringState
from kilonova.model.run import RunState
from kilonova.service.project import Project
from tests.catalog.building import fire_triggers
from tests.serving_workflow import SOURCES, serving
from tests.soak import ROOT, connect_server, plain_environment

Rows = Counter[tuple[Any, ...]]


@dataclass
class Tally:
    """What happened, and what was wrong at the end."""

    servers_killed: int = 0
    workers_killed: int = 0
    restarts: int = 0
    batches: int = 0
    unconfirmed: int = 0
    firings: int = 0
    runs: int = 0
    abandoned: int = 0
    taken_over: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Database:
    """A PostgreSQL server that can be restarted."""

    def __init__(self, folder: Path) -> None:
        self._server = pgserver.get_server(folder / "data", cleanup_mode="stop")
        self.url = self._server.get_uri("postgres")
        self._data = folder / "data"

    def process(self) -> psutil.Process:
        """Its first process, which has one for each client."""
        return psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))

    def restart(self, how: str) -> None:
        """Restart it; `immediate` is as if it had crashed."""
        pgserver.pg_ctl(["-m", how, "-w", "restart"], pgdata=self._data, user=self._server.system_user)


class Feed(threading.Thread):
    """Puts rows into random sources until told to stop, and remembers what it was told."""

    def __init__(self, project: Project, folder: Path, seed: int, pause: float) -> None:
        super().__init__(name="feed", daemon=True)
        self._project = project
        self._folder = folder
        self._random = random.Random(seed)
        self._pause = pause
        self.sent: list[tuple[str, list[tuple[int, int, int]], bool]] = []
        self.stopping = threading.Event()
        self.error: str | None = None

    def run(self) -> None:
        while not self.stopping.wait(self._random.random() * self._pause):
            source = self._random.choice(SOURCES)
            batch = len(self.sent) + 1
            keyed = SOURCES.index(source) % 2 == 1
            ids = self._random.sample(range(200), 15) if keyed else range(batch * 1000, batch * 1000 + 15)
            rows = [(each, self._random.randrange(4), batch) for each in ids]
            file = self._folder / f"{batch}.parquet"
            columns = list(zip(*rows, strict=True))
            table = pa.table({"id": columns[0], "k": pa.array(columns[1], pa.int32()), "v": columns[2]})
            pq.write_table(table, file)
            try:
                self._project.ingest(source, str(file))
            except LeaseLost:
                continue  # nothing of it was published, so nothing of it may be there
            except (Conflict, CatalogError):
                self.sent.append((source, rows, False))
            except KilonovaError as error:
                self.error = repr(error)
                return
            else:
                self.sent.append((source, rows, True))


class Servers:
    """Server processes that are started again when they were killed."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._processes = [self._start() for _ in range(count)]

    def _start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "kilonova", "-C", str(self._folder), "serve", "--json"]
        with (self._folder / "servers.log").open("ab") as log:
            return subprocess.Popen(
                words, cwd=ROOT, stdout=log, stderr=log, env=plain_environment(), start_new_session=True
            )

    def kill(self, which: int) -> None:
        """Kill a server, and start another in its place."""
        self._processes[which].kill()
        self._processes[which].wait()
        self._processes[which] = self._start()

    def kill_worker(self, which: int) -> bool:
        """Kill a worker of a server, if it has one."""
        with contextlib.suppress(psutil.NoSuchProcess):
            workers = psutil.Process(self._processes[which].pid).children()
            if workers:
                os.killpg(workers[0].pid, signal.SIGKILL)
                return True
        return False

    def ended(self) -> list[int]:
        """The exit codes of servers that ended by themselves."""
        return [code for process in self._processes if (code := process.poll()) is not None]

    def stop(self) -> list[int]:
        """Ask all to stop; their exit codes."""
        for process in self._processes:
            process.terminate()
        return [process.wait(90) for process in self._processes]


@contextlib.contextmanager
def project_in(folder: Path, catalog: str, remote: str) -> Iterator[Project]:
    """A project with the workflow applied."""
    lines = [f'catalog = "{catalog}"', "run_lease = 4.0", "[spark]", f'remote = "{remote}"']
    lines += ["[spark.conf]", '"spark.sql.shuffle.partitions" = "2"']
    lines += ["[serve]", "workers = 1", "lease = 3.0", "port = 0", "shutdown_grace = 30.0"]
    (folder / "kilonova.toml").write_text("\n".join(lines))
    with kn.open_project(folder) as project:
        project.create()
        project.apply(serving)
        yield project


def soak(seconds: float, seed: int, servers: int = 3, pause: float = 4.0) -> Tally:
    """Let servers work for a while, and check what they did.

    Args:
        seconds: for how long data comes and processes are killed.
        seed: of all that is random.
        servers: how many there are.
        pause: how many seconds lie between two ingests at most.
    """
    tally = Tally()
    draw = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="kilonova-servers-"))
    began = time.monotonic()
    database = Database(folder)
    with connect_server() as remote, project_in(folder, database.url, remote) as project:
        team = Servers(folder, servers)
        feed = Feed(project, folder, seed, pause)
        try:
            feed.start()
            end = time.monotonic() + seconds
            while time.monotonic() < end and feed.is_alive():
                time.sleep(2 + draw.random() * 4)
                match draw.choices(("server", "worker", "database"), (6, 2, 2))[0]:
                    case "server":
                        team.kill(draw.randrange(servers))
                        tally.servers_killed += 1
                    case "worker":
                        tally.workers_killed += team.kill_worker(draw.randrange(servers))
                    case _:
                        database.restart(draw.choice(("fast", "immediate")))
                        tally.restarts += 1
                if codes := team.ended():
                    tally.problems.append(f"servers ended with {codes}")
                    break
            feed.stopping.set()
            feed.join(60)
            if feed.error is not None:
                tally.problems.append(f"an ingest failed: {feed.error}")
            last = _wait(project, tally)
        finally:
            codes = team.stop()
        if any(code not in (0, -signal.SIGTERM) for code in codes):  # one may have been about to start
            tally.problems.append(f"servers stopped with {codes}")
        _check(project, feed, last, tally)
    tally.seconds = time.monotonic() - began
    if tally.problems:
        print(f"what is left of it: {folder}", *_complaints(folder / "servers.log"), sep="\n", flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def _complaints(log: Path, count: int = 60) -> list[str]:
    """The last lines of the servers' log that are no mere report."""
    lines = log.read_text(errors="replace").splitlines()
    return [line[:2000] for line in lines if '"level": "info"' not in line.lower()][-count:]


def _wait(project: Project, tally: Tally) -> int:
    """Until nothing is due, waits or runs; a run whose process was killed goes on until its lease has run out.

    Returns:
        The newest firing then: the clock may fire again before all servers have stopped, and nobody takes that on.
    """
    patience = time.monotonic() + 300
    while True:
        with project.catalog.reading() as tx:
            idle = not firings.any_unended(tx) and not run_queries.runs(tx, 1, state=RunState.RUNNING)
            idle = idle and not _arrivals_waiting(tx)
            last = max((each.number for each in firings.firings(tx, 1)), default=0)
        if idle and not project.due():
            return last
        if time.monotonic() > patience:
            tally.problems.append(f"five minutes later there is work yet, due are {sorted(project.due())}")
            return last
        time.sleep(1)


def _arrivals_waiting(tx: Transaction) -> bool:
    """Whether a trigger has seen data and waits for more, or for its time: what is derived may be up to date before."""
    on_data = set().union(*scheduling.trigger_interests(tx).channels.values())
    rows = tx.connection.execute(scheduling.active_triggers()).all()
    return any(row.id in on_data and row.next_check is not None for row in rows)


def _check(project: Project, feed: Feed, last: int, tally: Tally) -> None:
    found: dict[str, Rows] = {}
    with project.catalog.reading() as tx:
        states = channel_store.channel_states(tx)
    for name, state in states.items():
        written = state.schema_at(state.latest_readable) is not None
        found[name] = Counter(tuple(row) for row in project.rows(name)[1]) if written else Counter()
    tally.batches = len(feed.sent)
    tally.unconfirmed = sum(not confirmed for _, _, confirmed in feed.sent)
    for number, source in enumerate(SOURCES):
        mine = [(rows, confirmed) for name, rows, confirmed in feed.sent if name == source]
        problem = _keyed_problem(mine, found[source]) if number % 2 else _appended_problem(mine, found[source])
        if problem:
            tally.problems.append(f"{source}: {problem}")
    for name, wanted in _derived(found).items():
        if found[name] != wanted:
            tally.problems.append(
                f"{name} has {dict(found[name] - wanted)} too many, {dict(wanted - found[name])} too few"
            )
    _check_catalog(project, last, tally)


def _appended_problem(mine: list[tuple[list[tuple[int, int, int]], bool]], found: Rows) -> str | None:
    left = Counter(found)
    for rows, confirmed in mine:
        there = Counter({row: left[row] for row in rows if left[row]})
        if there != Counter(rows) and (confirmed or there):
            return f"of batch {rows[0][2]} there is {dict(there)}"
        left -= there
    return f"there is more than was sent: {dict(left)}" if left else None


def _keyed_problem(mine: list[tuple[list[tuple[int, int, int]], bool]], found: Rows) -> str | None:
    allowed: dict[int, set[tuple[int, int, int] | None]] = {}
    for rows, confirmed in mine:
        for row in rows:
            before: set[tuple[int, int, int] | None] = allowed.get(row[0], {None})
            allowed[row[0]] = {row} if confirmed else {*before, row}
    there = {row[0]: row for row in found}
    for key in allowed.keys() | there.keys():
        if there.get(key) not in allowed.get(key, {None}):
            return f"{key} is {there.get(key)} instead of one of {allowed.get(key)}"
    return "a key is there more than once" if len(there) < found.total() else None


def _derived(found: dict[str, Rows]) -> dict[str, Rows]:
    wanted: dict[str, Rows] = {}
    for number, source in enumerate(SOURCES):
        groups: dict[int, list[int]] = {}
        for _, k, v in found[source].elements():
            groups.setdefault(k, []).append(v)
        wanted[f"g{number:02}"] = Counter((k, len(values), sum(values)) for k, values in groups.items())
    for number in range(10):
        one, other = found[SOURCES[number]], found[SOURCES[number + 10]]
        by_id: dict[int, list[int]] = {}
        for each, _, v in other.elements():
            by_id.setdefault(each, []).append(v)
        wanted[f"j{number}"] = Counter((each, v + w) for each, _, v in one.elements() for w in by_id.get(each, ()))
        parts = [*wanted[f"g{number:02}"], *wanted[f"g{number + 10}"]]
        if parts or found[f"u{number}"]:
            total = (sum(n for _, n, _ in parts), sum(v for _, _, v in parts)) if parts else (None, None)
            wanted[f"u{number}"] = Counter([total])
        wanted[f"picked_{number}"] = Counter(
            (each, v) for each, k, v in found[SOURCES[2 * number]].elements() if k == 1
        )
    return wanted


def _check_catalog(project: Project, last: int, tally: Tally) -> None:
    with project.catalog.reading() as tx:
        fired = firings.firings(tx, 1_000_000)
        past = run_queries.runs(tx)
    with project.catalog.writing() as tx:
        unseen = fire_triggers(tx, set().union(*scheduling.trigger_interests(tx).channels.values()))
    tally.firings, tally.runs = len(fired), len(past)
    tally.abandoned = sum(run.state is RunState.ABANDONED for run in past)
    tally.taken_over = sum(firing.attempts > 0 for firing in fired)
    twice = [
        key for key, count in Counter((one.trigger, one.binding, one.occurrence) for one in fired).items() if count > 1
    ]
    if twice:
        tally.problems.append(f"fired twice: {twice[:5]}")
    if unseen:
        tally.problems.append(f"arrivals have not fired for {unseen}")
    well = {one.number for one in fired if one.state in (FiringState.SUCCEEDED, FiringState.SKIPPED)}
    well |= {one.number for one in fired if one.state is FiringState.QUEUED and one.number > last}
    if failed := [one for one in fired if one.number not in well]:
        tally.problems.append(f"{len(failed)} firings have not succeeded: {failed[:3]}")
    if going := [run for run in past if run.state is RunState.RUNNING]:
        tally.problems.append(f"{len(going)} runs still go on: {going[:3]}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_servers", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    given = parser.parse_args()
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # its handlers may abort the child that restarts the database
    print(f"seed {given.seed}", flush=True)
    tally = soak(60 * given.minutes, given.seed)
    print(tally)
    sys.exit(bool(tally.problems))


if __name__ == "__main__":
    main()
