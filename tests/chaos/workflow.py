"""The workflow of the chaos test: appended and keyed sources, views over them, and a task whose code misbehaves.

`idle` is read by nobody: its blocks can be damaged at any time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

import kilonova as kn

COLUMNS = "id bigint, k int, v bigint"
SOURCES = ("appended", "keyed", "other", "poked")
MISCHIEF = ("exit", "fork", "flood", "close", "java", "garbage")
"""What the code of a task does: end its process, leave a child behind, write without end, close its pipes and sockets,
end its Java, write into whatever pipe is open."""

FOLDER = "KILONOVA_CHAOS"
"""The environment variable that says where a file with the next mischief is."""

chaos = kn.Workflow("chaos")
chaos.channel("appended", COLUMNS)
chaos.channel("keyed", COLUMNS, key="id")
chaos.channel("other", COLUMNS)
chaos.channel("poked", COLUMNS)
chaos.channel("idle", COLUMNS)
chaos.view("sums", "SELECT k, count(*) AS n, sum(v) AS v FROM appended GROUP BY k")
chaos.view("latest", "SELECT k, count(*) AS n, sum(v) AS v FROM keyed GROUP BY k")
chaos.view("joined", "SELECT a.id, a.v + b.v AS v FROM appended AS a JOIN keyed AS b ON a.id % 100 = b.id")
chaos.view("total", "SELECT sum(n) AS n, sum(v) AS v FROM (SELECT * FROM sums UNION ALL SELECT * FROM latest)")


@chaos.task(schema="id bigint, v bigint")
def picked(other: kn.New) -> kn.Delta:
    return other.where("k = 1").select("id", "v")


@chaos.task(schema="id bigint, v bigint")
def survived(poked: kn.New) -> kn.Delta:
    misbehave()
    return poked.select("id", "v")


chaos.workflowette("views", ["sums", "latest", "total"], on=[kn.arrival("appended"), kn.arrival("keyed")])
chaos.workflowette("join", ["joined"], on=[kn.arrival("appended", rows=30, age="2 seconds"), kn.every("7 seconds")])
chaos.workflowette("picking", ["picked"], on=[kn.arrival("other"), kn.cron("* * * * *")])
chaos.workflowette("poking", ["survived"], on=[kn.arrival("poked")])


def misbehave() -> None:
    """Do the mischief that is asked for, once."""
    file = Path(os.environ[FOLDER]) / "mischief"
    try:
        what = file.read_text()
        file.unlink()
    except FileNotFoundError:
        return
    match what:
        case "exit":
            os._exit(3)
        case "fork":
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        case "flood":
            for number in range(200_000):
                print("mischief", number)
            sys.stderr.write("mischief " * 1_000_000)
        case "close":
            for descriptor in _descriptors(stat.S_ISFIFO, stat.S_ISSOCK):
                os.close(descriptor)
        case "java":
            for process in psutil.Process().children(recursive=True):
                if process.name() == "java":
                    process.kill()
        case "garbage":
            for descriptor in _descriptors(stat.S_ISFIFO):
                with contextlib.suppress(OSError):
                    os.write(descriptor, b"\x00mischief\n" * 10)


def _descriptors(*kinds: Callable[[int], bool]) -> list[int]:
    """The open descriptors of some kinds beside the standard streams; files of a database are nobody's to damage."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and any(kind(os.fstat(int(name)).st_mode) for kind in kinds):
                found.append(int(name))
    return found
