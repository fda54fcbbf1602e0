"""Log output of a server, one line per record: events, and records of Python's logging, libraries' included.

Records repeated within a minute, except events, are counted instead of written.

As JSON a line is an object with `time`, `level`, `logger`, `server`, `event`, `kind`, `run`, `binding`, `channels` and
`text`, and `trace` where there is one; fields that do not apply are null. As text a line is the time and the text.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from kilonova.model.event import Event, EventKind

log = logging.getLogger("kilonova.scheduler")

_LEVELS = {
    EventKind.FAILED: logging.ERROR,
    EventKind.DAMAGED: logging.ERROR,
    EventKind.ABANDONED: logging.WARNING,
    EventKind.STUCK: logging.WARNING,
    EventKind.DELIVERY_FAILED: logging.WARNING,
    EventKind.SERVER_SILENT: logging.WARNING,
}
"""Log levels of event kinds; others are INFO."""


def say(text: str, event: Event | None) -> None:
    """Log a sentence, with the event behind it if there is one."""
    level = logging.INFO if event is None else _LEVELS.get(event.kind, logging.INFO)
    log.log(level, "%s", text, extra={"happened": event})


class _Folding(logging.StreamHandler[TextIO]):
    """Handler that writes records, and replaces repetitions within a minute by their number.

    Records of events are written each time, as the catalog has each of them.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._repeated: dict[tuple[str, str], tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "happened", None) is not None:
            super().emit(record)
            return
        now, text = time.monotonic(), record.getMessage()
        since, left_out = self._repeated.get((record.name, text), (float("-inf"), 0))
        if now < since + _MINUTE:
            self._repeated[record.name, text] = since, left_out + 1
            return
        if len(self._repeated) >= _TEXTS:
            self._repeated = {key: entry for key, entry in self._repeated.items() if now < entry[0] + _MINUTE}
        if len(self._repeated) < _TEXTS:
            self._repeated[record.name, text] = now, 0
        if left_out:
            record = logging.makeLogRecord(vars(record))
            record.msg, record.args = f"{text} (and {left_out} times more since {now - since:.0f} s ago)", None
        super().emit(record)


_MINUTE = 60.0
"""Seconds for which a text is not repeated."""

_TEXTS = 1000
"""Maximum number of different texts that are tracked per minute; others are always written."""


class _Lines(logging.Formatter):
    """Formatter of a line of text per record; a traceback has lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record):%Y-%m-%dT%H:%M:%SZ} {' '.join(record.getMessage().split())}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class _Objects(logging.Formatter):
    """Formatter of a JSON object per record.

    Args:
        server: returns the server's name.
    """

    def __init__(self, server: Callable[[], str]) -> None:
        super().__init__()
        self._server = server

    def format(self, record: logging.LogRecord) -> str:
        event: Event | None = getattr(record, "happened", None)
        record_fields: dict[str, Any] = {
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
            record_fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(record_fields, ensure_ascii=False)


def _time(record: logging.LogRecord) -> datetime:
    event: Event | None = getattr(record, "happened", None)
    return datetime.fromtimestamp(record.created, UTC) if event is None else event.time.astimezone(UTC)


@contextmanager
def logging_to(stream: TextIO, server: Callable[[], str], *, as_json: bool) -> Iterator[None]:
    """Send all log records to a stream until the end of the block, warnings and uncaught errors of threads included.

    Args:
        stream: the stream.
        server: returns the server's name.
        as_json: whether to write JSON.
    """
    root, own = logging.getLogger(), logging.getLogger("kilonova")
    handler = _Folding(stream)
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
