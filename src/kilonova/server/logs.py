"""What a server says, a line each: what happens, and what Python's logging hears from it and from libraries.

As JSON a line is an object with `time`, `level`, `logger`, `server`, `event`, `kind`, `run`, `binding`, `channels` and
`text`, and `trace` where there is one; what does not apply is null. Lines for people are the time and the text.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from kilonova.model.event import Event, EventKind

log = logging.getLogger("kilonova.server")

_LEVELS = {
    EventKind.FAILED: logging.ERROR,
    EventKind.ABANDONED: logging.WARNING,
    EventKind.STUCK: logging.WARNING,
    EventKind.UNDELIVERED: logging.WARNING,
    EventKind.SERVER_SILENT: logging.WARNING,
}
"""What other events are is information."""


def say(text: str, event: Event | None) -> None:
    """Log a sentence, and the event behind it if there is one."""
    level = logging.INFO if event is None else _LEVELS.get(event.kind, logging.INFO)
    log.log(level, "%s", text, extra={"happened": event})


class _Lines(logging.Formatter):
    """A line of text per record; a trace has lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record):%Y-%m-%dT%H:%M:%SZ} {' '.join(record.getMessage().split())}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class _Objects(logging.Formatter):
    """A JSON object per record.

    Args:
        server: gives the server's name.
    """

    def __init__(self, server: Callable[[], str]) -> None:
        super().__init__()
        self._server = server

    def format(self, record: logging.LogRecord) -> str:
        event: Event | None = getattr(record, "happened", None)
        told: dict[str, Any] = {
            "time": _time(record).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "server": self._server() or None,
            "event": event and event.number,
            "kind": event and event.kind.value,
            "run": event and event.run,
            "binding": event and event.binding,
            "channels": event and list(event.channels),
            "text": record.getMessage(),
        }
        if record.exc_info is not None:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def _time(record: logging.LogRecord) -> datetime:
    event: Event | None = getattr(record, "happened", None)
    return datetime.fromtimestamp(record.created, UTC) if event is None else event.time.astimezone(UTC)


@contextmanager
def logging_to(stream: TextIO, server: Callable[[], str], *, as_json: bool) -> Iterator[None]:
    """Let everything that is logged go to a stream until the end of the block, warnings and lost threads included.

    Args:
        stream: where to.
        server: gives the server's name.
        as_json: whether as JSON.
    """
    root, own = logging.getLogger(), logging.getLogger("kilonova")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Objects(server) if as_json else _Lines())
    before, hook = own.level, threading.excepthook

    def lost(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            trace = args.exc_type, args.exc_value, args.exc_traceback
            log.error("a thread ended: %s", args.exc_value, exc_info=trace)

    root.addHandler(handler)
    own.setLevel(logging.INFO)
    logging.captureWarnings(True)
    threading.excepthook = lost
    try:
        yield
    finally:
        threading.excepthook = hook
        logging.captureWarnings(False)
        own.setLevel(before)
        root.removeHandler(handler)
