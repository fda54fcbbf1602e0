"""What goes on beside a run, for as long as it does: its log is kept, and how far it has come is told.

None of this can make the run fail, nor wait but for the last writing of its log. A thread of its own looks once a
second; at runs that take less it does not look at all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from types import TracebackType

from kilonova.catalog import runs
from kilonova.catalog.database import Catalog
from kilonova.engine.log import Log, in_words, told
from kilonova.engine.overhearing import listening, overheard, unattributed
from kilonova.engine.seam import Counting, Files, Jobs
from kilonova.engine.telling import Listener, Started, StepEnded, StepFailed, StepSkipped, Telling, Underway
from kilonova.errors import Cancelled, LeaseLost
from kilonova.model.headway import Amount, Going, Headway

_logger = logging.getLogger(__name__)

_FIRST = 0.2
"""Seconds until the log is written for the first time."""

_LOOK = 1.0
"""Seconds between looks at what Spark does."""

_NOTE = 2.0
"""Seconds between the times at which the headway is noted in the catalog."""

_KEEP = 3.0
"""Seconds between the times at which the log is written."""


class Attendance:
    """Attends to a run within a `with` block.

    Args:
        catalog: where its headway is noted.
        files: where its log is kept.
        counting: counts what Spark does.
        listener: hears how it goes.
        run: the run.
        began: when it began.

    Attributes:
        stopped: set once the run has ended elsewhere, so that nothing more need be done for it.
    """

    def __init__(
        self, catalog: Catalog, files: Files, counting: Counting, listener: Listener, run: int, began: datetime
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._counting = counting
        self._listener = listener
        self._run = run
        self._began = began
        self._log = Log()
        self._kept = 0
        self._complained = False
        self._steps = 0
        self._ended = 0
        self._going: dict[str, Jobs] = {}
        self._told: list[BaseException] = []
        self._lock = threading.Lock()
        self.stopped = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._attend, name=f"attendance-{run}", daemon=True)
        self._listening = ExitStack()

    def __enter__(self) -> Attendance:
        self._listening.enter_context(listening())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._listening.close()

    def note(self, text: str) -> None:
        """Say something of the run as a whole in its log."""
        self._log.add(self._catalog.clock(), "run", text)

    def tell(self, telling: Telling) -> None:
        """Let something be heard: by the log, and by the listener."""
        if (words := in_words(telling)) is not None:
            self._log.add(self._catalog.clock(), *words)
        with self._lock:
            if isinstance(telling, Started):
                self._steps = len(telling.steps)
            elif isinstance(telling, StepEnded | StepSkipped):
                self._ended += 1
        with unattributed():
            self._listener(telling)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Take what this thread says and asks of Spark within the block for that of a step, and what it raises.

        Raises:
            LeaseLost: the run has ended elsewhere.
        """
        refuse_stopped(self.stopped, self._run)

        def heard(source: str, text: str) -> None:
            self._log.add(self._catalog.clock(), name, text, source)

        with self._counting(f"run {self._run}: {name}") as jobs, overheard(heard):
            with self._lock:
                self._going[name] = jobs
            try:
                yield
            except BaseException as error:
                if not (self.stopped.is_set() or isinstance(error, LeaseLost)):  # else it was not the step that failed
                    self._told.append(error)
                    with suppress(Exception):
                        self.tell(StepFailed(run=self._run, step=name, error=told(error)))
                raise
            finally:
                with self._lock:
                    del self._going[name]

    def stop(self) -> None:
        """The run has ended elsewhere: let no further step begin, and interrupt what Spark does for those that have."""
        self.stopped.set()
        with self._lock:
            going = list(self._going.values())
        for jobs in going:
            with suppress(Exception):
                jobs.interrupt()

    def end(self, error: BaseException | None) -> None:
        """Say in the log how the run ended, and write it for the last time."""
        if error is None:
            self.note("succeeded")
        elif isinstance(error, Cancelled):
            self.note("stopped")  # by whom it was cancelled is in the catalog, from where readers of the log have it
        elif any(error is each for each in self._told):
            self.note(f"failed: {error!s}")
        else:
            self.note(f"failed: {told(error)}")
        self._keep()

    def _headway(self) -> Headway | None:
        """How far the run has come; None before it has told its steps."""
        with self._lock:
            steps, ended, going = self._steps, self._ended, dict(self._going)
        if not steps:
            return None
        return Headway(steps=steps, ended=ended, going=tuple(Going(name, _asked(each)) for name, each in going.items()))

    def _attend(self) -> None:
        if self._over.wait(_FIRST):
            return
        self._keep()
        told: Headway | None = None
        noted: Headway | None = None
        note_at = keep_at = 0.0
        while not self._over.wait(_LOOK):
            now, headway = time.monotonic(), self._headway()
            if headway is not None and headway != told:
                told = headway
                with suppress(Exception):  # a listener that fails here must not end what else is done here
                    self.tell(Underway(run=self._run, headway=headway))
            if headway is not None and headway != noted and now >= note_at:
                noted, note_at = headway, now + _NOTE
                self._note_progress(headway)
            if now >= keep_at:
                keep_at = now + _KEEP
                self._keep()

    def _note_progress(self, headway: Headway) -> None:
        try:
            with self._catalog.writing() as tx:
                runs.note_progress(tx, self._run, headway)
        except Exception as error:
            _logger.debug("the progress of run %s was not noted: %s", self._run, error)

    def _keep(self) -> None:
        """Write the log, if anything has come to it."""
        count = self._log.count
        if count == self._kept:
            return
        try:
            self._files.keep_log(self._run, self._began.date(), self._log.text())
            self._kept = count
        except Exception as error:
            if not self._complained:
                _logger.warning("the log of run %s cannot be kept: %s", self._run, error)
            self._complained = True


def refuse_stopped(stopped: threading.Event, run: int) -> None:
    """Begin nothing more for a run that has ended elsewhere.

    Raises:
        LeaseLost: it has.
    """
    if stopped.is_set():
        raise LeaseLost("the run has ended elsewhere", run=run)


def _asked(jobs: Jobs) -> Amount:
    """How much Spark has done; nothing, if it does not answer."""
    try:
        return jobs.amount()
    except Exception:
        return Amount()
