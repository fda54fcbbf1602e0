"""Background monitor of a run: persists its log and reports progress.

The monitor cannot make the run fail, and delays it only by the last write of its log. It runs in a thread of its own,
which polls once a second; shorter runs are not polled at all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from kilonova.catalog import runs
from kilonova.catalog.database import Catalog
from kilonova.engine.interfaces import BlockStore, Counting, JobHandle
from kilonova.engine.output_capture import capture_output, install_capture, without_capture
from kilonova.engine.run_events import (
    Listener,
    ProgressUpdated,
    RunNotification,
    RunStarted,
    StepEnded,
    StepFailed,
    StepSkipped,
    StepStarted,
)
from kilonova.engine.run_log import RunLogEntries, format_error, format_notification
from kilonova.errors import Cancelled, LeaseLost
from kilonova.model.block import Block
from kilonova.model.progress import RunProgress, StepProgress, TaskCount

_logger = logging.getLogger(__name__)

_FIRST_LOG = 0.2
"""Seconds until the log is written for the first time."""

_POLL_INTERVAL = 1.0
"""Seconds between polls of Spark's progress."""

_PROGRESS_INTERVAL = 2.0
"""Seconds between updates of the progress in the catalog."""

_LOG_INTERVAL = 3.0
"""Seconds between writes of the log."""


class ActiveStep:
    """A step that is being executed; `rows` is the number written so far, None if nothing changes."""

    def __init__(self) -> None:
        self.rows: int | None = None
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self._began

    def count(self, *blocks: Block | None) -> None:
        """Count the rows of blocks that the step has written."""
        for block in blocks:
            if block is not None:
                self.rows = (self.rows or 0) + block.statistics.rows


class RunMonitor:
    """Monitor of a run.

    Args:
        catalog: the catalog in which its progress is recorded.
        files: the store of its log.
        counting: tracks Spark jobs.
        listener: receives its notifications.
        run: the run.
        began: time at which it began.

    Attributes:
        stopped: set once the run was ended elsewhere, so that no more work is needed for it.
    """

    def __init__(
        self, catalog: Catalog, files: BlockStore, counting: Counting, listener: Listener, run: int, began: datetime
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._counting = counting
        self._listener = listener
        self._run = run
        self._began = began
        self._log = RunLogEntries()
        self._written = 0
        self._warned = False
        self._steps = 0
        self._ended = 0
        self._jobs: dict[str, JobHandle] = {}
        self._reported: list[BaseException] = []
        self._lock = threading.Lock()
        self.stopped = threading.Event()
        self._over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Monitor the run within a `with` block."""
        thread = threading.Thread(target=self._poll, name=f"monitor-{self._run}", daemon=True)
        with install_capture():
            thread.start()
            try:
                yield
            finally:
                self._over.set()
                thread.join()

    def note(self, text: str) -> None:
        """Add an entry about the run as a whole to its log."""
        self._log.add(self._catalog.clock(), "run", text)

    def notify(self, notification: RunNotification) -> None:
        """Send a notification to the log and to the listener."""
        if (words := format_notification(notification)) is not None:
            self._log.add(self._catalog.clock(), *words)
        with self._lock:
            if isinstance(notification, RunStarted):
                self._steps = len(notification.steps)
            elif isinstance(notification, StepEnded | StepSkipped):
                self._ended += 1
        with without_capture():
            self._listener(notification)

    @contextmanager
    def step(self, name: str, reason: str) -> Iterator[ActiveStep]:
        """Execute a step within the block: attribute the output, Spark jobs and errors of this thread to it.

        Args:
            name: the task, or the channel that is ingested into or compacted.
            reason: the reason for it, as text.

        Raises:
            LeaseLost: the run was ended elsewhere.
        """
        self.notify(StepStarted(run=self._run, step=name, reason=reason))
        check_running(self.stopped, self._run)

        def log(source: str, text: str) -> None:
            self._log.add(self._catalog.clock(), name, text, source)

        step = ActiveStep()
        with self._counting(f"run {self._run}: {name}") as jobs, capture_output(log):
            with self._lock:
                self._jobs[name] = jobs
            try:
                yield step
            except BaseException as error:
                if not (self.stopped.is_set() or isinstance(error, LeaseLost)):  # else the step did not fail
                    self._reported.append(error)
                    with suppress(Exception):
                        self.notify(StepFailed(run=self._run, step=name, error=format_error(error)))
                raise
            finally:
                with self._lock:
                    del self._jobs[name]
        self.notify(StepEnded(run=self._run, step=name, rows=step.rows, seconds=step.seconds))

    def stop(self) -> None:
        """Prevent further steps and interrupt the Spark jobs of running ones, because the run was ended elsewhere."""
        self.stopped.set()
        with self._lock:
            running = list(self._jobs.values())
        for jobs in running:
            with suppress(Exception):
                jobs.interrupt()

    def end(self, error: BaseException | None) -> None:
        """Log how the run ended, and write the log for the last time."""
        if error is None:
            self.note("succeeded")
        elif isinstance(error, Cancelled):
            self.note("stopped")  # readers of the log get from the catalog who cancelled it
        elif any(error is each for each in self._reported):
            self.note(f"failed: {error!s}")
        else:
            self.note(f"failed: {format_error(error)}")
        self._write_log()

    def _progress(self) -> RunProgress | None:
        """Return the run's progress; None before its steps are known."""
        with self._lock:
            steps, ended, running = self._steps, self._ended, dict(self._jobs)
        if not steps:
            return None
        return RunProgress(
            steps=steps,
            ended=ended,
            going=tuple(StepProgress(name, _task_count(each)) for name, each in running.items()),
        )

    def _poll(self) -> None:
        if self._over.wait(_FIRST_LOG):
            return
        self._write_log()
        reported: RunProgress | None = None
        noted: RunProgress | None = None
        note_at = log_at = 0.0
        while not self._over.wait(_POLL_INTERVAL):
            now, progress = time.monotonic(), self._progress()
            if progress is not None and progress != reported:
                reported = progress
                with suppress(Exception):  # a failing listener must not end the monitor
                    self.notify(ProgressUpdated(run=self._run, progress=progress))
            if progress is not None and progress != noted and now >= note_at:
                noted, note_at = progress, now + _PROGRESS_INTERVAL
                self._note_progress(progress)
            if now >= log_at:
                log_at = now + _LOG_INTERVAL
                self._write_log()

    def _note_progress(self, progress: RunProgress) -> None:
        try:
            with self._catalog.writing() as tx:
                runs.note_progress(tx, self._run, progress)
        except Exception as error:
            _logger.debug("the progress of run %s was not recorded: %s", self._run, error)

    def _write_log(self) -> None:
        """Write the log, if entries were added."""
        count = self._log.count
        if count == self._written:
            return
        try:
            self._files.keep_log(self._run, self._began.date(), self._log.text())
            self._written = count
        except Exception as error:
            if not self._warned:
                _logger.warning("the log of run %s cannot be written: %s", self._run, error)
            self._warned = True


def check_running(stopped: threading.Event, run: int) -> None:
    """Check that a run was not ended elsewhere, before more work begins for it.

    Raises:
        LeaseLost: the run was ended elsewhere.
    """
    if stopped.is_set():
        raise LeaseLost("the run was ended by another process", run=run)


def _task_count(jobs: JobHandle) -> TaskCount:
    """Return the number of Spark tasks done and known; zero if Spark does not answer."""
    try:
        return jobs.amount()
    except Exception:
        return TaskCount()
