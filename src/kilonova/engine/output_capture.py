"""Capture of the output that code writes by `print`, `warnings` and `logging`, per context.

Several runs share a process, and the standard streams and the root logger belong to the process. Therefore output is
captured per context: the output of a thread goes to the innermost `capture_output` block around it, and is not captured
where there is none. A thread that is started within a block is not captured, unless it runs in a copy of the context.

Captured output is also passed on to its original destination. Output of Spark's processes is not captured.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO, cast

LineSink = Callable[[str, str], None]
"""Receiver of output, called with the source (`stdout`, `stderr`, or a level and a logger) and a line or log record."""

_STREAMS = ("stdout", "stderr")


_LONGEST = 1 << 14
"""Maximum number of characters of a line that are buffered; a longer one is passed on in parts."""


class _PartialLine:
    """A line that has not ended, as the list of pieces written so far: joined once, not at each write."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0

    def write(self, text: str) -> list[str]:
        """Add to the line; return the lines that this ends, and parts of lines that exceed the maximum length."""
        if text == "\n":  # written separately by `print`, after the line
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
        return [_visible_text(line) for line in lines]

    def end(self) -> str:
        """End the line, and return it."""
        line = _visible_text("".join(self._pieces))
        self._pieces, self._size = [], 0
        return line


class _CaptureBuffer:
    """Buffer that assembles the output of one context into lines."""

    def __init__(self, sink: LineSink) -> None:
        self.sink = sink
        self._lines = {name: _PartialLine() for name in _STREAMS}
        self._lock = threading.Lock()

    def write(self, stream: str, text: str) -> None:
        with self._lock:
            lines = self._lines[stream].write(text) if text else ()
        for line in lines:
            self.sink(stream, line)

    def end(self) -> None:
        """Flush the lines that were not ended."""
        for stream, line in self._lines.items():
            if rest := line.end():
                self.sink(stream, rest)


def _visible_text(line: str) -> str:
    r"""Return the visible text of a line with carriage returns, as terminals show it for progress bars.

    >>> _visible_text(" 10%\r 20%\r")
    ' 20%'
    """
    return line.rstrip("\r").rsplit("\r", 1)[-1] if "\r" in line else line


_buffer: ContextVar[_CaptureBuffer | None] = ContextVar("buffer", default=None)


class _CapturingStream:
    """Wrapper of a standard stream that captures what is written to it."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self.stream = stream

    def write(self, text: str) -> int:
        if (buffer := _buffer.get()) is not None:
            buffer.write(self._name, text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _CapturingHandler(logging.Handler):
    """Logging handler that captures the records of all loggers except those of `py4j`."""

    def emit(self, record: logging.LogRecord) -> None:
        buffer = _buffer.get()
        if buffer is not None and not record.name.startswith("py4j"):
            try:
                buffer.sink(f"{record.levelname} {record.name}", self.format(record))
            except Exception:
                self.handleError(record)
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not self._others(record):
            with without_capture():
                last.handle(record)

    def _others(self, record: logging.LogRecord) -> bool:
        """Return whether another handler gets the record; else it is passed on to the handler of last resort."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


_lock = threading.Lock()
_listening = 0
_handler = _CapturingHandler()
_raised = False


@contextmanager
def install_capture() -> Iterator[None]:
    """Install the capture hooks on the process's streams and loggers for the block; blocks may overlap."""
    global _listening
    with _lock:
        _listening += 1
        if _listening == 1:
            _install()
    try:
        yield
    finally:
        with _lock:
            _listening -= 1
            if not _listening:
                _uninstall()


def _install() -> None:
    """Install the capture hooks; if logging is unconfigured, lower the root level to INFO."""
    global _raised
    for name in _STREAMS:
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _CapturingStream):
            setattr(sys, name, cast(TextIO, _CapturingStream(name, stream)))
    root = logging.getLogger()
    _raised = not root.handlers and root.level == logging.WARNING
    if _raised:
        root.setLevel(logging.INFO)
    root.addHandler(_handler)


def _uninstall() -> None:
    for name in _STREAMS:
        if isinstance(stream := getattr(sys, name), _CapturingStream):
            setattr(sys, name, stream.stream)
    root = logging.getLogger()
    root.removeHandler(_handler)
    if _raised and root.level == logging.INFO:
        root.setLevel(logging.WARNING)


@contextmanager
def capture_output(sink: LineSink) -> Iterator[None]:
    """Capture the output of this context within the block, while the hooks of `install_capture` are installed."""
    buffer = _CaptureBuffer(sink)
    token = _buffer.set(buffer)
    try:
        yield
    finally:
        _buffer.reset(token)
        buffer.end()


@contextmanager
def without_capture() -> Iterator[None]:
    """Disable capture in this context within the block."""
    token = _buffer.set(None)
    try:
        yield
    finally:
        _buffer.reset(token)
