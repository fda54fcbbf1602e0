"""Kills processes that work on a project, at random moments, and checks that nothing was lost or done twice.

    python -m tests.soak --kills 200 --seed 1

Each round is a new project, on SQLite and PostgreSQL in turn. Most rounds have a Spark Connect server that stays
up while its clients are killed, so that Spark goes on writing for dead clients; every fourth starts a Spark of
its own in each process, which is killed with it. Now and then two processes work at once, and some are stopped
for longer than their leases last before they are killed. At the end of a round: every committed ingest is there
exactly once, one in flight all or not at all; what is derived equals what plain Python makes of it; no directory is
left over and no run still goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kilonova as kn
from kilonova.catalog import channel_store
from kilonova.catalog.read_models import run_queries
from kilonova.model.block import BlockName
from kilonova.model.run import RunState
from kilonova.warehouse.storage import Storage
from tests.databases import DIALECTS, empty_database, rows

LEASE = 2.0
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
ROOT = Path(__file__).parent.parent

_SERVER = """
import sys, time
from kilonova.warehouse.session import SparkSettings, open_session
open_session(SparkSettings(master="local[2]", conf=(
    ("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin"),
    ("spark.connect.grpc.binding.port", sys.argv[1]),
    ("spark.sql.shuffle.partitions", "2"),
)))
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass
class Tally:
    """What happened in a round, and what was wrong at its end."""

    database: str
    spark: str
    kills: int = 0
    batches: int = 0
    in_flight: int = 0
    in_flight_committed: int = 0
    taken_up: int = 0
    gave_way: int = 0
    steps: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


@contextlib.contextmanager
def connect_server() -> Iterator[str]:
    """A Spark Connect server on this machine; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        env=plain_environment(),
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the Spark Connect server did not start")
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def plain_environment() -> dict[str, str]:
    """The environment without what PySpark leaves in it once this process has used Spark Connect."""
    return {name: value for name, value in os.environ.items() if name not in ("SPARK_REMOTE", _CONNECT_MODE)}


class Round:
    """One project and its processes.

    Args:
        folder: the project's.
        catalog: the catalog's URL.
        remote: the Spark Connect server; None for a Spark in each process.
        seed: of all that is random.
    """

    def __init__(self, folder: Path, catalog: str, remote: str | None, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.workers = 0
        self.catalog = catalog
        self._configure(remote)

    def _configure(self, remote: str | None) -> None:
        lines = [f'catalog = "{self.catalog}"', f"run_lease = {LEASE}", "[spark]"]
        lines += [f'remote = "{remote}"'] if remote else ['master = "local[1]"']
        conf = {"spark.sql.shuffle.partitions": "2"} | ({} if remote else {"spark.driver.memory": "1g"})
        lines += ["[spark.conf]", *(f'"{key}" = "{value}"' for key, value in conf.items())]
        (self.folder / "kilonova.toml").write_text("\n".join(lines))

    def start(self) -> tuple[str, subprocess.Popen[bytes]]:
        self.workers += 1
        name = f"p{self.workers}"
        seed = str(self.random.randrange(1 << 30))
        command = [sys.executable, "-m", "tests.soak_worker", str(self.folder), "--name", name, "--seed", seed]
        with (self.folder / "workers.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, start_new_session=True, stdout=log, stderr=log, env=plain_environment()
            )
        return name, process

    def log(self) -> list[dict[str, Any]]:
        file = self.folder / "oracle.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def kill(self, longest: float, tally: Tally) -> None:
        """Start one process or two, let them work for a while, and kill them."""
        started = [self.start() for _ in range(2 if self.random.random() < 0.25 else 1)]
        names = {name for name, _ in started}
        impatient = self.random.random() < 0.1
        patience = time.monotonic() + 90
        while time.monotonic() < patience and not impatient:
            ready = {line["worker"] for line in self.log() if line["what"] in ("ready", "broke")}
            if names <= ready or any(process.poll() is not None for _, process in started):
                break
            time.sleep(0.05)
        for name, process in started:
            time.sleep(self.random.random() * longest)
            if self.random.random() < 0.25:  # for longer than its leases last, while another may take its work up
                self._stop(process)
            over = process.poll() is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            line = {"what": "killed", "worker": name, "time": time.monotonic()}
            with (self.folder / "oracle.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            if over:
                tally.problems.append(f"{name} ended by itself")
            else:
                tally.kills += 1

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a process and what it has started for longer than a lease, and let it go on for a moment."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGSTOP)
            time.sleep(LEASE + 1)
            os.killpg(process.pid, signal.SIGCONT)
            time.sleep(self.random.random())

    def check(self, tally: Tally, remote: str) -> None:
        """Let the heirs put everything right, and compare it with the oracle's log."""
        time.sleep(LEASE + 1)
        log = self.log()
        tally.problems += [line["error"] for line in log if line["what"] == "broke"]
        tally.gave_way = sum(line["what"] == "gave way" for line in log)
        tally.steps = sum(line["what"] == "did" for line in log)
        self._configure(remote)
        with kn.open_project(self.folder) as project:
            project.collect_garbage()
            found = self._relations(project)
            _check_events(log, found, tally)
            _check_users(log, found, tally)
            while project.run() is not None:
                pass
            for channel in found:
                project.compact(channel)
            _check_derived(self._relations(project), tally)
            self._check_leftovers(project, tally)

    def _relations(self, project: kn.Project) -> dict[str, Counter[tuple[Any, ...]]]:
        with project.catalog.reading() as tx:
            names = channel_store.channel_names(tx)
        return {name: Counter(tuple(row) for row in project.rows(name)[1]) for name in names}

    def _settled(self, project: kn.Project) -> set[BlockName]:
        """The directories that garbage collection leaves, once Spark no longer writes for clients long dead."""
        patience = time.monotonic() + 60
        while True:
            project.collect_garbage()
            with project.catalog.reading() as tx:
                states = channel_store.block_states(tx)
            on_disk = set(Storage(str(self.folder / ".kilonova" / "warehouse")).blocks())
            if all(states.get(number) == channel_store.LIVE for number in on_disk) or time.monotonic() > patience:
                return on_disk
            time.sleep(1)

    def _check_leftovers(self, project: kn.Project, tally: Tally) -> None:
        on_disk = self._settled(project)
        with project.catalog.reading() as tx:
            states = channel_store.block_states(tx)
            past = run_queries.runs(tx)
            left = {name: rows(tx, name) for name in ("pin", "claim")}
            open_points = [
                c.channel.name for c in channel_store.channel_states(tx).values() if c.latest_readable < c.latest
            ]
        tally.taken_up = sum(run.state is RunState.ABANDONED for run in past)
        live = {number for number, state in states.items() if state == channel_store.LIVE}
        if missing := live - on_disk:
            tally.problems.append(f"blocks {sorted(missing)} have lost their directories")
        if left_over := on_disk - live:
            tally.problems.append(f"directories {sorted(left_over)} are left over")
        if other := set(states.values()) - {channel_store.LIVE, channel_store.GONE}:
            tally.problems.append(f"blocks are still {other}")
        if going := [run.number for run in past if run.state is RunState.RUNNING]:
            tally.problems.append(f"runs {going} still go on")
        if open_points:
            tally.problems.append(f"points of {open_points} are still reserved")
        tally.problems += [f"a {name} is left: {found}" for name, found in left.items() if found]


