"""Which files of a watched directory are taken, and when.

A file counts as complete when it was seen to stay as it is for as long as its directory says. The clock of whoever
looks measures that, not the file's own times, which another machine's clock may have set. Only where these lie back by
more than clocks may differ are they believed, so that files which were there long ago are taken at first sight.
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
    KeyViolation,
    KilonovaError,
    SchemaMismatch,
    UnreadableInput,
)
from kilonova.model.file import FileState, Fingerprint

DOUBT = timedelta(minutes=10)
"""By how much the clocks of two machines may differ."""

_PARTIAL = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".download", ".swp", "~")
"""How the names of files end that programs are still writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a file from earlier looks.

    Attributes:
        state: where it stands.
        fingerprint: of what was seen last, or taken.
        since: since when it is as it is.
        told: whether it has been told that it changed after it was taken.
        held: whether a run is reading it.
    """

    state: FileState
    fingerprint: Fingerprint
    since: datetime
    told: bool = False
    held: bool = False


class Verdict(enum.Enum):
    """What follows from seeing a file: put it down as it is now, let it be taken, or tell that it changed too late."""

    WAIT = "wait"
    READY = "ready"
    TELL = "tell"


def hidden(name: str) -> bool:
    """Whether a file is left alone, by its name within the directory.

    >>> [name for name in ("a.csv", ".a.csv", "_tmp/a.csv", "a.csv.part") if not hidden(name)]
    ['a.csv']
    """
    return any(part.startswith((".", "_")) for part in name.split("/")) or name.lower().endswith(_PARTIAL)


def judge(seen: Fingerprint, known: Known | None, now: datetime, settle: timedelta) -> Verdict | None:
    """What follows from seeing a file.

    Args:
        seen: as it is now.
        known: what is known of it; None if it was never seen.
        now: the present moment.
        settle: for how long it must have stayed as it is.

    Returns:
        The verdict; None if nothing follows.
    """
    if known is None:
        long_ago = seen.modified is not None and seen.modified <= now - settle - DOUBT
        return Verdict.READY if long_ago or not settle else Verdict.WAIT
    same = seen == known.fingerprint
    match known.state:
        case FileState.WAITING if same:
            return Verdict.READY if now - known.since >= settle else None
        case FileState.TAKEN:
            return None if same or known.told else Verdict.TELL
        case FileState.WAITING | FileState.READY | FileState.ASIDE:
            return None if same or known.held else Verdict.WAIT
        case _:
            assert_never(known.state)


UNFIT = (CheckFailed, EncodingError, KeyViolation, SchemaMismatch, UnreadableInput)
"""Errors that tell of files rather than of what is around them."""

MOST_ASIDE = 8
"""How many files are set aside at most before what is left is put off: looking for each may take many attempts."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Moved(Exception, Generic[Item]):
    """Some of the files are not as they were; `items` are those."""

    def __init__(self, items: Sequence[Item]) -> None:
        super().__init__("files have changed while they were read")
        self.items = tuple(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted(Generic[Item, Result]):
    """What could be made of files.

    Attributes:
        taken: those that make one block.
        result: what the attempt with those gave; None if there are none.
        aside: those that cannot be taken, each with its error.
        moved: those that are not as they were.
        left: those that are put off, because they do not go together with those that are taken, or for lack of time.
    """

    taken: tuple[Item, ...]
    result: Result | None
    aside: tuple[tuple[Item, KilonovaError], ...]
    moved: tuple[Item, ...]
    left: tuple[Item, ...]


def sift(
    items: Sequence[Item],
    attempt: Callable[[Sequence[Item]], Result],
    blamed: Callable[[KilonovaError], Item | None],
) -> Sifted[Item, Result]:
    """Find as many files as can be made one block, in order, and those that can never be.

    A file is set aside only if an attempt with it alone fails. What is put off comes after all that is taken.

    Args:
        items: the files, in order.
        attempt: makes a block of some; raises one of `UNFIT` where that cannot be, and `Moved`.
        blamed: the file that an error names, if it names one.
    """
    left = list(items)
    aside: list[tuple[Item, KilonovaError]] = []
    moved: list[Item] = []

    def told(taken: int, result: Result | None) -> Sifted[Item, Result]:
        return Sifted(
            taken=tuple(left[:taken]),
            result=result,
            aside=tuple(aside),
            moved=tuple(moved),
            left=tuple(left[taken:]),
        )

    def fails(some: Sequence[Item]) -> tuple[Result | None, KilonovaError | None]:
        try:
            return attempt(some), None
        except UNFIT as error:
            return None, error

    while left and len(aside) < MOST_ASIDE:
        try:
            result, error = fails(left)
            if error is None:
                return told(len(left), result)
            suspect = blamed(error)
            alone = None if suspect not in left else fails([suspect])[1]
            if suspect is None or alone is None:
                good, result, alone = _longest(left, error, fails)
                suspect = left[good]
                if good:
                    alone = fails([suspect])[1]
                    if alone is None:
                        return told(good, result)
            aside.append((suspect, alone))
            left.remove(suspect)
        except Moved as changed:
            moved += changed.items
            left = [item for item in left if item not in changed.items]
    return told(0, None)


def _longest(
    items: Sequence[Item],
    error: KilonovaError,
    fails: Callable[[Sequence[Item]], tuple[Result | None, KilonovaError | None]],
) -> tuple[int, Result | None, KilonovaError]:
    """How many of the first items go together although one more does not, what they give, and why one more does not."""
    good, bad = 0, len(items)
    result: Result | None = None
    while bad - good > 1:
        middle = (good + bad) // 2
        given, problem = fails(items[:middle])
        if problem is None:
            good, result = middle, given
        else:
            bad, error = middle, problem
    return good, result, error
