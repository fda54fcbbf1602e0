"""The log of a run: what it did and what was said on the way, a line or more per entry, each with its time and place.

Of what is too long to be kept the beginning and the end are, with a line between them that says so.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from datetime import UTC, datetime
from types import TracebackType
from typing import assert_never

from kilonova.engine.telling import (
    FellBack,
    Recovered,
    Retried,
    Started,
    StepCopied,
    StepEnded,
    StepFailed,
    StepSkipped,
    StepStarted,
    Telling,
    Underway,
)
from kilonova.errors import KilonovaError

LIMIT = 1 << 20
"""How many characters of a log are kept, about."""

_LONGEST = 1 << 14
"""How many characters of an entry are kept."""


_Entry = tuple[datetime, str, str, str | None]
"""An entry as it was added: it is put into words when the log is read, as most are left out of a long one by then."""

_AROUND = 30
"""How many characters an entry has besides what it says and where."""


class Log:
    """The entries of a run, as far as they are kept; any thread may add to them.

    Args:
        limit: how many characters are kept.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._half = limit // 2
        self._head: list[_Entry] = []
        self._tail: deque[_Entry] = deque()
        self._sizes = [0, 0]
        self._left_out = 0
        self._lock = threading.Lock()
        self.count = 0
        """How many entries there have been."""

    def add(self, time: datetime, place: str, text: str, source: str | None = None) -> None:
        """Add an entry.

        Args:
            time: when.
            place: the step, or `run` for the run as a whole.
            text: what; further lines are indented.
            source: by what a task's code said so; None where it is not code that speaks.
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
        """What is kept."""
        with self._lock:
            head, tail = list(self._head), list(self._tail)
            gap = [f"… {self._left_out:,} entries are left out …\n"] if self._left_out else []
        return "".join([*(entry_of(*entry) for entry in head), *gap, *(entry_of(*entry) for entry in tail)])


def _size(entry: _Entry) -> int:
    """How many characters an entry has, about."""
    _, place, text, source = entry
    return _AROUND + len(place) + len(text) + (len(source) + 2 if source else 0)


def _cut(text: str) -> str:
    half = _LONGEST // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters are left out … {text[-half:]}"


def entry_of(time: datetime, place: str, text: str, source: str | None = None) -> str:
    r"""An entry as text.

    >>> entry_of(datetime(2026, 1, 1, tzinfo=UTC), "best", "one\ntwo", "stdout")
    '2026-01-01T00:00:00.000Z best [stdout] one\n    two\n'
    """
    moment = time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    where = f"{place} [{source}]" if source else f"{place}:"
    first, *others = text.rstrip("\n").splitlines() or [""]
    return "".join([f"{moment} {where} {first}".rstrip(), "\n", *(f"    {line}".rstrip() + "\n" for line in others)])


def in_words(telling: Telling) -> tuple[str, str] | None:
    """What the log says of what a run tells: the step concerned, or `run`, and a sentence; None if nothing."""
    match telling:
        case Started(steps=steps):
            return "run", f"does {', '.join(steps)}"
        case StepStarted(step=step, reason=reason):
            return step, f"begins, {reason}"
        case StepEnded(step=step, rows=rows, seconds=seconds):
            made = "nothing changed" if rows is None else f"{rows:,} rows"
            return step, f"ended, {made} in {seconds:.1f} s"
        case StepFailed(step=step, error=error):
            return step, f"failed: {error}"
        case StepCopied(step=step):
            return step, "a run that is merged with this one has done the same, which is copied"
        case StepSkipped(step=step):
            return step, "left out, nothing has come for it"
        case Retried(step=step, attempt=attempt, error=error):
            return step, f"attempt {attempt} failed and is made again: {error}"
        case FellBack(step=step, error=error):
            return step, f"its change failed, and it is made anew: {error}"
        case Underway() | Recovered():
            return None
        case _:
            assert_never(telling)


def told(error: BaseException) -> str:
    """An error in full: what it says, and where in the user's code, or in what else is not Kilonova's, it came from.

    A defect, or an interruption, is told with all of its stack.
    """
    if not isinstance(error, KilonovaError):
        return "".join(traceback.format_exception(error))
    cause = error.__cause__
    if cause is None or isinstance(cause, KilonovaError):
        return str(error)
    trace = "".join(traceback.TracebackException(type(cause), cause, _outside(cause.__traceback__)).format())
    return f"{error}\n{trace}"


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """A stack without the frames of Kilonova that lead to it; whole, if there are no others."""
    rest = trace
    while rest is not None and str(rest.tb_frame.f_globals.get("__name__", "")).startswith("kilonova."):
        rest = rest.tb_next
    return rest or trace
