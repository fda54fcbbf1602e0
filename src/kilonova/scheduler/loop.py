"""Server loop: fires triggers, starts due bindings, and recovers from failed servers (Nova, section 4).

Any number of servers can share one catalog. All of their state is in it, apart from the set of triggers to evaluate
after events: evaluating one too many does no harm, and at the start all are evaluated.

Each step sends a heartbeat, handles the workers' messages, reads new events, records which bounds are violated by now,
and in one transaction fires the triggers that events affect and claims what the scheduler decides to start. A step that
fails because the database is unavailable is retried.

At most `serve.workers` runs are executed at once. Short operations (`_SHORT`) do not count as runs, and do not wait for
them either: if no worker becomes free for a while, an extra one is started.
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, assert_never

from kilonova.catalog import events, files, firings, runs, scheduling, servers
from kilonova.catalog.change_notifier import ChangeNotifier
from kilonova.catalog.compaction_stats import delta_stacks
from kilonova.catalog.database import Transaction
from kilonova.catalog.firings import Batch, Claim
from kilonova.catalog.scheduling import TriggerInterests
from kilonova.errors import Cancelled, CatalogUnavailable, Conflict, SparkUnavailable
from kilonova.model.event import Event, EventKind
from kilonova.model.run import RunFailure
from kilonova.schedule.compaction import channels_to_merge, select_for_compaction
from kilonova.schedule.scheduler import Scheduler, TriggerScheduler
from kilonova.scheduler.bound_monitor import BoundMonitor
from kilonova.scheduler.bound_planner import BoundPlanner
from kilonova.scheduler.directory_watcher import DirectoryWatcher
from kilonova.scheduler.messages import (
    BatchEnded,
    Dismissal,
    Message,
    OperationDone,
    OperationFailure,
    OperationProgressed,
    OperationRequest,
    Work,
    WorkerAlive,
    WorkerReady,
)
from kilonova.scheduler.notifier import Notifier
from kilonova.scheduler.workers import Heard, Worker
from kilonova.service.project import open_project
from kilonova.service.spark_operations import OperationFailed

_RETRY = 0.5
"""Seconds until a step is retried that failed because the database is unavailable."""

_LAST = 10.0
"""Maximum seconds for delivering the last events to subscriptions before the server ends."""

_RESTART = 1.0
"""Seconds until a worker is replaced that ended before it was ready; doubled each time, up to a minute."""

_OBEY = 10.0
"""Seconds within which a cancelled run, or a dismissed worker, has to end before its process is killed."""

_SHORT = frozenset({"ingest", "apply", "apply-deferred", "rollback", "retract", "page"})
"""Operations that end soon, because their input or their result is small; all others count as runs."""

_STALL = 1.0
"""Seconds for which short operations wait, while no worker becomes free, until an extra worker is started."""

_SPARE = 60.0
"""Seconds after which an extra worker is dismissed that has not been needed."""

_SCHEDULER = TriggerScheduler()
"""Scheduler of servers that are not given another one."""

log = logging.getLogger(__name__)

Log = Callable[[str, Event | None], None]
"""Callback for log messages: a sentence, and the catalog's event behind it, if any. Problems go to `log`."""


