"""Selection of the files of a watched directory that are ingested.

A file counts as complete once it has been observed unchanged for the settle time of its directory. That time is
measured by the clock of the scanning process, not by the file's modification time, which another machine's clock may
have set. A modification time is trusted only if it is older than clocks may differ, so that old files are ingested at
the first scan.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar, assert_never

from kilonova.errors import (
    CheckFailed,
    EncodingError,
    InputError,
    KeyViolation,
    KilonovaError,
    SchemaMismatch,
)
from kilonova.model.watched_file import FileState, Fingerprint

MAX_CLOCK_SKEW = timedelta(minutes=10)
"""Maximum difference between the clocks of two machines."""

_PARTIAL = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".download", ".swp", "~")
"""Name suffixes of files that are still being written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """Record of a file from earlier scans.

    Attributes:
        state: its state.
        fingerprint: the fingerprint that was seen last, or ingested.
        since: the time since which it is unchanged.
        reported: whether a change after it was ingested has been reported.
        held: whether a run is reading it.
    """

    state: FileState
    fingerprint: Fingerprint
    since: datetime
    reported: bool = False
    held: bool = False


class FileDecision(enum.Enum):
    """Decision about a scanned file: record its fingerprint, make it ready, or report a change after ingestion."""

    WAIT = "wait"
    READY = "ready"
    REPORT = "report"


def is_hidden(name: str) -> bool:
    """Return whether a file is ignored, by its name within the directory.

    >>> [name for name in ("a.csv", ".a.csv", "_tmp/a.csv", "a.csv.part") if not is_hidden(name)]
    ['a.csv']
    """
    return any(part.startswith((".", "_")) for part in name.split("/")) or name.lower().endswith(_PARTIAL)


def classify(seen: Fingerprint, known: FileRecord | None, now: datetime, settle: timedelta) -> FileDecision | None:
    """Decide what to do about a scanned file.

    Args:
        seen: its present fingerprint.
        known: its record; None if it was never seen.
        now: the current time.
        settle: how long it must have been unchanged.

    Returns:
        The decision; None if there is nothing to do.
    """
    if known is None:
        long_ago = seen.modified is not None and seen.modified <= now - settle - MAX_CLOCK_SKEW
        return FileDecision.READY if long_ago or not settle else FileDecision.WAIT
    same = seen == known.fingerprint
    match known.state:
        case FileState.SETTLING if same:
            return FileDecision.READY if now - known.since >= settle else None
        case FileState.INGESTED:
            return None if same or known.reported else FileDecision.REPORT
        case FileState.SETTLING | FileState.READY | FileState.QUARANTINED:
            return None if same or known.held else FileDecision.WAIT
        case _:
            assert_never(known.state)


DATA_ERRORS = (CheckFailed, EncodingError, KeyViolation, SchemaMismatch, InputError)
"""Errors caused by the files themselves rather than by the environment."""

MAX_QUARANTINED = 8
"""Maximum number of files to quarantine before the rest is postponed: finding each may take many attempts."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class FilesChanged(Exception, Generic[Item]):
    """Raised when files have changed since they were scanned; `items` are those files."""

    def __init__(self, items: Sequence[Item]) -> None:
        super().__init__("files have changed while they were read")
        self.items = tuple(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome(Generic[Item, Result]):
    """Outcome of ingesting a batch of files.

    Attributes:
        ingested: the files ingested as one block.
        result: the result of the attempt with those; None if there are none.
        quarantined: the files to quarantine, each with its error.
        changed: the files that have changed.
        postponed: the postponed files: they cannot be in one block with those ingested, or time ran out.
    """

    ingested: tuple[Item, ...]
    result: Result | None
    quarantined: tuple[tuple[Item, KilonovaError], ...]
    changed: tuple[Item, ...]
    postponed: tuple[Item, ...]


def bisect_batch(
    items: Sequence[Item],
    attempt: Callable[[Sequence[Item]], Result],
    blamed: Callable[[KilonovaError], Item | None],
    *,
    in_order: bool = False,
) -> BatchOutcome[Item, Result]:
    """Find as many files as can be ingested as one block, in order, and those that cannot be ingested.

    A file is quarantined only if an attempt with it alone fails. Postponed files come after all ingested ones.

    Args:
        items: the files, in order.
        attempt: writes a block of some files; raises one of `DATA_ERRORS` if that is impossible, or `FilesChanged`.
        blamed: returns the file that an error names, if it names one.
        in_order: whether the files after one that is quarantined or has changed are postponed.
    """
    left = list(items)
    stopped: list[Item] = []
    quarantined: list[tuple[Item, KilonovaError]] = []
    changed: list[Item] = []

    def outcome(count: int, result: Result | None) -> BatchOutcome[Item, Result]:
        return BatchOutcome(
            ingested=tuple(left[:count]),
            result=result,
            quarantined=tuple(quarantined),
            changed=tuple(changed),
            postponed=(*left[count:], *stopped),
        )

    def drop(gone: Sequence[Item]) -> None:
        first = min(map(left.index, gone)) if in_order else len(left)
        stopped[:0] = [item for item in left[first:] if item not in gone]
        left[:] = [item for item in left[:first] if item not in gone]

    def error_alone(item: Item) -> KilonovaError | None:
        try:
            attempt([item])
        except DATA_ERRORS as error:
            return error
        return None

    while left and len(quarantined) < MAX_QUARANTINED:
        try:
            try:
                return outcome(len(left), attempt(left))
            except DATA_ERRORS as error:
                together = error
            suspect = blamed(together)
            alone = error_alone(suspect) if suspect is not None and suspect in left else None
            if suspect is None or alone is None:
                good, result, alone = _longest(left, together, attempt)
                suspect = left[good]
                if good and (alone := error_alone(suspect)) is None:
                    return outcome(good, result)
            quarantined.append((suspect, alone))
            drop([suspect])
        except FilesChanged as error:
            changed += error.items
            drop(error.items)
    return outcome(0, None)


def _longest(
    items: Sequence[Item], error: KilonovaError, attempt: Callable[[Sequence[Item]], Result]
) -> tuple[int, Result | None, KilonovaError]:
    """Return the length of the longest prefix that succeeds, its result, and the error of one item more."""
    good, bad = 0, len(items)
    result: Result | None = None
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            result = attempt(items[:middle])
            good = middle
        except DATA_ERRORS as problem:
            bad, error = middle, problem
    return good, result, error
