"""Relay for the standard error of a worker and of the processes that it has started, limited in size.

The limit keeps a task that prints endlessly from filling the disk or the server's log; `kilonova log` shows the
output that is stored.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import IO, Any

LIMIT = 1 << 20
"""Maximum number of bytes that are relayed per work item of a worker."""

_AT_ONCE = 1 << 16


class OutputRelay:
    """Relay of the output of a process: runs in a thread until the process has closed its end.

    Args:
        source: the process's output.
        sink: the file descriptor to write to.
        name: the process's name in messages.
        limit: maximum number of bytes that are relayed until `renew` is called.
    """

    def __init__(self, source: IO[Any], sink: int, name: str, limit: int = LIMIT) -> None:
        self._source = source
        self._sink = sink
        self._name = name
        self._limit = self._left = limit
        self._left_out = 0
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._pass_on, name=f"output of {name}", daemon=True)
        self.thread.start()

    def renew(self) -> None:
        """Reset the limit for the next work item, and report how many bytes of the last one were left out."""
        with self._lock:
            left_out, self._left_out, self._left = self._left_out, 0, self._limit
        if left_out:
            self._write(f"… {left_out:,} bytes of the output of {self._name} were left out\n".encode())

    def _pass_on(self) -> None:
        with self._source:
            while chunk := os.read(self._source.fileno(), _AT_ONCE):
                with self._lock:
                    passed = chunk[: self._left]
                    self._left -= len(passed)
                    self._left_out += len(chunk) - len(passed)
                    ends = len(passed) < len(chunk) and self._left_out == len(chunk) - len(passed)
                self._write(passed)
                if ends:
                    self._write(f"\n… {self._name} writes more than {self._limit:,} bytes: left out\n".encode())

    def _write(self, text: bytes) -> None:
        with suppress(OSError):  # no reader is left, so nothing is lost
            while text:
                text = text[os.write(self._sink, text) :]
