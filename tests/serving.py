"""Servers with real workers, in a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kilonova.model.event import Event
from kilonova.scheduler.loop import Server


@contextmanager
def serving(place: Path, **settings: object) -> Iterator[Server]:
    """A server over a project, until the end of the block."""
    said: list[str] = []

    def log(text: str, _event: Event | None) -> None:
        said.append(text)

    server = Server(place, {"serve": settings, "spark": {"master": "local[2]"}}, log)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(60)
        print("\n".join(said))
        assert not thread.is_alive()


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
