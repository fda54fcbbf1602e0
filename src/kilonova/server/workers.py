"""The workers of a server: processes that are started early, watched, and replaced when they end."""

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

from kilonova.server.messages import Alive, Message, Ready, Work, read, written
from kilonova.server.worker_output import Relay

_STANDARD_ERROR = 2

_SILENT = 120.0
"""Seconds without a sign of life after which a worker is ended; it gives one every few seconds."""

_CHUNK = 1 << 16

Heard = Callable[["Worker", Message | None], None]
"""Called with what a worker says, and None when it has ended, from a thread of its own."""


class Worker:
    """A process that carries out runs.

    It has ended when its process has, even if others that it has started hold its pipes. What it says comes by its
    standard output, which it keeps from the code that it runs.

    Args:
        directory: the project's directory.
        settings: settings that go before the file's and the environment's.
        heard: called with what it says.
        silent: seconds without a sign of life after which it is ended.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any], heard: Heard, silent: float = _SILENT) -> None:
        self._name = uuid.uuid4().hex[:6]
        words = [sys.executable, "-m", "kilonova.server.worker", str(directory)]  # others can read it: no settings
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, which is heard
            self._process.stdin.write((json.dumps({"owner": self.owner, "settings": dict(settings)}) + "\n").encode())
            self._process.stdin.flush()
        assert self._process.stderr is not None
        self._output = Relay(self._process.stderr, _STANDARD_ERROR, f"the worker {self._process.pid}")
        self._heard = heard
        self._silent = silent
        self.ready = False
        self.doing: Work | None = None
        self.answer: Future[Any] | None = None
        self.since = 0.0
        self.killed = ""
        threading.Thread(target=self._listen, name=f"worker-{self._process.pid}", daemon=True).start()

    @property
    def owner(self) -> str:
        """The name under which its runs are known."""
        return f"{socket.gethostname()}:{self._process.pid}:{self._name}"

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
            self._process.stdin.write((written(work) + "\n").encode())
            self._process.stdin.flush()
        except OSError:
            self.kill("it has ended")

    def kill(self, why: str) -> None:
        """End it at once, with its Spark."""
        self.killed = self.killed or why
        if self._process.returncode is None:  # else its number may be another's by now
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _listen(self) -> None:
        """Hear what it says until its process has ended."""
        assert self._process.stdout is not None
        said, process = self._process.stdout.fileno(), os.pidfd_open(self._process.pid)
        os.set_blocking(said, False)
        with selectors.DefaultSelector() as selector:
            selector.register(said, selectors.EVENT_READ)
            selector.register(process, selectors.EVENT_READ)
            begun, over, until = b"", False, time.monotonic() + self._silent
            while not over:
                ready = {key.fd for key, _ in selector.select(_left(until))}
                over = process in ready
                if said in selector.get_map():
                    text = _read(said)
                    if text:
                        *lines, begun = (begun + text).split(b"\n")
                        self._understand(lines)
                        until = time.monotonic() + self._silent
                    elif text is not None and not over:
                        selector.unregister(said)
                        self.kill("it has closed its messages")
                if time.monotonic() >= until:
                    self.kill(f"nothing was heard of it for {self._silent:.0f} s")
                    until = float("inf")
        os.close(process)
        self.kill("its process ended")  # what it has started may be there still
        self._process.wait()
        self._heard(self, None)

    def _understand(self, lines: list[bytes]) -> None:
        for line in lines:
            try:
                message = read(line.decode())
            except (ValueError, LookupError, TypeError):
                self.kill("it said something that is no message")
                return
            if isinstance(message, Ready):
                self.ready = True
            if not isinstance(message, Alive):
                self._heard(self, message)


def _left(until: float) -> float | None:
    """Return the seconds until a moment; None if it never comes."""
    return None if until == float("inf") else max(0.0, until - time.monotonic())


def _read(descriptor: int) -> bytes | None:
    """Read all that can be read at once: None if there is nothing yet, nothing if there will be no more."""
    chunks: list[bytes] = []
    while True:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return b"".join(chunks) or None
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
