"""What code says by `print`, `warnings` and `logging`, heard by those on whose behalf it runs.

Several runs share a process, and the standard streams and the root logger are the process's. So who hears goes with the
context: what a thread says is heard by the innermost `overheard` block around it, and by nobody where there is none. A
thread that is started within a block has no part in it, unless it runs in a copy of the context.

All that is said goes where it would have gone in any case. What processes of Spark say is not heard.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO, cast

Ear = Callable[[str, str], None]
"""Called with where something was said (`stdout`, `stderr`, or a level and a logger), and what: a line, or a record."""

_STREAMS = ("stdout", "stderr")


_LONGEST = 1 << 14
"""How many characters of a line are gathered; one that is longer is heard in parts."""


class _Line:
    """A line that has not ended, in the pieces in which it is written: put together once, not at each of them."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0

    def write(self, text: str) -> list[str]:
        """Add to the line.

        Returns:
            The lines that have ended by that, and what is too long to be gathered on.
        """
        if text == "\n":  # as `print` writes it, after the line
            return [self.end()]
        self._pieces.append(text)
        self._size += len(text)
        if "\n" not in text and self._size < _LONGEST:
            return []
        *lines, rest = "".join(self._pieces).split("\n")
        rest = rest[rest.rstrip("\r").rfind("\r") + 1 :]
        if len(rest) >= _LONGEST:
            lines.append(rest)
            rest = ""
        self._pieces, self._size = [rest], len(rest)
        return [_seen(line) for line in lines]

    def end(self) -> str:
        """End the line, and return it."""
        line = _seen("".join(self._pieces))
        self._pieces, self._size = [], 0
        return line


class _Voice:
    """What is said in one context: lines, put together of what is written."""

    def __init__(self, ear: Ear) -> None:
        self.ear = ear
        self._lines = {name: _Line() for name in _STREAMS}
        self._lock = threading.Lock()

    def write(self, stream: str, text: str) -> None:
        with self._lock:
            lines = self._lines[stream].write(text) if text else ()
        for line in lines:
            self.ear(stream, line)

    def end(self) -> None:
        """Give out the lines that were not ended."""
        for stream, line in self._lines.items():
            if rest := line.end():
                self.ear(stream, rest)


def _seen(line: str) -> str:
    r"""What a terminal shows of a line that goes back to its beginning, as progress bars do.

    >>> _seen(" 10%\r 20%\r")
    ' 20%'
    """
    return line.rstrip("\r").rsplit("\r", 1)[-1] if "\r" in line else line


_voice: ContextVar[_Voice | None] = ContextVar("voice", default=None)


class _Stream:
    """A standard stream that is listened to."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self.stream = stream

    def write(self, text: str) -> int:
        if (voice := _voice.get()) is not None:
            voice.write(self._name, text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Handler(logging.Handler):
    """Hears the records of all loggers but those by which Python and Spark tell each other things."""

    def emit(self, record: logging.LogRecord) -> None:
        voice = _voice.get()
        if voice is not None and not record.name.startswith("py4j"):
            try:
                voice.ear(f"{record.levelname} {record.name}", self.format(record))
            except Exception:
                self.handleError(record)
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not self._others(record):
            with unattributed():
                last.handle(record)

    def _others(self, record: logging.LogRecord) -> bool:
        """Whether another handler gets the record: if not, it would go to the last resort, were this one not there."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


_lock = threading.Lock()
_listening = 0
_handler = _Handler()
_raised = False


@contextmanager
def listening() -> Iterator[None]:
    """Listen to the process's streams and loggers until the end of the block; blocks may overlap."""
    global _listening
    with _lock:
        _listening += 1
        if _listening == 1:
            _attach()
    try:
        yield
    finally:
        with _lock:
            _listening -= 1
            if not _listening:
                _detach()


def _attach() -> None:
    """Put the ears on. Where nobody has set logging up, `info` is heard too."""
    global _raised
    for name in _STREAMS:
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Stream):
            setattr(sys, name, cast(TextIO, _Stream(name, stream)))
    root = logging.getLogger()
    _raised = not root.handlers and root.level == logging.WARNING
    if _raised:
        root.setLevel(logging.INFO)
    root.addHandler(_handler)


def _detach() -> None:
    for name in _STREAMS:
        if isinstance(stream := getattr(sys, name), _Stream):
            setattr(sys, name, stream.stream)
    root = logging.getLogger()
    root.removeHandler(_handler)
    if _raised and root.level == logging.INFO:
        root.setLevel(logging.WARNING)


@contextmanager
def overheard(ear: Ear) -> Iterator[None]:
    """Let what is said in this context within the block be heard, while somebody is `listening`."""
    voice = _Voice(ear)
    token = _voice.set(voice)
    try:
        yield
    finally:
        _voice.reset(token)
        voice.end()


@contextmanager
def unattributed() -> Iterator[None]:
    """Let what is said in this context within the block be heard by nobody."""
    token = _voice.set(None)
    try:
        yield
    finally:
        _voice.reset(token)
