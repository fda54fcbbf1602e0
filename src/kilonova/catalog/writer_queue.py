"""Queue of the writers of an SQLite catalog, within a process and among processes.

SQLite lets waiting writers look every tenth of a second whether it is their turn, which leaves the database idle
between short transactions. So writers first get a lock of their process, and then one on a file beside the database,
for which they look every millisecond. That only orders them: it is SQLite's lock that excludes others. Where the file
cannot be locked, nothing but time is lost. The lock on the file ends with the process that has it.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from kilonova.errors import Conflict

_SUFFIX = "-queue"
"""Suffix of the file that is locked, after the name of the database."""

_PAUSES = (0.001, 0.01)
"""Seconds between two looks at a lock: at first, and once a transaction takes long."""

_LONG = 0.1
"""Seconds after which a transaction takes long."""


class WriterQueue:
    """Queue of the writers of a database.

    Args:
        database: the file of the database; None if it is in memory.
        patience: seconds for which a writer waits for its turn.
    """

    def __init__(self, database: Path | None, patience: float) -> None:
        self._path = database and database.with_name(database.name + _SUFFIX)
        self._patience = patience
        self._turn = threading.Lock()
        self._file: FileIO | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and have it within a `with` block.

        Raises:
            Conflict: it is not this writer's turn for too long.
        """
        if not self._turn.acquire(timeout=self._patience):
            raise Conflict("the catalog is locked by this process", hint="Try again")
        try:
            with self._locked():
                yield
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the file, unless a writer has a turn: its process closes it in the end."""
        if self._turn.acquire(blocking=False):
            try:
                if self._file is not None:
                    self._file.close()
                    self._file = None
            finally:
                self._turn.release()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if (file := self._opened()) is None:
            yield
            return
        began = time.monotonic()
        while not _try_lock(file):
            waited = time.monotonic() - began
            if waited > self._patience:
                raise Conflict("the catalog is locked by another process", hint="Try again")
            time.sleep(_PAUSES[waited > _LONG])
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _opened(self) -> FileIO | None:
        """Return the file to lock; None if there is none, and it cannot be created."""
        if self._file is None and self._path is not None:
            with suppress(OSError):
                self._file = FileIO(self._path, "a")
        return self._file


def _try_lock(file: FileIO) -> bool:
    """Return whether a file could be locked, or cannot be locked at all."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        return True
    return True
