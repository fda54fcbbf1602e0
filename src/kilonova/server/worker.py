"""A worker: a process that carries out runs, one after the other, as its server says.

It starts Spark before it says that it is ready. What it is told comes by its standard input; when that ends, its server
is gone, and so is the worker, whatever it is doing: an unfinished run leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import threading
from pathlib import Path
from typing import TextIO

from kilonova.catalog.firings import Claimed
from kilonova.engine.events import Event, Started
from kilonova.errors import KilonovaError
from kilonova.server.messages import Done, Failed, Launched, Message, Ready, read, written
from kilonova.service.project import Project, open_project


class _Out:
    """Where messages go, from any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, message: Message) -> None:
        with self._lock:
            self._stream.write(written(message) + "\n")
            self._stream.flush()


def work(directory: str, settings: str) -> None:
    """Carry out runs until the server is gone.

    Args:
        directory: the project's directory.
        settings: settings that go before the file's and the environment's, as JSON.
    """
    out = _Out(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # what user code prints goes where logs go
    given = queue.SimpleQueue[Claimed]()
    threading.Thread(target=_listen, args=(given,), name="server", daemon=True).start()
    begun = threading.Event()

    def heard(event: Event) -> None:
        if isinstance(event, Started):
            begun.set()
            out.say(Launched(event.run))

    with open_project(directory, listener=heard, **json.loads(settings)) as project:
        project.warm()
        if project.settings.serve.memory is not None:
            _limit(project.settings.serve.memory)
        out.say(Ready())
        while True:
            claimed = given.get()
            begun.clear()
            out.say(_carried_out(project, claimed, begun))


def _carried_out(project: Project, claimed: Claimed, begun: threading.Event) -> Done | Failed:
    try:
        report = project.launch(claimed)
    except KilonovaError as error:
        return Failed(error.code, str(error), error.transient, begun.is_set())
    except Exception as error:
        return Failed("defect", f"{type(error).__name__}: {error}", False, begun.is_set())
    return Done(None if report is None else report.run)


def _listen(given: queue.SimpleQueue[Claimed]) -> None:
    for line in sys.stdin:
        message = read(line)
        assert isinstance(message, Claimed)
        given.put(message)
    os._exit(0)


def _limit(megabytes: int) -> None:
    """Let this process, but not Spark's, which has started already, take so much more memory than it has now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmSize:"):
            now = int(line.split()[1]) << 10
            resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20),) * 2)


if __name__ == "__main__":
    work(*sys.argv[1:3])