def _check_events(log: list[dict[str, Any]], found: dict[str, Counter[tuple[Any, ...]]], tally: Tally) -> None:
    done = {line["batch"] for line in log if line["what"] == "ingested"}
    there: dict[str, Counter[tuple[Any, ...]]] = {}
    for row, count in found["events"].items():
        there.setdefault(row[0].rpartition("-")[0], Counter())[row] += count
    for line in log:
        if line["what"] != "ingesting" or line["channel"] != "events":
            continue
        tally.batches += 1
        batch, wanted = line["batch"], Counter(tuple(row) for row in line["rows"])
        got = there.pop(batch, Counter())
        if batch not in done:
            tally.in_flight += 1
            tally.in_flight_committed += bool(got)
        if got != wanted and (batch in done or got):
            tally.problems.append(f"batch {batch} is there as {got} instead of {wanted}")
    if there:
        tally.problems.append(f"batches {sorted(there)} come from nowhere")


def _check_users(log: list[dict[str, Any]], found: dict[str, Counter[tuple[Any, ...]]], tally: Tally) -> None:
    """The row of a user is that of some ingest after which no other certainly came."""
    ended = {line["batch"]: line["time"] for line in log if line["what"] == "ingested"}
    killed = {line["worker"]: line["time"] for line in log if line["what"] == "killed"}
    writes: dict[int, list[tuple[float, float, bool, str | None]]] = {}
    for line in log:
        if line["what"] == "ingesting" and line["channel"] == "users":
            end = ended.get(line["batch"], killed[line["worker"]])
            for user, name, deleted in line["rows"]:
                entry = (line["time"], end, line["batch"] in ended, None if deleted else name)
                writes.setdefault(user, []).append(entry)
    there: dict[int, str] = {}
    for (user, name), count in found["users"].items():
        if count != 1 or user in there:
            tally.problems.append(f"user {user} is there more than once")
        there[user] = name
    for user in writes.keys() | there.keys():
        mine = writes.get(user, [])
        latest = max((begin for begin, _, certain, _ in mine if certain), default=0.0)
        allowed = {name for _, end, _, name in mine if end >= latest}
        if not any(certain for _, _, certain, _ in mine):
            allowed.add(None)
        if there.get(user) not in allowed:
            tally.problems.append(f"user {user} is {there.get(user)} instead of one of {allowed}")


