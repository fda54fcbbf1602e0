"""Worker processes of a server: started early, monitored, and replaced when they end."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from kilonova.scheduler.messages import Dismissal, Message, Work, WorkerAlive, WorkerReady, decode, encode
from kilonova.scheduler.worker_output import OutputRelay

_STANDARD_ERROR = 2

_SILENT = 120.0
"""Seconds without a heartbeat after which a worker is killed; it sends one every few seconds."""

_CHUNK = 1 << 16

Heard = Callable[["Worker", Message | None], None]
"""Callback for a worker's messages, and None when it has ended; called from a separate thread."""


class Worker:
    """Handle of a worker process, which executes runs.

    The worker has ended when its process has, even if processes that it has started hold its pipes. It sends messages
    on its standard output, which is not available to the code that it runs.

    Args:
        directory: the project's directory.
        settings: settings that override the file's and the environment's.
        heard: called with its messages.
        silent: seconds without a heartbeat after which it is killed.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any], heard: Heard, silent: float = _SILENT) -> None:
        self._name = uuid.uuid4().hex[:6]
        words = [sys.executable, "-m", "kilonova.scheduler.worker", str(directory)]  # world-readable: no settings
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, which is noticed later
            self._process.stdin.write((json.dumps({"owner": self.owner, "settings": dict(settings)}) + "\n").encode())
            self._process.stdin.flush()
        assert self._process.stderr is not None
        self._output = OutputRelay(self._process.stderr, _STANDARD_ERROR, f"the worker {self._process.pid}")
        self._heard = heard
        self._silent = silent
        self.ready = False
        self.doing: Work | Dismissal | None = None
        self.answer: Future[Any] | None = None
        self.progress: str | None = None
        self.since = 0.0
        self.killed = ""
        threading.Thread(target=self._listen, name=f"worker-{self._process.pid}", daemon=True).start()

    @property
    def owner(self) -> str:
        """The owner name of its runs."""
        return f"{socket.gethostname()}:{self._process.pid}:{self._name}"

    @property
    def free(self) -> bool:
        """Return whether the worker waits for work."""
        return self.ready and self.doing is None and not self.killed

    def give(self, work: Work | Dismissal, answer: Future[Any] | None = None) -> None:
        """Assign work to the worker; if it has just ended, that is reported later, as if it had begun.

        Args:
            work: the work, or its dismissal.
            answer: the future to complete with the result; None if there is no waiter.
        """
        assert self.ready
        assert self.doing is None
        assert self._process.stdin is not None
        self.doing, self.answer, self.since = work, answer, time.monotonic()
        self.progress = None
        self._output.renew()
        try:
            self._process.stdin.write((encode(work) + "\n").encode())
            self._process.stdin.flush()
        except OSError:
            self.kill("it has ended")

    def kill(self, why: str) -> None:
        """Kill the worker at once, with its Spark."""
        self.killed = self.killed or why
        if self._process.returncode is None:  # else its PID may have been reused
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _listen(self) -> None:
        """Read the worker's messages until its process has ended."""
        assert self._process.stdout is not None
        output, process = self._process.stdout.fileno(), os.pidfd_open(self._process.pid)
        os.set_blocking(output, False)
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            selector.register(process, selectors.EVENT_READ)
            begun, over, until = b"", False, time.monotonic() + self._silent
            while not over:
                ready = {key.fd for key, _ in selector.select(_left(until))}
                over = process in ready
                if output in selector.get_map():
                    text = _read(output)
                    if text:
                        *lines, begun = (begun + text).split(b"\n")
                        self._understand(lines)
                        until = time.monotonic() + self._silent
                    elif text is not None and not over:
                        selector.unregister(output)
                        self.kill("it closed its output")
                if time.monotonic() >= until:
                    self.kill(f"it sent no heartbeat for {self._silent:.0f} s")
                    until = float("inf")
        os.close(process)
        self.kill("its process ended")  # processes that it has started may still run
        self._process.wait()
        self._heard(self, None)

    def _understand(self, lines: list[bytes]) -> None:
        for line in lines:
            try:
                message = decode(line.decode())
            except (ValueError, LookupError, TypeError):
                self.kill("it sent an invalid message")
                return
            if isinstance(message, WorkerReady):
                self.ready = True
            if not isinstance(message, WorkerAlive):
                self._heard(self, message)


def _left(until: float) -> float | None:
    """Return the seconds until a deadline; None if it is infinite."""
    return None if until == float("inf") else max(0.0, until - time.monotonic())


def _read(descriptor: int) -> bytes | None:
    """Read all that is available without blocking: None if nothing is available yet, empty at the end of the stream."""
    chunks: list[bytes] = []
    while True:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return b"".join(chunks) or None
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
