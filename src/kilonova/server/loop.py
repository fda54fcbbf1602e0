"""A server: it fires triggers, starts what is due, and takes up after servers that have gone silent (Nova, section 4).

Any number of servers work over one catalog. None of them knows anything that is not in it, apart from which triggers
to look at when something has happened: looking at one too many does no harm, and at the start all are looked at.

Each step is: hear the workers, say that the server lives, read what has happened, and in one transaction fire what it
makes fire and claim what there is room for. A step that fails for want of a database is taken again.
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, assert_never

from kilonova.catalog import events, files, firings, runs, servers
from kilonova.catalog.firings import Batch, Claimed, Watched
from kilonova.catalog.stretches import stretches
from kilonova.catalog.watching import Watch
from kilonova.errors import Busy, Cancelled, CatalogAway, KilonovaError, SparkUnavailable, may_pass
from kilonova.model.event import Event, EventKind
from kilonova.schedule.compacting import crowded, worthwhile
from kilonova.server.delivering import Deliverer
from kilonova.server.lookout import Lookout
from kilonova.server.messages import Alive, Done, Ended, Errand, Failed, Message, Ready
from kilonova.server.workers import Heard, Worker
from kilonova.service.project import open_project

_RETRY = 0.5
"""Seconds until a step is taken again that failed for want of a database."""

_LAST = 10.0
"""Seconds that outlets have at most to be told of what happened before the end."""

_RESTART = 1.0
"""Seconds until a worker is replaced that ended before it was ready; they double each time, up to a minute."""

_OBEY = 10.0
"""Seconds that code has to end after its run was cancelled, before its process is ended."""

log = logging.getLogger(__name__)

Log = Callable[[str, Event | None], None]
"""Hears what happens: a sentence, and the event behind it if it is one of the catalog. What is amiss goes to `log`."""


class Refused(Exception):
    """An errand was not done.

    Args:
        told: the error as `KilonovaError.told` gives it.
        passing: whether trying again may help.
    """

    def __init__(self, told: Mapping[str, Any], passing: bool) -> None:
        super().__init__(told["problem"])
        self.told = told
        self.passing = passing

    @classmethod
    def by(cls, error: KilonovaError) -> Refused:
        """For an error of this process."""
        return cls(error.told, may_pass(error))


class Server:
    """A server over a project's catalog.

    Args:
        directory: the project's directory.
        settings: settings that go before the file's and the environment's.
        log: hears what happens.
        until_idle: stop once nothing is due and nothing runs, instead of waiting for more.
        hire: starts a worker.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Any],
        log: Log,
        *,
        until_idle: bool = False,
        hire: Callable[[Path, Mapping[str, Any], Heard], Worker] = Worker,
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
        self._watch = Watch(self._catalog)
        self._first = _new_name()
        self._deliverer = Deliverer(self._project, self._lease, self._first)
        self._workers: list[Worker] = []
        self._heard: deque[tuple[Worker, Message | None]] = deque()
        self._errands: deque[tuple[Errand, Future[Any]]] = deque()
        self._pages: deque[tuple[Errand, Future[Any], float]] = deque()
        self._lookout = Lookout(self._project.look, self._take, self._watch.nudge)
        self._name = ""
        self._chores: deque[tuple[Errand, Future[Any]]] = deque()
        self._event = 0
        self._look_at: set[int] = set()
        self._compacted: set[str] = set()
        self._watched: list[Watched] = []
        self._all = True
        self._queued: datetime | None = None
        self._beaten = 0.0
        self._tidied = time.monotonic()
        self._stopping: float | None = None
        self._restart = _RESTART
        self._start_at = 0.0
        self._cancelled: dict[int, float] = {}

    @property
    def name(self) -> str:
        """The name under which the server is known; empty until it has started."""
        return self._name

    @property
    def ready(self) -> bool:
        """Whether a worker has started that can work."""
        return any(worker.ready and not worker.killed for worker in self._workers)

    def errand(self, what: str, **arguments: Any) -> Future[Any]:
        """Let a worker do something that needs Spark.

        It goes before what has fired; but pages come after that, on all workers but one at most where there are
        several, and are refused if they have waited for too long: who may only look holds up nothing.

        Args:
            what: which: `run`, `ingest`, `compact`, `export`, `page` or `apply`.
            arguments: those of the method of `Project`.

        Returns:
            The result to come: a run's number, a page, or plans; or `Refused`.
        """
        answer: Future[Any] = Future()
        if what == "page":
            self._pages.append((Errand(what, arguments), answer, time.monotonic()))
        else:
            self._errands.append((Errand(what, arguments), answer))
        self._watch.nudge()
        return answer

    def stop(self) -> None:
        """Take on nothing more; called a second time, let nothing end either."""
        self._stopping = time.monotonic() if self._stopping is None else float("-inf")
        self._watch.nudge()

    def run(self) -> None:
        """Work until stopped.

        Raises:
            CatalogError: there is no catalog, or one that this release cannot work with.
        """
        self.attend()
        self._deliverer.start()
        try:
            while not self._ended():
                try:
                    self._step()
                    pause = self._pause()
                except (Busy, CatalogAway) as error:
                    log.warning("waiting for the catalog: %s", error)
                    time.sleep(_RETRY)
                else:
                    self._watch.wait(pause)
        finally:
            self._leave()

    def attend(self) -> None:
        """Wait until the catalog can be reached.

        Raises:
            CatalogError: there is no catalog, or one that this release cannot work with.
        """
        while self._stopping is None:
            try:
                self._catalog.check()
            except (Busy, CatalogAway) as error:
                log.warning("waiting for the catalog: %s", error)
                time.sleep(_RETRY)
            else:
                return

    def _ended(self) -> bool:
        if self._stopping is None:
            return False
        late = time.monotonic() > self._stopping + self._settings.grace
        return not self._heard and (late or all(worker.doing is None for worker in self._workers))

    def _step(self) -> None:
        self._beat()
        while self._heard:
            self._hear(*self._heard[0])
            self._heard.popleft()
        self._tend()
        for problem in self._lookout.hear():
            self._log(problem, None)
        self._look_at |= self._read()
        free = [worker for worker in self._workers if worker.free and self._stopping is None]
        while free and self._errands:
            errand, answer = self._errands.popleft()
            if answer.set_running_or_notify_cancel():  # nobody may wait for it any more
                free.pop().give(errand, answer)
        room = len(free)
        with self._catalog.reading() as tx:
            self._look_at.update(firings.waking(tx))
            unended = firings.any_unended(tx)
            directories = files.due(tx) if self._stopping is None else []
            settling = self._until_idle and files.any_settling(tx)
        self._lookout.look(directories)
        if self._look_at or (room and unended):
            with self._catalog.writing() as tx:
                firings.fire(tx, self._look_at)
                batches, self._queued = firings.claim(tx, self._name, room, self._settings.per_workflow)
            self._look_at.clear()  # not before all of it is written down
            for batch in batches:
                free.pop().give(batch)
        else:
            self._queued = None  # without room there is nothing to wait for but a worker
            awaited = unended or directories or settling or self._lookout.busy
            if self._until_idle and not awaited and self._stopping is None:
                self.stop()
        self._show(free)
        while free and self._chores:
            errand, answer = self._chores.popleft()
            if answer.set_running_or_notify_cancel():
                free.pop().give(errand, answer)
        if free and self._stopping is None:
            self._tidy(free[0], _OVERDUE if unended else 1)
        self._lookout.go_on()

    def _show(self, free: list[Worker]) -> None:
        """Give pages to workers that have nothing else to do, and refuse those that have waited for too long."""
        reading = sum(isinstance(each.doing, Errand) and each.doing.what == "page" for each in self._workers)
        room = max(1, self._settings.workers - 1) - reading
        while self._pages:
            errand, answer, since = self._pages[0]
            late = time.monotonic() - since > _PATIENCE
            if not late and not (free and room > 0):
                return
            self._pages.popleft()
            if not answer.set_running_or_notify_cancel():
                continue
            if late:
                problem = f"no worker had time for a page in {_PATIENCE:.0f} s"
                answer.set_exception(Refused.by(SparkUnavailable(problem, hint="Try again later")))
            else:
                free.pop().give(errand, answer)
                room -= 1

    def _beat(self) -> None:
        """Say that the server lives, and take up after those that do not."""
        now = time.monotonic()
        if now < self._beaten + self._settings.lease / 3:
            return
        with self._catalog.writing() as tx:
            if not self._name:
                self._event = events.newest(tx)  # what happens from here on is logged
            if not (self._name and servers.beat(tx, self._name, self._lease)):
                self._name = _new_name() if self._name else self._first
                servers.enter(tx, self._name, version("kilonova"), self._lease)
            firings.release(tx, servers.expire(tx))
            firings.release(tx, [self._name], self._held())  # of which it does not know that it has claimed them
            firings.tell_stuck(tx, timedelta(seconds=self._settings.stuck))
        self._project.take_up()
        self._beaten = now

    def _held(self) -> list[int]:
        """The firings that workers have."""
        doing = [worker.doing for worker in self._workers]
        return [number for work in doing if isinstance(work, Batch) for part in work.parts for number in part.firings]

    def _read(self) -> set[int]:
        """The triggers that what has happened may make fire."""
        with self._catalog.reading() as tx:
            if self._all:
                self._watched = firings.watched(tx)
                self._all = False
                return {each.number for each in self._watched}
            happened = events.since(tx, self._event)
        if happened:
            self._deliverer.nudge()
        channels: set[str] = set()
        bindings: set[str] = set()
        for event in happened:
            self._tell(event)
            channels.update(event.channels)
            if event.binding is not None:
                bindings.add(event.binding)
            self._all = self._all or event.kind is EventKind.APPLIED
        if self._all:
            return self._read()
        return {each.number for each in self._watched if each.channels & channels or each.bindings & bindings}

    def _tell(self, event: Event) -> None:
        self._log(told(event), event)
        self._event = event.number
        if event.kind is EventKind.CANCELLED and event.run is not None:
            self._cancelled[event.run] = time.monotonic()

    def _hear(self, worker: Worker, message: Message | None) -> None:
        match message:
            case None:
                self._bury(worker)
                self._workers.remove(worker)
            case Ready():
                self._restart = _RESTART
                self._log("a worker is ready", None)
            case Done(result):
                if result is not None and isinstance(worker.doing, Errand) and worker.doing.what == "tidy":
                    self._tidied = 0.0  # there may be more to do
                if worker.answer is not None:
                    worker.answer.set_result(result)
                worker.doing = worker.answer = None
            case Failed(error, passing):
                if worker.answer is not None:
                    worker.answer.set_exception(Refused(error, passing))
                worker.doing = worker.answer = None
            case Ended(outcomes):
                assert isinstance(worker.doing, Batch)
                for part, outcome in zip(worker.doing.parts, outcomes, strict=True):
                    if outcome.error is not None and not outcome.begun:
                        counted = outcome.error["error"] != Busy.code
                        self._give_up(part, str(outcome.error["problem"]), passing=outcome.passing, counted=counted)
                worker.doing = None
            case Batch() | Errand() | Alive():
                raise AssertionError(message)
            case _:
                assert_never(message)

    def _bury(self, worker: Worker) -> None:
        """A worker has ended: what it was doing is done again, unless it was ended for that."""
        late, lost = worker.killed in (_LATE, _STUBBORN), worker.killed == _STOPPED
        with self._catalog.writing() as tx:
            runs.abandon(tx, worker.owner, f"its process ended: {worker.killed}", passing=not late, lost=lost)
        if isinstance(worker.doing, Batch):
            for part in worker.doing.parts:
                self._give_up(part, worker.killed, passing=not late, counted=not lost)
        if worker.answer is not None:
            problem = f"the process that did it ended: {worker.killed}"
            stubborn = worker.killed == _STUBBORN
            error = Cancelled(problem) if stubborn else SparkUnavailable(problem, hint="Try again")
            worker.answer.set_exception(Refused.by(error))
            worker.answer = None
        if not worker.ready and self._stopping is None:
            log.warning("a worker ended before it was ready; another is started in %.0f s", self._restart)
            self._start_at = time.monotonic() + self._restart
            self._restart = min(60.0, 2 * self._restart)
        self._project.take_up()

    def _give_up(self, claimed: Claimed, error: str, *, passing: bool, counted: bool = True) -> None:
        """What was claimed has not been begun."""
        with self._catalog.writing() as tx:
            if passing:
                firings.hand_back(tx, claimed, counted=counted)
            else:
                firings.refuse(tx, claimed, error)

    def _tend(self) -> None:
        """End the workers that take too long, and start those that are missing."""
        now = time.monotonic()
        limit = self._settings.seconds
        for worker in self._workers:
            if worker.doing is not None and now - worker.since > limit:
                worker.kill(_LATE)
        for run, since in list(self._cancelled.items()):
            if now - since > _OBEY:
                self._end_stubborn(run, since)
        if self._stopping is None and now >= self._start_at:
            while len(self._workers) < self._settings.workers:
                self._workers.append(self._hire(self._directory, self._given, self._on_message))

    def _end_stubborn(self, run: int, since: float) -> None:
        """End the worker that still carries out a run which was cancelled, unless it does others beside it."""
        with self._catalog.reading() as tx:
            owner = runs.one(tx, run).owner
            busy = runs.running_of(tx, owner)
        if not busy:
            del self._cancelled[run]
        for worker in self._workers:
            if not busy and worker.owner == owner and worker.doing is not None and worker.since < since:
                worker.kill(_STUBBORN)

    def _take(self, channel: str) -> Future[Any]:
        """Let a worker take the files of a directory, after what has fired."""
        answer: Future[Any] = Future()
        self._chores.append((Errand("gather", {"channel": channel, "seconds": _TURN}), answer))
        self._watch.nudge()
        return answer

    def _tidy(self, worker: Worker, patience: int) -> None:
        """Let a worker that has nothing else to do compact a channel that is worth it, or collect garbage.

        Args:
            worker: the worker.
            patience: how many times later than usual.
        """
        now = time.monotonic()
        if not self._settings.tidy or now < self._tidied + patience * self._settings.tidy:
            return
        with self._catalog.reading() as tx:
            found = stretches(tx)
        work: list[dict[str, Any]] = [{"channel": name} for name in worthwhile(found)]
        work += [{"channel": name, "deltas": True} for name in crowded(found)]
        chosen = next((each for each in work if each["channel"] not in self._compacted), {"channel": None})
        self._tidied = now
        if chosen["channel"] is None:  # each had its turn, even one that cannot be compacted
            self._compacted.clear()
        else:
            self._compacted.add(chosen["channel"])
        worker.give(Errand("tidy", chosen))

    def _on_message(self, worker: Worker, message: Message | None) -> None:
        self._heard.append((worker, message))
        self._watch.nudge()

    def _pause(self) -> float:
        """For how long there is nothing to do unless something happens."""
        longest = self._settings.lease / 3
        with self._catalog.reading() as tx:
            times = (
                firings.next_wake(tx),
                self._queued,
                None if self._lookout.full or self._stopping is not None else files.next_look(tx, self._lookout.busy),
            )
        wakes = [wake for wake in times if wake is not None]
        return min([longest, *(max(0.0, (wake - datetime.now(UTC)).total_seconds()) for wake in wakes)])

    def _leave(self) -> None:
        """End the workers; what they had is due again."""
        for worker in self._workers:
            worker.kill(_STOPPED)
        try:
            for worker in list(self._workers):
                self._bury(worker)
            if self._name:
                with self._catalog.writing() as tx:
                    servers.leave(tx, self._name)
                    firings.release(tx, [self._name])
                    last = events.since(tx, self._event)
                for event in last:
                    self._tell(event)
        except (Busy, CatalogAway) as error:
            log.warning("others will take up after this server: %s", error)
        hurried = self._stopping == float("-inf")
        self._deliverer.close(0.0 if hurried else min(_LAST, self._settings.grace))
        pages = ((errand, answer) for errand, answer, _ in self._pages)
        for _, answer in (*self._errands, *self._chores, *pages):
            if answer.set_running_or_notify_cancel():
                answer.set_exception(Refused.by(SparkUnavailable("the server was stopped", hint="Try again")))
        self._watch.close()
        self._project.close()


_PATIENCE = 30.0
"""Seconds for which a page waits for a worker."""

_TURN = 30.0
"""Seconds for which files of one directory are taken before something else has its turn."""

_OVERDUE = 10
"""How many times later than usual channels are compacted and garbage is collected where something always goes on."""

_LATE = "it took longer than serve.seconds allows"
_STUBBORN = "a run that was cancelled did not end"
_STOPPED = "the server was stopped"


def _new_name() -> str:
    return f"{socket.gethostname()}:{uuid.uuid4().hex[:6]}"


def told(event: Event) -> str:
    """An event as a sentence."""
    who = event.binding or (f"run {event.run}" if event.run is not None else "")
    where = f"run {event.run}" if event.run is not None and event.binding is not None else ""
    parts = [f"{who} {event.kind.value}".strip(), where, event.text]
    return ": ".join(part for part in parts if part)