class Server:
    """A server of a project's catalog.

    Args:
        directory: the project's directory.
        settings: settings that override the file's and the environment's.
        log: called with log messages.
        until_idle: stop once nothing is due and nothing runs, instead of waiting for more.
        hire: starts a worker.
        scheduler: decides what runs.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Any],
        log: Log,
        *,
        until_idle: bool = False,
        hire: Callable[[Path, Mapping[str, Any], Heard], Worker] = Worker,
        scheduler: Scheduler = _SCHEDULER,
    ) -> None:
        self._directory = directory
        self._given = settings
        self._project = open_project(directory, **settings)
        self._catalog = self._project.catalog
        self._settings = self._project.settings.serve
        self._lease = timedelta(seconds=self._settings.lease)
        self._log = log
        self._until_idle = until_idle
        self._hire = hire
        self._scheduler = scheduler
        self._watch = ChangeNotifier(self._catalog)
        self._first = _new_name()
        self._deliverer = Notifier(self._project, self._lease, self._first)
        self._bounds = BoundMonitor(self._catalog)
        self._bound_planner = BoundPlanner(self._catalog)
        self._workers: list[Worker] = []
        self._heard: deque[tuple[Worker, Message | None]] = deque()
        self._operations: deque[_Queued] = deque()
        self._pages: deque[_Queued] = deque()
        self._chores: deque[_Queued] = deque()
        self._unwanted: deque[Future[Any]] = deque()
        self._applying: Future[Any] | None = None
        self._lookout = DirectoryWatcher(self._project.directories.scan, self._take, self._watch.nudge)
        self._name = ""
        self._event = 0
        self._look_at: set[int] = set()
        self._compacted: set[str] = set()
        self._watched = TriggerInterests()
        self._all = True
        self._wakes: tuple[datetime | None, ...] = ()
        self._beaten = 0.0
        self._tidied = time.monotonic()
        self._stopping: float | None = None
        self._restart = _RESTART
        self._start_at = 0.0
        self._extra_until = 0.0
        self._cancelled: dict[int, float] = {}

    @property
    def name(self) -> str:
        """The server's registered name; empty until it has started."""
        return self._name

    @property
    def impediment(self) -> SparkUnavailable | CatalogUnavailable | None:
        """The error that keeps the server from working: no worker, or an unwritable catalog; None if there is none."""
        if not any(worker.ready and not worker.killed for worker in self._workers):
            return SparkUnavailable("no worker is ready", hint="Wait until Spark has started")
        if (silent := time.monotonic() - self._beaten) > self._settings.lease:
            hint = "Wait until the process that holds the catalog's lock has ended"
            return CatalogUnavailable(f"the server could not write the catalog for {silent:.0f} s", hint=hint)
        return None

    def before(self, outcome: Future[Any]) -> int:
        """Return how many runs and operations are before one that waits: see `SparkOperations.before`."""
        queued = [each for each in (*self._operations, *self._pages) if not each.answer.cancelled()]
        place = next((place for place, each in enumerate(queued) if each.answer is outcome), 0)
        work = [*self._doing(), *(each.operation for each in queued[:place])]
        if self._settings.extra_worker and queued and not _is_run(queued[place].operation):
            return sum(not _is_run(each) for each in work)
        return len(work)

    def progress(self, outcome: Future[Any]) -> str | None:
        """Return what a worker does for an operation now: see `SparkOperations.progress`."""
        return next((worker.progress for worker in self._workers if worker.answer is outcome), None)

    def cancel(self, outcome: Future[Any]) -> None:
        """Cancel an operation: see `SparkOperations.cancel`."""
        self._unwanted.append(outcome)
        self._watch.nudge()

    def operation(self, what: str, **arguments: Any) -> Future[Any]:
        """Enqueue an operation that needs Spark: see `SparkOperations.operation`."""
        return self._enqueue(self._pages if what == "page" else self._operations, what, arguments)

    def _enqueue(self, queue: deque[_Queued], what: str, arguments: dict[str, Any]) -> Future[Any]:
        queued = _Queued(OperationRequest(what, arguments))
        queue.append(queued)
        self._watch.nudge()
        return queued.answer

    def stop(self) -> None:
        """Stop after the current work; called a second time, stop without waiting for it."""
        self._stopping = time.monotonic() if self._stopping is None else float("-inf")
        self._watch.nudge()

    def run(self) -> None:
        """Run until stopped.

        Raises:
            CatalogError: there is no catalog, or one that this release cannot work with.
        """
        self.attend()
        self._deliverer.start()
        try:
            while not self._ended():
                try:
                    self._step()
                except (Conflict, CatalogUnavailable) as error:
                    log.warning("waiting for the catalog: %s", error)
                    time.sleep(_RETRY)
                else:
                    self._watch.wait(self._pause(), gather=not any(worker.free for worker in self._workers))
        finally:
            self._leave()

    def attend(self) -> None:
        """Wait until the catalog can be reached.

        Raises:
            CatalogError: there is no catalog, or one that this release cannot work with.
        """
        while self._stopping is None:
            try:
                self._catalog.identity()
            except (Conflict, CatalogUnavailable) as error:
                log.warning("waiting for the catalog: %s", error)
                time.sleep(_RETRY)
            else:
                return

    def _ended(self) -> bool:
        if self._stopping is None:
            return False
        late = time.monotonic() > self._stopping + self._settings.shutdown_grace
        return not self._heard and (late or all(worker.doing is None for worker in self._workers))

    def _step(self) -> None:
        self._beat()
        while self._heard:
            self._hear(*self._heard[0])
            self._heard.popleft()
        self._tend()
        for problem in self._lookout.hear():
            self._log(problem, None)
        free = [worker for worker in self._workers if worker.free and self._stopping is None]
        room = self._settings.workers - sum(map(_is_run, self._doing()))
        room = min(_assign(self._operations, free, room), len(free))
        with self._catalog.reading() as tx:
            self._read(tx)
            pending = scheduling.pending(tx)
            if pending.next_check is not None and pending.next_check <= tx.now:
                self._look_at.update(scheduling.triggers_due(tx))
            directories, scan, unended = [], None, pending.unended
            if pending.next_scan is not None and self._stopping is None:
                directories = files.due_for_scan(tx)
                scan = files.next_scan(tx, {*self._lookout.busy, *directories})
            settling = self._until_idle and files.any_settling(tx)
            applying = self._apply_deferred(pending.next_apply, tx.now)
            wake = None if applying else pending.next_apply
            self._wakes = pending.next_check, scan, wake
        self._bounds.check(exist=pending.bounds)
        self._bound_planner.check(exist=pending.bounds)
        self._lookout.look(directories)
        if self._look_at or (room and (unended or self._bound_planner.waiting)):
            with self._catalog.writing() as tx:
                observation = scheduling.observe(
                    tx,
                    self._look_at,
                    free_workers=room,
                    workflow_limit=self._settings.per_workflow,
                    bound_runs=self._bound_planner.runs(tx) if room else (),
                    bounded=self._bound_planner.bounded,
                )
                decision = self._scheduler.decide(observation)
                batches = scheduling.store(tx, decision, self._name)
                self._wakes = scheduling.next_check(tx), scan, wake, decision.next_check
            self._look_at.clear()  # not before all of it is recorded
            self._bound_planner.begun(frozenset(each.binding for batch in batches for each in batch.claims))
            for batch in batches:
                free.pop().give(batch)
            room -= len(batches)
        else:
            awaited = (
                unended or self._bound_planner.waiting or directories or settling or applying or self._lookout.busy
            )
            if self._until_idle and not awaited and self._stopping is None:
                self.stop()
        self._show(free)
        room = min(_assign(self._chores, free, room), len(free))
        if room and self._stopping is None:
            self._tidy(free[0], _OVERDUE if unended else 1)
        self._lookout.go_on()

    def _show(self, free: list[Worker]) -> None:
        """Assign pages to workers that have nothing else to do, and refuse those that have waited for too long."""
        reading = sum(isinstance(each, OperationRequest) and each.what == "page" for each in self._doing())
        room = max(1, self._settings.workers - 1) - reading
        while self._pages:
            page = self._pages[0]
            late = time.monotonic() - page.since > _PATIENCE
            if not late and not (free and room > 0):
                return
            self._pages.popleft()
            if late:
                problem = f"no worker was free for a page within {_PATIENCE:.0f} s"
                page.refuse(SparkUnavailable(problem, hint="Try again later"))
            elif page.answer.set_running_or_notify_cancel():
                free.pop().give(page.operation, page.answer)
                room -= 1

    def _beat(self) -> None:
        """Send a heartbeat, and recover the firings and runs of servers whose leases have expired."""
        now = time.monotonic()
        if now < self._beaten + self._settings.lease / 3:
            return
        with self._catalog.writing() as tx:
            if not self._name:
                self._event = events.newest(tx)  # later events are logged
            if not (self._name and servers.heartbeat(tx, self._name, self._lease)):
                self._name = _new_name() if self._name else self._first
                servers.register(tx, self._name, version("kilonova"), self._lease)
            firings.release(tx, servers.expire(tx))
            firings.release(tx, [self._name], self._held())  # claimed without this process knowing
            firings.report_stuck(tx, timedelta(seconds=self._settings.stuck_after))
        self._project.resources.recover_expired_runs()
        self._beaten = now

    def _doing(self) -> list[Work]:
        """Return the work that is assigned to workers."""
        doing = [worker.doing for worker in self._workers]
        return [work for work in doing if work is not None and not isinstance(work, Dismissal)]

    def _held(self) -> list[int]:
        """Return the firings that are assigned to workers."""
        batches = [work for work in self._doing() if isinstance(work, Batch)]
        return [number for batch in batches for part in batch.claims for number in part.firings]

    def _read(self, tx: Transaction) -> None:
        """Note the triggers that new events may cause to fire."""
        happened = events.since(tx, self._event)
        if happened:
            self._deliverer.nudge()
        for event in happened:
            self._tell(event)
            self._look_at |= self._watched.concerned(event)
            self._all = self._all or event.kind in (EventKind.APPLIED, EventKind.BOUND_CHANGED)
        if self._all:
            self._watched = scheduling.trigger_interests(tx)
            self._look_at |= self._watched.every
            self._all = False

    def _tell(self, event: Event) -> None:
        self._log(describe_event(event), event)
        self._bounds.note(event)
        self._bound_planner.note(event)
        self._event = event.number
        if event.kind is EventKind.CANCELLED and event.run is not None:
            self._cancelled[event.run] = time.monotonic()

    def _hear(self, worker: Worker, message: Message | None) -> None:
        match message:
            case None:
                self._bury(worker)
                self._workers.remove(worker)
            case WorkerReady():
                self._restart = _RESTART
                self._log("a worker is ready", None)
            case OperationProgressed(progress):
                worker.progress = progress
            case OperationDone(result):
                done = worker.doing
                if isinstance(done, OperationRequest) and done.what == "maintain" and result is not None:
                    self._tidied = 0.0  # there may be more to do
                if worker.answer is not None:
                    worker.answer.set_result(result)
                worker.doing = worker.answer = None
            case OperationFailure(error, passing):
                if worker.answer is not None:
                    worker.answer.set_exception(OperationFailed(error, passing))
                worker.doing = worker.answer = None
            case BatchEnded(outcomes):
                assert isinstance(worker.doing, Batch)
                for part, outcome in zip(worker.doing.claims, outcomes, strict=True):
                    if outcome.error is not None and not outcome.begun:
                        counted = outcome.error["error"] != Conflict.code
                        self._give_up(part, str(outcome.error["problem"]), passing=outcome.passing, counted=counted)
                worker.doing = None
            case Batch() | OperationRequest() | Dismissal() | WorkerAlive():
                raise AssertionError(message)
            case _:
                assert_never(message)

    def _bury(self, worker: Worker) -> None:
        """Handle the end of a worker: its work is retried, unless the worker was killed because of it."""
        late, lost = worker.killed in (_LATE, _STUBBORN), worker.killed == _STOPPED
        with self._catalog.writing() as tx:
            failure = RunFailure.FINAL if late else RunFailure.LOST if lost else RunFailure.TRANSIENT
            in_turn = isinstance(worker.doing, Batch) and not worker.doing.merged
            runs.abandon(tx, worker.owner, f"its process ended: {worker.killed}", failure, in_turn=in_turn)
        if isinstance(worker.doing, Batch):
            waited = in_turn and len(worker.doing.claims) > 1  # any of them may be the cause: each is retried alone
            for part in worker.doing.claims:
                self._give_up(part, worker.killed, passing=waited or not late, counted=not lost)
        if worker.answer is not None:
            unwanted = worker.killed == _UNWANTED
            problem = worker.killed if unwanted else f"its worker process ended: {worker.killed}"
            cancelled = unwanted or worker.killed == _STUBBORN
            error = Cancelled(problem) if cancelled else SparkUnavailable(problem, hint="Try again")
            worker.answer.set_exception(OperationFailed.by(error))
            worker.answer = None
        if not worker.ready and self._stopping is None:
            log.warning("a worker ended before it was ready; another is started in %.0f s", self._restart)
            self._start_at = time.monotonic() + self._restart
            self._restart = min(60.0, 2 * self._restart)
        self._project.resources.recover_expired_runs()

    def _give_up(self, claimed: Claim, error: str, *, passing: bool, counted: bool = True) -> None:
        """Requeue or fail a claim that did not begin a run."""
        with self._catalog.writing() as tx:
            if passing:
                firings.requeue(tx, claimed, counted=counted)
            else:
                firings.fail(tx, claimed, error)

    def _tend(self) -> None:
        """Kill the workers that take too long, start those that are missing, and dismiss the one that is too many."""
        now = time.monotonic()
        for worker in self._workers:
            limit = _OBEY if isinstance(worker.doing, Dismissal) else self._settings.run_timeout
            if worker.doing is not None and now - worker.since > limit:
                worker.kill(_LATE)
        while self._unwanted:
            outcome = self._unwanted.popleft()
            for worker in self._workers:
                if worker.answer is outcome:
                    worker.kill(_UNWANTED)
        for run, since in list(self._cancelled.items()):
            if now - since > _OBEY:
                self._end_stubborn(run, since)
        if self._stopping is not None:
            return
        regular = self._settings.workers
        if self._settings.extra_worker and (len(self._doing()) > regular or self._stalled(now)):
            self._extra_until = now + _SPARE
        extra = now < self._extra_until
        if now >= self._start_at:
            while len(self._workers) < regular + extra:
                if len(self._workers) == regular:
                    self._log("operations wait for busy workers; an extra worker is started", None)
                self._workers.append(self._hire(self._directory, self._given, self._on_message))
        staff = [each for each in self._workers if not each.killed and not isinstance(each.doing, Dismissal)]
        idle = [worker for worker in staff if worker.free]
        if idle and len(staff) > regular + extra:
            self._log("the extra worker is not needed any more", None)
            idle[-1].give(Dismissal())

    def _stalled(self, now: float) -> bool:
        """Return whether short operations wait and no worker has become free for a while."""
        waiting = any(not _is_run(each.operation) for each in (*self._operations, *self._pages))
        busy = len(self._doing()) >= self._settings.workers
        return waiting and busy and now - max(worker.since for worker in self._workers) > _STALL

    def _end_stubborn(self, run: int, since: float) -> None:
        """Kill the worker that still executes a cancelled run, unless it executes others beside it."""
        with self._catalog.reading() as tx:
            owner = runs.find_run(tx, run).owner
            busy = runs.running_of(tx, owner)
        if not busy:
            del self._cancelled[run]
        for worker in self._workers:
            if not busy and worker.owner == owner and worker.doing is not None and worker.since < since:
                worker.kill(_STUBBORN)

    def _apply_deferred(self, due: datetime | None, now: datetime) -> bool:
        """Let a worker apply the deferred workflows that take effect now; return whether there are any."""
        if self._applying is not None and self._applying.done():
            self._applying = None
        if due is None or due > now or self._stopping is not None:
            return False
        if self._applying is None:
            self._applying = self.operation("apply-deferred")
        return True

    def _take(self, channel: str) -> Future[Any]:
        """Enqueue the ingest of a directory's files by a worker, after the firings."""
        return self._enqueue(self._chores, "ingest-files", {"channel": channel, "seconds": _TURN})

    def _tidy(self, worker: Worker, patience: int) -> None:
        """Assign compaction of a channel that is worth it, or garbage collection, after so many usual intervals."""
        now, interval = time.monotonic(), self._settings.maintenance_interval
        if not interval or now < self._tidied + patience * interval:
            return
        with self._catalog.reading() as tx:
            found = delta_stacks(tx)
        work: list[dict[str, Any]] = [{"channel": name} for name in select_for_compaction(found)]
        work += [{"channel": name, "deltas": True} for name in channels_to_merge(found)]
        chosen = next((each for each in work if each["channel"] not in self._compacted), {"channel": None})
        self._tidied = now
        if chosen["channel"] is None:  # each had its turn, even one that cannot be compacted
            self._compacted.clear()
        else:
            self._compacted.add(chosen["channel"])
        worker.give(OperationRequest("maintain", chosen))

    def _on_message(self, worker: Worker, message: Message | None) -> None:
        self._heard.append((worker, message))
        self._watch.nudge()

    def _pause(self) -> float:
        """Return the seconds for which there is nothing to do without new events."""
        waiting = self._operations or self._pages  # for which an extra worker may be started
        longest = min(self._settings.lease / 3, _STALL) if waiting else self._settings.lease / 3
        checks = (*self._wakes, self._bounds.next_check, self._bound_planner.next_check)
        wakes = [wake for wake in checks if wake is not None]
        return min([longest, *(max(0.0, (wake - datetime.now(UTC)).total_seconds()) for wake in wakes)])

    def _leave(self) -> None:
        """Kill the workers, and requeue their work."""
        for worker in self._workers:
            worker.kill(_STOPPED)
        try:
            for worker in list(self._workers):
                self._bury(worker)
            if self._name:
                with self._catalog.writing() as tx:
                    servers.deregister(tx, self._name)
                    firings.release(tx, [self._name])
                    last = events.since(tx, self._event)
                for event in last:
                    self._tell(event)
        except (Conflict, CatalogUnavailable) as error:
            log.warning("other servers will recover the runs of this one: %s", error)
        hurried = self._stopping == float("-inf")
        self._deliverer.close(0.0 if hurried else min(_LAST, self._settings.shutdown_grace))
        for queued in (*self._operations, *self._chores, *self._pages):
            queued.refuse(SparkUnavailable(_STOPPED, hint="Try again"))
        self._watch.close()
        self._project.close()


