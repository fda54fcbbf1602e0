"""What the engine needs of a warehouse: the seam behind which Spark stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from typing import Protocol

from kilonova.model.headway import Amount


class Files(Protocol):
    """The files of a warehouse."""

    def delete(self, blocks: Iterable[int]) -> None:
        """Delete the directories of blocks; those that are not there are deleted already."""

    def blocks(self) -> list[int]:
        """The numbers of the blocks that have a directory."""

    def keep_log(self, run: int, day: date, text: str) -> None:
        """Write the log of a run that began on a day, in place of what is there."""

    def delete_logs(self, before: date) -> None:
        """Delete the logs of the runs that began before a day."""


class Jobs(Protocol):
    """What a thread asks of Spark; other threads ask how that goes, or end it."""

    def amount(self) -> Amount:
        """How much Spark has done by now, of what it is known to have to do."""

    def interrupt(self) -> None:
        """End what Spark is doing now; the thread that waits for it gets an error of Spark's."""


Counting = Callable[[str], AbstractContextManager[Jobs]]
"""Counts what this thread asks of Spark within a block, which goes by this name in Spark's own pages."""


class _NoJobs:
    def amount(self) -> Amount:
        return Amount()

    def interrupt(self) -> None:
        pass


@contextmanager
def uncounted(_name: str) -> Iterator[Jobs]:
    """Count nothing."""
    yield _NoJobs()
