"""The workers of a server: processes that are started early, watched, and replaced when they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from kilonova.server.messages import Message, Ready, Work, read, written
from kilonova.server.worker_output import Relay

_STANDARD_ERROR = 2

Heard = Callable[["Worker", Message | None], None]
"""Called with what a worker says, and None when it has ended, from a thread of its own."""


class Worker:
    """A process that carries out runs.

    Args:
        directory: the project's directory.
        settings: settings that go before the file's and the environment's.
        heard: called with what it says.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any], heard: Heard) -> None:
        words = [sys.executable, "-m", "kilonova.server.worker", str(directory)]  # others can read it: no settings
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, which is heard
            self._process.stdin.write(json.dumps(dict(settings)) + "\n")
            self._process.stdin.flush()
        assert self._process.stderr is not None
        self._output = Relay(self._process.stderr, _STANDARD_ERROR, f"the worker {self._process.pid}")
        self._heard = heard
        self.ready = False
        self.doing: Work | None = None
        self.answer: Future[Any] | None = None
        self.since = 0.0
        self.killed = ""
        threading.Thread(target=self._listen, name=f"worker-{self._process.pid}", daemon=True).start()

    @property
    def owner(self) -> str:
        """The name under which its runs are known."""
        return f"{socket.gethostname()}:{self._process.pid}"

    @property
    def free(self) -> bool:
        """Whether it waits for work."""
        return self.ready and self.doing is None and not self.killed

    def give(self, work: Work, answer: Future[Any] | None = None) -> None:
        """Give it something to do; if it has just ended, that is heard later, as if it had begun.

        Args:
            work: what.
            answer: who waits for the result, if somebody does.
        """
        assert self.ready
        assert self.doing is None
        assert self._process.stdin is not None
        self.doing, self.answer, self.since = work, answer, time.monotonic()
        self._output.renew()
        try:
            self._process.stdin.write(written(work) + "\n")
            self._process.stdin.flush()
        except OSError:
            self.kill("it has ended")

    def kill(self, why: str) -> None:
        """End it at once, with its Spark."""
        self.killed = self.killed or why
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = read(line)
            if isinstance(message, Ready):
                self.ready = True
            self._heard(self, message)
        self.kill("its process ended")  # what it has started may be there still
        self._process.wait()
        self._heard(self, None)