def _check_derived(found: dict[str, Counter[tuple[Any, ...]]], tally: Tally) -> None:
    events = list(found["events"].elements())
    names = {user: name for user, name in found["users"]}
    totals = {
        user: (sum(e[1] == user for e in events), sum(e[3] for e in events if e[1] == user)) for _, user, _, _ in events
    }
    words = {(event[2],) for event in events}
    wanted: dict[str, Counter[tuple[Any, ...]]] = {
        "totals": Counter((user, n, amount) for user, (n, amount) in totals.items()),
        "named": Counter((event[0], names[event[1]]) for event in events if event[1] in names),
        "unique": Counter(words),
        "seen": Counter(words),
        "summary": Counter([(len(events), sum(event[3] for event in events))] if events else []),
    }
    for channel, rows_wanted in wanted.items():
        if found[channel] != rows_wanted:
            more, less = found[channel] - rows_wanted, rows_wanted - found[channel]
            tally.problems.append(f"{channel} has {dict(more)} too many and {dict(less)} too few")


def soak(kills: int, seed: int, databases: tuple[str, ...], per_round: int, longest: float, own: int) -> list[Tally]:
    """Rounds until enough processes were killed.

    Args:
        kills: how many in all.
        seed: of all that is random.
        databases: of which kinds, in turn.
        per_round: kills per project.
        longest: how many seconds a process may work at most.
        own: every how many rounds each process has a Spark of its own; 0 for never.
    """
    tallies: list[Tally] = []
    with contextlib.ExitStack() as stack:
        remote = stack.enter_context(connect_server())
        while sum(tally.kills for tally in tallies) < kills:
            number = len(tallies)
            alone = bool(own) and number % own == own - 1
            tally = Tally(databases[number % len(databases)], "own" if alone else "Connect")
            tallies.append(tally)
            began = time.monotonic()
            folder = Path(tempfile.mkdtemp(prefix="kilonova-soak-"))
            with empty_database(tally.database) as url:
                work = Round(folder, url, None if alone else remote, seed * 1000 + number)
                wanted = min(per_round, kills - sum(other.kills for other in tallies))
                while tally.kills < wanted and not tally.problems:
                    work.kill(longest, tally)
                    print(f"\rround {number}: {tally.kills} killed ", end="", flush=True)
                try:
                    work.check(tally, remote)
                except Exception as error:
                    tally.problems.append(f"the check failed: {error!r}")
            tally.seconds = time.monotonic() - began
            print(f"in {tally.seconds:.0f} s: {'; '.join(tally.problems) or 'all is well'}", flush=True)
            if tally.problems:
                print(f"what is left of it: {folder}", flush=True)
            else:
                shutil.rmtree(folder)
    return tallies


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--database", choices=[*DIALECTS, "both"], default="both")
    parser.add_argument("--per-round", type=int, default=20, help="kills per project")
    parser.add_argument("--longest", type=float, default=5.0, help="seconds that a process may work at most")
    parser.add_argument("--own", type=int, default=4, help="every how many rounds Spark is killed too; 0 for never")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    databases = DIALECTS if given.database == "both" else (given.database,)
    tallies = soak(given.kills, given.seed, databases, given.per_round, given.longest, given.own)
    print(
        f"\n{'database':12}{'Spark':9}{'kills':>6}{'steps':>7}{'batches':>9}{'in flight':>11}{'committed':>11}", end=""
    )
    print(f"{'taken up':>10}{'gave way':>10}{'seconds':>9}  problems")
    for t in tallies:
        print(f"{t.database:12}{t.spark:9}{t.kills:6}{t.steps:7}{t.batches:9}{t.in_flight:11}", end="")
        print(f"{t.in_flight_committed:11}{t.taken_up:10}{t.gave_way:10}{t.seconds:9.0f}  {len(t.problems)}")
    problems = sum(len(tally.problems) for tally in tallies)
    print(f"{sum(t.kills for t in tallies)} processes killed, {problems} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
