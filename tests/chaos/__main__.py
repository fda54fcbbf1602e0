"""Servers with Sparks of their own, one fault after the other, and clients who were told that their rows are there.

    python -m tests.chaos --faults 1000

Servers, their workers, the workers' Java and processes of PostgreSQL are killed, or stopped and continued. Clients
leave before they have an answer, and crowd servers. Code of tasks ends its process or its Java, leaves children behind,
floods its output, closes pipes and writes into them. Disks are full or read-only for a while. Files of blocks vanish,
shrink, change a bit or are swapped, which verification has to name at once.

At the end every batch that a server has acknowledged is there once, every derived channel equals what plain Python
makes of the sources, all blocks are whole, all servers are ready, and nothing goes on or is left over.
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil

import kilonova as kn
from kilonova.catalog import channel_store, firings
from kilonova.catalog.read_models import run_queries
from kilonova.model.run import RunState
from kilonova.service.project import Project
from tests.chaos.client import Client, crowd, parquet
from tests.chaos.workflow import FOLDER, MISCHIEF, SOURCES, chaos
from tests.service.test_fsck import flip, swap
from tests.soak import ROOT, plain_environment
from tests.soak_servers import Database

SERVERS = 2
LEASE = 3.0
PAUSES = (1.0, 4.0, 12.0)
"""Seconds between faults at most: some come while servers get over the last, and some work is done between others."""
STALLED = 60.0
"""Seconds without an acknowledged batch after which no fault is added until there is one, which has to come in time."""
SETTLED = 300.0
"""Seconds that servers have to get over the last fault."""


@dataclass
class Tally:
    """What happened, and what was wrong."""

    seed: int
    database: str
    faults: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    requests_repeated: int = 0
    runs: int = 0
    firings: int = 0
    failed_firings: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Fleet:
    """Server processes, started again when they have ended.

    Args:
        folder: the project's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ports = [free_port() for _ in range(SERVERS)]
        self._processes = [self._start(port) for port in self.ports]

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "kilonova", "-C", str(self._folder), "serve", "--json", "--port", str(port)]
        with (self._folder / "servers.log").open("ab") as log:
            return subprocess.Popen(
                words,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env=plain_environment() | {FOLDER: str(self._folder)},
                start_new_session=True,
            )

    def kill(self, which: int) -> None:
        """Kill a server, and start another in its place."""
        self._processes[which].kill()
        self._processes[which].wait()
        self._processes[which] = self._start(self.ports[which])

    def server(self, which: int) -> psutil.Process:
        """A server."""
        return psutil.Process(self._processes[which].pid)

    def worker(self, which: int) -> psutil.Process | None:
        """A worker of a server, if it has one."""
        return next((each for each in self.server(which).children() if "python" in each.name()), None)

    def java(self, which: int) -> psutil.Process | None:
        """The Java of a worker of a server, if it has one."""
        return next((each for each in self.server(which).children(recursive=True) if each.name() == "java"), None)

    def ended(self) -> list[int]:
        """The exit codes of servers that ended by themselves."""
        return [code for process in self._processes if (code := process.poll()) is not None]

    def unready(self) -> list[str]:
        """What the servers that are not ready say."""
        found = []
        for port in self.ports:
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/ready", timeout=5)
            except httpx.HTTPError as error:
                found.append(repr(error))
            else:
                found += [] if answer.is_success else [answer.text]
        return found

    def stop(self) -> list[int]:
        """Ask all to stop; their exit codes."""
        for process in self._processes:
            process.terminate()
        return [process.wait(90) for process in self._processes]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass
