"""Log of a run: its steps and the output of its code, one or more lines per entry, each with time and place.

Of a log that is too long, the beginning and the end are kept, with a line between them that reports the omission.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from datetime import UTC, datetime
from types import TracebackType
from typing import assert_never

from kilonova.engine.run_events import (
    FileQuarantined,
    LinesMalformed,
    ProgressUpdated,
    RunNotification,
    RunRecovered,
    RunStarted,
    StepEnded,
    StepFailed,
    StepRecomputed,
    StepRetried,
    StepShared,
    StepSkipped,
    StepStarted,
)
from kilonova.errors import KilonovaError

LIMIT = 1 << 20
"""Approximate maximum number of characters of a log."""

_LONGEST = 1 << 14
"""Maximum number of characters of an entry."""


_Entry = tuple[datetime, str, str, str | None]
"""An entry as it was added; it is formatted when the log is read, as most entries of a long log are omitted by then."""

_AROUND = 30
"""Number of characters of an entry in addition to its text and place."""


class RunLogEntries:
    """Retained log entries of a run; any thread may add entries.

    Args:
        limit: maximum number of characters that are retained.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._half = limit // 2
        self._head: list[_Entry] = []
        self._tail: deque[_Entry] = deque()
        self._sizes = [0, 0]
        self._left_out = 0
        self._lock = threading.Lock()
        self.count = 0
        """Number of entries added so far, omitted ones included."""

    def add(self, time: datetime, place: str, text: str, source: str | None = None) -> None:
        """Add an entry.

        Args:
            time: the time of the entry.
            place: the step, or `run` for the run as a whole.
            text: the text; further lines are indented.
            source: the stream or logger to which a task's code wrote it; None if it is not output of code.
        """
        entry = (time, place, text if len(text) <= _LONGEST else _cut(text), source)
        size = _size(entry)
        with self._lock:
            self.count += 1
            if not self._tail and self._sizes[0] + size <= self._half:
                self._head.append(entry)
                self._sizes[0] += size
                return
            self._tail.append(entry)
            self._sizes[1] += size
            while self._sizes[1] > self._half and len(self._tail) > 1:
                self._sizes[1] -= _size(self._tail.popleft())
                self._left_out += 1

    def text(self) -> str:
        """Return the retained entries as text."""
        with self._lock:
            head, tail = list(self._head), list(self._tail)
            gap = [f"… {self._left_out:,} entries are left out …\n"] if self._left_out else []
        return "".join([*(format_entry(*entry) for entry in head), *gap, *(format_entry(*entry) for entry in tail)])


def _size(entry: _Entry) -> int:
    """Return the approximate number of characters of an entry."""
    _, place, text, source = entry
    return _AROUND + len(place) + len(text) + (len(source) + 2 if source else 0)


def _cut(text: str) -> str:
    half = _LONGEST // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters are left out … {text[-half:]}"


def format_entry(time: datetime, place: str, text: str, source: str | None = None) -> str:
    r"""Return an entry as text.

    >>> format_entry(datetime(2026, 1, 1, tzinfo=UTC), "best", "one\ntwo", "stdout")
    '2026-01-01T00:00:00.000Z best [stdout] one\n    two\n'
    """
    moment = time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    where = f"{place} [{source}]" if source else f"{place}:"
    first, *others = text.rstrip("\n").splitlines() or [""]
    return "".join([f"{moment} {where} {first}".rstrip(), "\n", *(f"    {line}".rstrip() + "\n" for line in others)])


def format_notification(notification: RunNotification) -> tuple[str, str] | None:
    """Return the log entry for a notification: the step concerned, or `run`, and a sentence; None if there is none."""
    match notification:
        case RunStarted(steps=steps):
            return "run", f"executes {', '.join(steps)}"
        case StepStarted(step=step, reason=reason):
            return step, f"begins, {reason}"
        case StepEnded(step=step, rows=rows, seconds=seconds):
            made = "no change" if rows is None else f"{rows:,} rows"
            return step, f"ended, {made} in {seconds:.1f} s"
        case StepFailed(step=step, error=error):
            return step, f"failed: {error}"
        case StepShared(step=step):
            return step, "shared with another run of the batch"
        case StepSkipped(step=step):
            return step, "skipped: no new input"
        case StepRetried(step=step, attempt=attempt, error=error):
            return step, f"attempt {attempt} failed and is retried: {error}"
        case StepRecomputed(step=step, error=error):
            return step, f"the incremental refresh failed; doing a full refresh: {error}"
        case FileQuarantined(step=step, path=path, error=error):
            return step, f"quarantined {path}: {error}"
        case LinesMalformed(step=step, lines=lines):
            return step, str(lines)
        case ProgressUpdated() | RunRecovered():
            return None
        case _:
            assert_never(notification)


def format_error(error: BaseException) -> str:
    """Return the full text of an error: its message, and its traceback within code that is not Kilonova's.

    A defect, or an interruption, is returned with its whole traceback.
    """
    if not isinstance(error, KilonovaError):
        return "".join(traceback.format_exception(error))
    cause = error.__cause__
    if cause is None or isinstance(cause, KilonovaError):
        return str(error)
    trace = "".join(traceback.TracebackException(type(cause), cause, _user_frames(cause.__traceback__)).format())
    return f"{error}\n{trace}"


def _user_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without its leading frames of Kilonova; the whole one if there are no others."""
    rest = trace
    while rest is not None and str(rest.tb_frame.f_globals.get("__name__", "")).startswith("kilonova."):
        rest = rest.tb_next
    return rest or trace
