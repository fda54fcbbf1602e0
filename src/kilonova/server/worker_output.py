"""What a worker, and the processes that it has started, write to their standard error: passed on within bounds.

So a task that prints without end fills neither the disk nor the log of the server; `kilonova log` has what is kept.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import IO, Any

LIMIT = 1 << 20
"""How many bytes are passed on of what is written while a worker does one thing."""

_AT_ONCE = 1 << 16


class Relay:
    """Passes on what comes from a process, in a thread, until it has closed its end.

    Args:
        source: what comes from the process.
        sink: a file descriptor: where it goes.
        name: the process, for people.
        limit: how many bytes are passed on until `renew` is called.
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
        """Pass on as much again, for the next thing that is done, and say what was left out of the last one."""
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
        with suppress(OSError):  # where nobody listens, nothing is lost
            while text:
                text = text[os.write(self._sink, text) :]