_PATIENCE = 30.0
"""Maximum seconds for which a page waits for a worker."""

_TURN = 30.0
"""Maximum seconds of ingesting one directory's files before other work has its turn."""

_OVERDUE = 10
"""Factor on the interval of compaction and garbage collection while firings are always pending."""

_LATE = "it took longer than serve.run_timeout"
_STUBBORN = "the cancelled run did not end"
_UNWANTED = "the operation was cancelled"
_STOPPED = "the server was stopped"


@dataclass(frozen=True, slots=True)
class _Queued:
    """Operation that waits for a worker since a time, with the future of its result, which its client may cancel."""

    operation: OperationRequest
    answer: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)

    def refuse(self, error: SparkUnavailable) -> None:
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_exception(OperationFailed.by(error))


def _is_run(work: Work) -> bool:
    """Return whether work counts towards `serve.workers`."""
    return isinstance(work, Batch) or work.what not in _SHORT


def _assign(queue: deque[_Queued], free: list[Worker], room: int) -> int:
    """Assign operations in their order, but those that count as runs only while there is room; return the room left."""
    for queued in list(queue):
        run = _is_run(queued.operation)
        if not free or (run and room <= 0):
            continue
        queue.remove(queued)
        if queued.answer.set_running_or_notify_cancel():
            free.pop().give(queued.operation, queued.answer)
            room -= run
    return room


def _new_name() -> str:
    return f"{socket.gethostname()}:{uuid.uuid4().hex[:6]}"


def describe_event(event: Event) -> str:
    """Describe an event as a sentence."""
    who = event.binding or (f"run {event.run}" if event.run is not None else "")
    where = f"run {event.run}" if event.run is not None and event.binding is not None else ""
    parts = [f"{who} {event.kind.value}".strip(), where, event.text]
    return ": ".join(part for part in parts if part)
