"""Temporary directories of a process; those left by a killed process are removed by a later one.

They are in one directory per process, which the process keeps locked while it runs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from pathlib import Path

_PREFIX = "kilonova-process-"

_making = threading.Lock()
_own: _Own | None = None


class _Own:
    """Directory of this process, with its lock."""

    def __init__(self) -> None:
        while True:
            self.place = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
            self.lock = os.open(self.place.name, os.O_RDONLY)
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            if os.path.exists(self.place.name):
                return
            os.close(self.lock)  # another process removed it as abandoned before it was locked


def temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a new directory, which is removed by its `cleanup`, or with this process."""
    global _own
    with _making:
        if _own is None:
            _own = _Own()
    return tempfile.TemporaryDirectory(dir=_own.place.name)


def remove_abandoned() -> None:
    """Remove the directories of processes that have ended."""
    for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(place, ignore_errors=True)
        except BlockingIOError:  # its process is running
            pass
        finally:
            os.close(lock)
