"""Worker process: executes the runs that its server assigns, one after the other.

It starts Spark before it reports that it is ready. Work arrives on its standard input; when that closes, the server is
gone and the worker exits at once, even during a run: an unfinished run leaves nothing behind. A worker that is
dismissed stops its Spark, which removes its temporary files.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TextIO, assert_never

from kilonova.catalog.firings import Batch
from kilonova.declare.schedules import time_of
from kilonova.declare.workflow import Declared
from kilonova.errors import KilonovaError, describe_defect, is_transient
from kilonova.model.sample import sample_of
from kilonova.scheduler.messages import (
    BatchEnded,
    Dismissal,
    FiringOutcome,
    Message,
    OperationDone,
    OperationFailure,
    OperationProgressed,
    OperationRequest,
    Work,
    WorkerAlive,
    WorkerReady,
    decode,
    encode,
)
from kilonova.scheduler.workflow_loader import load_workflows
from kilonova.service.fsck import FsckReport
from kilonova.service.project import Project, open_project
from kilonova.service.reports import RunReport
from kilonova.service.runner import ClaimedRun
from kilonova.warehouse.session import wait_for_java, when_java_ends

_BEAT = 5.0
"""Seconds between two heartbeats."""


class _Out:
    """Thread-safe writer of messages to the server."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, message: Message) -> None:
        with self._lock:
            self._stream.write(encode(message) + "\n")
            self._stream.flush()


def work(directory: str) -> None:
    """Execute work for the project of a directory until dismissed, or until the server is gone.

    The first line of the standard input is JSON: the owner name of its runs, and settings that override the file's
    and the environment's.
    """
    requests, out = _own_pipes()
    begun = json.loads(requests.readline())
    given = queue.SimpleQueue[Work | Dismissal]()
    threading.Thread(target=_listen, args=(requests, given), name="server", daemon=True).start()
    threading.Thread(target=_live, args=(out,), name="alive", daemon=True).start()
    with open_project(directory, **begun["settings"]) as project:
        project.resources.owner = begun["owner"]
        project.resources.warm()
        when_java_ends(_end_with_spark)
        if project.settings.serve.python_memory_mb is not None:
            _limit(project.settings.serve.python_memory_mb)
        out.say(WorkerReady())
        while not isinstance(asked := given.get(), Dismissal):
            out.say(_carried_out(project, asked, lambda progress: out.say(OperationProgressed(progress))))