class Storm:
    """All that faults are done to."""

    folder: Path
    project: Project
    fleet: Fleet
    database: Database | None
    draw: random.Random
    mounted: bool
    tally: Tally

    @property
    def warehouse(self) -> Path:
        return self.folder / ".kilonova" / "warehouse"

    def which(self) -> int:
        return self.draw.randrange(SERVERS)

    def moment(self) -> float:
        """Shorter or longer than a lease."""
        return self.draw.choice((0.5, 1.0, 2 * LEASE + 1))

    # Faults; each says whether it could be done

    def kill_server(self) -> bool:
        self.fleet.kill(self.which())
        return True

    def stop_server(self) -> bool:
        return stopped(self.fleet.server(self.which()), self.moment())

    def kill_worker(self) -> bool:
        worker = self.fleet.worker(self.which())
        return worker is not None and done(worker.kill)

    def stop_worker(self) -> bool:
        worker = self.fleet.worker(self.which())
        return worker is not None and stopped(worker, self.moment())

    def kill_java(self) -> bool:
        java = self.fleet.java(self.which())
        return java is not None and done(java.kill)

    def stop_java(self) -> bool:
        java = self.fleet.java(self.which())
        return java is not None and stopped(java, self.moment())

    def restart_database(self) -> bool:
        if self.database is None:
            return False
        self.database.restart(self.draw.choice(("fast", "immediate")))
        return True

    def stop_backend(self) -> bool:
        """Stop a process of the database that serves a client, perhaps one that holds the writers' lock."""
        if self.database is None:
            return False
        backends = [each for each in self.database.process().children() if "postgres" in " ".join(each.cmdline()[1:])]
        return bool(backends) and stopped(self.draw.choice(backends), self.moment())

    def stop_database(self) -> bool:
        if self.database is None:
            return False
        processes = [self.database.process(), *self.database.process().children()]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        time.sleep(self.moment())
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        return True

    def crowd_server(self) -> bool:
        crowd(self.fleet.ports[self.which()], 300, 1.0)
        return True

    def misbehave(self) -> bool:
        """Have the code of a task misbehave the next time that it runs, and see to it that it runs."""
        (self.folder / "mischief").write_text(self.draw.choice(MISCHIEF))
        return True

    def fill_disk(self) -> bool:
        if not self.mounted:
            return False
        filler = self.warehouse / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * (1 << 20))
        time.sleep(self.moment())
        filler.unlink()
        return True

    def lock_disk(self) -> bool:
        """Make the disk read-only for a while; that cannot be done while a file is being written."""
        if not self.mounted or not remounted(self.warehouse, "ro"):
            return False
        time.sleep(self.moment())
        while not remounted(self.warehouse, "rw"):
            time.sleep(0.1)
        return True

    def damage_idle(self) -> bool:
        """Damage blocks that nobody reads in ways that show by their content alone, and mend them again."""
        blocks = sorted(self.blocks("idle"))
        one, other = self.draw.sample(blocks, 2)
        if self.draw.random() < 0.5:
            return self.damaged("idle", [one], lambda: flip(data(one), self.draw))
        return self.damaged("idle", [one, other], lambda: swap(data(one), data(other)))

    def damage_block(self) -> bool:
        """Damage a block that may be read at any time in ways that show by names and sizes, and mend it again."""
        channel = self.draw.choice(("appended", "keyed", "sums", "joined", "picked"))
        blocks = sorted(self.blocks(channel))
        if not blocks:
            return False
        block = self.draw.choice(blocks)
        file = data(block)
        methods: list[Callable[[], Any]] = [
            file.unlink,
            lambda: os.truncate(file, self.draw.choice((0, file.stat().st_size // 2))),
            lambda: shutil.copy(file, block / "part-99999.parquet"),
        ]
        return self.damaged(channel, [block], self.draw.choice(methods))

    def blocks(self, channel: str) -> list[Path]:
        """The directories of the live blocks of a channel that have files."""
        with self.project.catalog.reading() as tx:
            found = [self.warehouse / block.name.directory for block in channel_store.channel_state(tx, channel).blocks]
        return [place for place in found if place.is_dir() and list(place.glob("part-*"))]

    def damaged(self, channel: str, places: list[Path], damage: Callable[[], Any]) -> bool:
        """Damage blocks, see whether that is named, and mend them; what was collected meanwhile says nothing."""
        with tempfile.TemporaryDirectory(dir=self.folder) as aside:
            for place in places:
                shutil.copytree(place, Path(aside) / place.name)
            try:
                damage()
            except OSError:  # it has just been collected
                return False
            named = {each.block.written.name.directory for each in self.project.fsck([channel], checksums=True).damaged}
            left = set(self.blocks(channel))
            if unnamed := [place.name for place in places if place.name not in named and place in left]:
                self.tally.problems.append(f"damage of {unnamed} was not named")
            for place in places:
                if place.is_dir():
                    for file in (Path(aside) / place.name).iterdir():
                        file.replace(place / file.name) if same_disk(file, place) else shutil.copy2(file, place)
                    for file in place.glob("part-99999.parquet"):
                        file.unlink()
        return True


def data(place: Path) -> Path:
    """The first file with rows of a block."""
    return min(place.glob("part-*"))


def same_disk(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


def done(act: Callable[[], Any]) -> bool:
    try:
        act()
    except psutil.NoSuchProcess:
        return False
    return True


def stopped(process: psutil.Process, seconds: float) -> bool:
    """Stop a process for a while."""
    if not done(process.suspend):
        return False
    time.sleep(seconds)
    done(process.resume)
    return True


def mounted(place: Path) -> bool:
    """Give a directory a file system of its own, which can be full or read-only."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", str(place)]
    return not os.geteuid() and not subprocess.run(mount, capture_output=True, check=False).returncode


def remounted(place: Path, how: str) -> bool:
    return not subprocess.run(
        ["mount", "-o", f"remount,{how}", str(place)], capture_output=True, check=False
    ).returncode


FAULTS: dict[Callable[[Storm], bool], int] = {
    Storm.kill_server: 3,
    Storm.stop_server: 3,
    Storm.kill_worker: 3,
    Storm.stop_worker: 3,
    Storm.kill_java: 3,
    Storm.stop_java: 3,
    Storm.restart_database: 2,
    Storm.stop_backend: 3,
    Storm.stop_database: 2,
    Storm.crowd_server: 2,
    Storm.misbehave: 4,
    Storm.fill_disk: 2,
    Storm.lock_disk: 2,
    Storm.damage_idle: 3,
    Storm.damage_block: 4,
}
"""What is done, and how often."""


def settings_text(catalog: str) -> str:
    conf = {"spark.sql.shuffle.partitions": "1", "spark.ui.enabled": "false", "spark.driver.memory": "1g"}
    return "\n".join(
        (
            f'catalog = "{catalog}"',
            "run_lease = 4.0",
            "[spark]",
            'master = "local[1]"',
            "[spark.conf]",
            *(f'"{key}" = "{value}"' for key, value in conf.items()),
            "[serve]",
            f"workers = 1\nlease = {LEASE}\nshutdown_grace = 30.0\nmaintenance_interval = 5.0\nrun_timeout = 60.0",
            "max_connections = 100\nheader_timeout = 3.0",
            'rate_limit = "6000 per minute"',
        )
    )


@contextlib.contextmanager
def project_in(folder: Path, catalog: str) -> Iterator[tuple[Project, bool]]:
    """A project with the workflow applied, and whether its warehouse is a disk of its own."""
    (folder / "kilonova.toml").write_text(settings_text(catalog))
    place = folder / ".kilonova" / "warehouse"
    place.mkdir(parents=True)
    own = mounted(place)
    try:
        with kn.open_project(folder, spark={"analyse": False}) as project:
            project.create()
            project.apply(chaos)
            yield project, own
    finally:
        if own:
            subprocess.run(["umount", "--lazy", str(place)], check=False)


def soak(faults: int, seconds: float, seed: int, database: str) -> Tally:
    """Let servers work through faults, and check what they did.

    Args:
        faults: how many at most.
        seconds: for how long at most, from when all servers are ready.
        seed: of all that is random.
        database: the kind of the catalog: sqlite or postgresql.
    """
    tally, started = Tally(seed=seed, database=database), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="kilonova-chaos-"))
    os.environ[FOLDER] = str(folder)
    server = Database(folder) if database == "postgresql" else None
    with project_in(folder, server.url if server else f"sqlite:///{folder / 'catalog.db'}") as (project, own):
        fleet = Fleet(folder)
        storm = Storm(folder, project, fleet, server, random.Random(seed), own, tally)
        client = Client(fleet.ports, SOURCES, seed)
        try:
            settle(fleet, tally)
            for number in range(4):
                body = parquet([(number * 10 + each, each, number) for each in range(10)])
                url = f"http://127.0.0.1:{fleet.ports[0]}/api/v1/channels/idle/blocks?format=parquet"
                httpx.post(url, content=body, timeout=60).raise_for_status()
            client.start()
            began = time.monotonic()
            while tally.faults.total() < faults and time.monotonic() < began + seconds and not tally.problems:
                time.sleep(storm.draw.random() * storm.draw.choice(PAUSES))
                client.await_progress(STALLED)
                fault = storm.draw.choices(list(FAULTS), list(FAULTS.values()))[0]
                if fault(storm):
                    tally.faults[fault.__name__] += 1
                    print(f"\r{tally.faults.total()} faults, the last was {fault.__name__:20}", end="", flush=True)
                if codes := fleet.ended():
                    tally.problems.append(f"servers ended with {codes}")
                if client.problem is not None:
                    tally.problems.append(client.problem)
            print(flush=True)
            (folder / "mischief").unlink(missing_ok=True)
            client.stopping.set()
            client.join(SETTLED)
            if client.is_alive() or client.problem is not None:
                tally.problems.append(f"the client could not end: {client.problem}")
            settle(fleet, tally)
            wait(project, tally)
        finally:
            codes = fleet.stop()
        if any(code not in (0, -signal.SIGTERM) for code in codes):
            tally.problems.append(f"servers stopped with {codes}")
        check(project, client, tally)
    tally.seconds = time.monotonic() - started
    if tally.problems:
        print(f"what is left of it: {folder}", flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def settle(fleet: Fleet, tally: Tally) -> None:
    """Until all servers are ready."""
    patience = time.monotonic() + SETTLED
    while unready := fleet.unready():
        if time.monotonic() > patience:
            tally.problems.append(f"servers are not ready after {SETTLED:.0f} seconds: {unready}")
            return
        time.sleep(1)


def wait(project: Project, tally: Tally) -> None:
    """Until nothing waits or runs."""
    patience = time.monotonic() + SETTLED
    while True:
        with project.catalog.reading() as tx:
            going = run_queries.runs(tx, 1, state=RunState.RUNNING)
            unended = firings.any_unended(tx)
        if not going and not unended:
            return
        if time.monotonic() > patience:
            tally.problems.append(f"after {SETTLED:.0f} seconds there is work yet: {going}")
            return
        time.sleep(1)


def check(project: Project, client: Client, tally: Tally) -> None:
    """Compare everything with what the client was told."""
    tally.batches, tally.requests_repeated = len(client.sent), client.again
    project.resources.recover_expired_runs()
    while project.run() is not None:
        pass
    found = {name: Counter(tuple(row) for row in rows_of(project, name)) for name in [*SOURCES, *derived({})]}
    wanted: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in SOURCES}
    latest: dict[int, tuple[Any, ...]] = {}
    for channel, rows in client.sent:
        if channel == "keyed":
            latest |= {row[0]: row for row in rows}
        else:
            wanted[channel] += Counter(rows)
    wanted["keyed"] = Counter(latest.values())
    wanted |= derived(wanted)
    for name, rows_wanted in wanted.items():
        if found[name] != rows_wanted:
            more, less = found[name] - rows_wanted, rows_wanted - found[name]
            tally.problems.append(f"{name} has {dict(more)} too many and {dict(less)} too few")
    verified = project.fsck(checksums=True)
    if verified.damaged:
        tally.problems.append(f"blocks are damaged: {[each.block.written.name.directory for each in verified.damaged]}")
    project.collect_garbage()
    with project.catalog.reading() as tx:
        past, fired = run_queries.runs(tx), firings.firings(tx, 1_000_000)
        states = channel_store.block_states(tx)
    tally.runs, tally.firings = len(past), len(fired)
    tally.failed_firings = sum(each.state.value == "failed" for each in fired)
    if going := [run.number for run in past if run.state is RunState.RUNNING]:
        tally.problems.append(f"runs {going} still go on")
    if left := set(states.values()) - {channel_store.LIVE, channel_store.GONE}:
        tally.problems.append(f"blocks are still {left}")


def rows_of(project: Project, channel: str) -> list[Any]:
    with project.catalog.reading() as tx:
        state = channel_store.channel_state(tx, channel)
    return project.rows(channel, limit=None)[1] if state.schema_at(state.latest_readable) is not None else []


def derived(found: dict[str, Counter[tuple[Any, ...]]]) -> dict[str, Counter[tuple[Any, ...]]]:
    """What is to be derived from the sources, by plain Python."""

    def sums(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
        groups: dict[int, list[int]] = {}
        for _, k, v in rows.elements():
            groups.setdefault(k, []).append(v)
        return Counter((k, len(values), sum(values)) for k, values in groups.items())

    nothing: Counter[tuple[Any, ...]] = Counter()
    appended, keyed = found.get("appended", nothing), found.get("keyed", nothing)
    keys = {row[0]: row[2] for row in keyed}
    parts = [*sums(appended), *sums(keyed)]
    # `total` is not run before its sources have a point.
    total = [(sum(n for _, n, _ in parts), sum(v for _, _, v in parts))] if parts else []
    return {
        "sums": sums(appended),
        "latest": sums(keyed),
        "total": Counter(total),
        "joined": Counter((row[0], row[2] + keys[row[0] % 100]) for row in appended.elements() if row[0] % 100 in keys),
        "picked": Counter((row[0], row[2]) for row in found.get("other", nothing).elements() if row[1] == 1),
        "survived": Counter((row[0], row[2]) for row in found.get("poked", nothing).elements()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--database", choices=["sqlite", "postgresql"], help="drawn if left out")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    database = given.database or ("sqlite", "postgresql")[given.seed % 2]
    tally = soak(given.faults, 60 * given.minutes, given.seed, database)
    print(tally)
    sys.exit(bool(tally.problems))


if __name__ == "__main__":
    main()
