"""A process of the soak test: works on a project in random order until somebody kills it.

It writes down in the oracle's log what it is about to ingest, and that it has, each line forced to the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import kilonova as kn
from kilonova.errors import Conflict, LeaseLost
from kilonova.service.reports import BindingsFailed

USERS, WORDS = 12, 40


class Log:
    """Lines of JSON that survive whatever happens after them."""

    def __init__(self, path: str, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._worker = worker

    def write(self, what: str, **fields: Any) -> None:
        line = json.dumps({"what": what, "worker": self._worker, "time": time.monotonic(), **fields})
        os.write(self._file, f"{line}\n".encode())
        os.fsync(self._file)


class Worker:
    def __init__(self, project: kn.Project, log: Log, name: str, seed: int) -> None:
        self.project, self.log, self.name = project, log, name
        self.random = random.Random(seed)
        self.ingests = 0

    def ingest(self, channel: str) -> None:
        self.ingests += 1
        batch = f"{self.name}-{self.ingests}"
        draw = self.random
        if channel == "events":
            schema = "id string, user int, word string, amount bigint"
            rows: list[tuple[Any, ...]] = [
                (f"{batch}-{n}", draw.randrange(USERS), f"w{draw.randrange(WORDS)}", draw.randrange(-5, 100))
                for n in range(draw.randrange(1, 30))
            ]
        else:
            schema = "user int, name string, _deleted boolean"
            chosen = draw.sample(range(USERS), draw.randrange(1, 4))
            rows = [(user, f"{batch}-{user}", draw.random() < 0.2) for user in chosen]
        frame = self.project.warehouse.spark.createDataFrame(rows, schema)
        self.log.write("ingesting", batch=batch, channel=channel, rows=rows)
        self.project.ingest(channel, frame)
        self.log.write("ingested", batch=batch)

    def step(self) -> str:
        every = ("events", "users", "totals", "named", "unique", "seen", "summary")
        what = self.random.choices(("events", "users", "run", "compact", "collect"), (4, 2, 5, 2, 1))[0]
        match what:
            case "events" | "users":
                self.ingest(what)
            case "run":
                self.project.run()
            case "compact":
                self.project.compact(self.random.choice(every))
            case "collect":
                self.project.collect_garbage()
        return what

    def go_on(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            try:
                self.log.write("did", step=self.step())
            except (Conflict, LeaseLost, BindingsFailed) as error:
                failed = error.report.failed.values() if isinstance(error, BindingsFailed) else [error]
                if not all(isinstance(each, (Conflict, LeaseLost)) for each in failed):
                    raise
                self.log.write("gave way", error=type(error).__name__)
                time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("project", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=600.0)
    given = parser.parse_args()
    log = Log(str(given.project / "oracle.jsonl"), given.name)
    log.write("started", pid=os.getpid())
    try:
        from tests.soak_workflow import soak

        with kn.open_project(given.project) as project:
            project.create()
            project.apply(soak)
            _ = project.warehouse
            log.write("ready")
            Worker(project, log, given.name, given.seed).go_on(time.monotonic() + given.seconds)
    except Exception:
        log.write("broke", error=traceback.format_exc())
        sys.exit(1)


if __name__ == "__main__":
    main()