def _own_pipes() -> tuple[TextIO, _Out]:
    """Separate the message pipes from the standard streams of user code and of the processes that it starts."""
    requests, out = os.fdopen(os.dup(0)), _Out(os.fdopen(os.dup(1), "w"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # user code's standard output goes to the log
    return requests, out


def _live(out: _Out) -> None:
    """Report to the server every few seconds that this process and its Java process are alive."""
    while True:
        wait_for_java()
        out.say(WorkerAlive())
        time.sleep(_BEAT)


def _end_with_spark() -> None:
    print("the Java process of Spark has ended; the worker stops", file=sys.stderr, flush=True)
    os._exit(1)


Report = Callable[[str], None]
"""Callback for what an operation does now, as text for users."""


def _carried_out(project: Project, work: Work, report: Report) -> OperationDone | OperationFailure | BatchEnded:
    match work:
        case Batch(claims=parts, merged=False):
            return BatchEnded(tuple(map(_outcome, project.runner.run_claims(parts))))
        case Batch(claims=parts):
            try:
                with (
                    project.runner.shared_batch(parts) as shared_steps,
                    ThreadPoolExecutor(len(parts), thread_name_prefix="part") as pool,
                ):
                    run = partial(project.runner.run_claim, shared_steps=shared_steps)
                    return BatchEnded(tuple(pool.map(lambda part: _outcome(partial(run, part), merged=True), parts)))
            except KilonovaError as error:
                return BatchEnded((FiringOutcome(error.to_dict(), True),) * len(parts))
        case OperationRequest():
            try:
                return OperationDone(_done(project, work, report))
            except Exception as error:
                return OperationFailure(_told(error), is_transient(error))
        case _:
            assert_never(work)


def _outcome(run: ClaimedRun, *, merged: bool = False) -> FiringOutcome:
    """Run a claim. A run that had begun records its own failure and that of its firings; a rejected one does not."""
    begun: list[int] = []
    try:
        run(begun=begun.append)
    except Exception as error:
        return FiringOutcome(_told(error), is_transient(error) or merged, bool(begun))
    return FiringOutcome()


def _told(error: Exception) -> dict[str, Any]:
    if isinstance(error, KilonovaError):
        return error.to_dict()
    return describe_defect(error)


def _done(project: Project, operation: OperationRequest, report: Report) -> Any:
    match operation:
        case OperationRequest("run", arguments):
            ended = project.run(**arguments, all_or_nothing=True)
            return None if ended is None else ended.runs[0].run
        case OperationRequest("ingest", arguments):
            done = project.ingest(**arguments)
            return {"run": done.run, "repeated": done.repeated, "malformed": done.malformed}
        case OperationRequest("ingest-files", arguments):
            return bool(project.directories.ingest_ready(**arguments))
        case OperationRequest("compact", arguments):
            return _run(project.compact(**arguments))
        case OperationRequest("maintain", arguments):
            return _run(project.maintenance.maintain(**arguments))
        case OperationRequest("page", arguments):
            return project.row_reader.page(**arguments)
        case OperationRequest("repair", arguments):
            return _repaired(project.fsck(**arguments, repair=True))
        case OperationRequest("export", arguments):
            return project.export(**arguments)
        case OperationRequest("apply-deferred"):
            return project.registration.apply_deferred()
        case OperationRequest("apply", arguments):
            return _applied(project, **arguments)
        case OperationRequest("rollback", arguments):
            return _rolled_back(project, **arguments)
        case OperationRequest("retract", arguments):
            return project.retract(**arguments).to_dict()
        case OperationRequest("preview", arguments):
            return _previewed(project, report, **arguments)
        case _:
            raise AssertionError(operation.what)


def _applied(
    project: Project,
    *,
    dry_run: bool,
    defer: str | None,
    same_logic: list[str],
    new_version: list[str],
    expected: list[str] | None,
    **source: Any,
) -> list[dict[str, Any]]:
    """Return the plans of workflows; apply them together unless it is a dry run."""
    until = None if defer is None else time_of(defer, datetime.now(UTC))
    carry_out = project.plan_all if dry_run else partial(project.apply_all, defer=until, expected=expected)
    plans = carry_out(load_workflows(project, **source), same_logic=same_logic, new_version=new_version)
    return [plan.to_dict() for plan in plans]


def _rolled_back(
    project: Project, *, task: str, version: int, dry_run: bool, defer: str | None, expected: str | None
) -> list[dict[str, Any]]:
    """Return the plan of a rollback; apply it unless it is a dry run."""
    until = None if defer is None else time_of(defer, datetime.now(UTC))
    return [project.rollback(task, version=version, dry_run=dry_run, defer=until, expected=expected).to_dict()]


def _previewed(
    project: Project,
    report: Report,
    *,
    rollback: dict[str, Any] | None = None,
    source: dict[str, Any] | None = None,
    sample: str | None = None,
    sample_by: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """Return the preview of workflows, or of a rollback."""
    if rollback is not None:
        workflows: Sequence[Declared] = [project.registration.earlier(**rollback)]
    else:
        assert source is not None
        workflows = load_workflows(project, **source)
    chosen = None if sample is None else sample_of(sample, tuple(sample_by))
    return project.preview(workflows, progress=report, sample=chosen, **options).to_dict()


def _repaired(found: FsckReport) -> dict[str, Any]:
    """Return the damaged channels that were repaired, and the remedies for the others."""
    left = [{"channel": each.channel, "remedy": str(each)} for each in found.remedies if not each.is_automatic]
    return {"blocks": found.blocks, "mended": list(found.mended), "left": left}


def _run(report: RunReport | None) -> int | None:
    return None if report is None else report.run


def _listen(requests: TextIO, given: queue.SimpleQueue[Work | Dismissal]) -> None:
    for line in requests:
        message = decode(line)
        assert isinstance(message, Batch | OperationRequest | Dismissal)
        given.put(message)
    os._exit(0)


def _limit(megabytes: int) -> None:
    """Limit this process to so much more memory than it has now; Spark's has started already and is not limited."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmSize:"):
            now = int(line.split()[1]) << 10
            resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20),) * 2)


if __name__ == "__main__":
    work(sys.argv[1])
