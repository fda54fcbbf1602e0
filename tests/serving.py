"""Servers with real workers, in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
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
