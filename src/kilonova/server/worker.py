"""A worker: a process that carries out runs, one after the other, as its server says.

It starts Spark before it says that it is ready. What it is told comes by its standard input; when that ends, its server
is gone, and so is the worker, whatever it is doing: an unfinished run leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO, assert_never

from kilonova.catalog.firings import Batch, Claimed
from kilonova.engine.joint import Joint
from kilonova.errors import KilonovaError, may_pass
from kilonova.server.declaring import declared
from kilonova.server.messages import Alive, Done, Ended, Errand, Failed, Message, Outcome, Ready, Work, read, written
from kilonova.service.project import Project, open_project
from kilonova.service.reports import RunReport
from kilonova.warehouse.session import wait_for_java, when_java_ends

_BEAT = 5.0
"""Seconds between two signs of life."""


class _Out:
    """Where messages go, from any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, message: Message) -> None:
        with self._lock:
            self._stream.write(written(message) + "\n")
            self._stream.flush()


def work(directory: str) -> None:
    """Carry out runs until the server is gone.

    The first line of the standard input is JSON: the name under which its runs are known, and settings that go before
    the file's and the environment's.

    Args:
        directory: the project's directory.
    """
    said, out = _own_pipes()
    begun = json.loads(said.readline())
    given = queue.SimpleQueue[Work]()
    threading.Thread(target=_listen, args=(said, given), name="server", daemon=True).start()
    threading.Thread(target=_live, args=(out,), name="alive", daemon=True).start()
    with open_project(directory, **begun["settings"]) as project:
        project.owner = begun["owner"]
        project.warm()
        when_java_ends(_end_with_spark)
        if project.settings.serve.memory is not None:
            _limit(project.settings.serve.memory)
        out.say(Ready())
        while True:
            out.say(_carried_out(project, given.get()))


def _own_pipes() -> tuple[TextIO, _Out]:
    """Keep the pipes of messages from what user code, and the processes that it starts, take for standard streams."""
    said, out = os.fdopen(os.dup(0)), _Out(os.fdopen(os.dup(1), "w"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # what user code prints goes where logs go
    return said, out


def _live(out: _Out) -> None:
    """Tell the server every few seconds that this process is there, and so is its Java."""
    while True:
        wait_for_java()
        out.say(Alive())
        time.sleep(_BEAT)


def _end_with_spark() -> None:
    print("the Java process of Spark has ended, and so does the worker", file=sys.stderr, flush=True)
    os._exit(1)


def _carried_out(project: Project, work: Work) -> Done | Failed | Ended:
    match work:
        case Batch(parts=(claimed,)):
            return Ended((_outcome(project, claimed, None),))
        case Batch(parts=parts):
            try:
                with (
                    project.sharing(parts) as joint,
                    ThreadPoolExecutor(len(parts), thread_name_prefix="part") as pool,
                ):
                    return Ended(tuple(pool.map(lambda part: _outcome(project, part, joint), parts)))
            except KilonovaError as error:
                return Ended((Outcome(error.told, True),) * len(parts))
        case Errand():
            try:
                return Done(_done(project, work))
            except KilonovaError as error:
                return Failed(error.told, may_pass(error))
            except Exception as error:
                return Failed(_defect(error))
        case _:
            assert_never(work)


def _outcome(project: Project, claimed: Claimed, joint: Joint | None) -> Outcome:
    """Run what was claimed. A run that had begun tells of itself, and of its firings; a refused one does not."""
    begun: list[int] = []
    try:
        project.launch(claimed, joint=joint, begun=begun.append)
    except KilonovaError as error:
        return Outcome(error.told, may_pass(error) or joint is not None, bool(begun))
    except Exception as error:
        return Outcome(_defect(error), joint is not None, bool(begun))
    return Outcome()


def _defect(error: Exception) -> dict[str, Any]:
    return {"error": "defect", "problem": f"{type(error).__name__}: {error}", "hint": None}


def _done(project: Project, errand: Errand) -> Any:
    match errand:
        case Errand("run", arguments):
            done = project.run(**arguments, all_or_nothing=True)
            return None if done is None else done.runs[0].run
        case Errand("ingest", arguments):
            report = project.ingest(**arguments)
            return {"run": report.run, "repeated": report.repeated}
        case Errand("gather", arguments):
            return bool(project.take(**arguments))
        case Errand("compact", arguments):
            return _run(project.compact(**arguments))
        case Errand("tidy", arguments):
            return _run(project.tidy(**arguments))
        case Errand("page", arguments):
            return project.page(**arguments)
        case Errand("export", arguments):
            return project.export(**arguments)
        case Errand("apply", arguments):
            return _applied(project, **arguments)
        case _:
            raise AssertionError(errand.what)


def _applied(project: Project, *, dry_run: bool, **sent: Any) -> list[dict[str, Any]]:
    """The plans of workflows that somebody has sent, carried out together unless they are only asked for."""
    carry_out = project.plan_all if dry_run else project.apply_all
    return [plan.told for plan in carry_out(declared(project, **sent))]


def _run(report: RunReport | None) -> int | None:
    return None if report is None else report.run


def _listen(said: TextIO, given: queue.SimpleQueue[Work]) -> None:
    for line in said:
        message = read(line)
        assert isinstance(message, Batch | Errand)
        given.put(message)
    os._exit(0)


def _limit(megabytes: int) -> None:
    """Let this process, but not Spark's, which has started already, take so much more memory than it has now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmSize:"):
            now = int(line.split()[1]) << 10
            resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20),) * 2)


if __name__ == "__main__":
    work(sys.argv[1])
