"""Limits on connections to the HTTP API: their number, and the time that a request may take to arrive.

A connection on which a request's head has not arrived completely occupies a descriptor without doing work. The oldest
of these is closed when the limit is exceeded. Each is closed also after a timeout, as are those on which a body
arrives, or a response is received, more slowly than at `_LEAST` bytes a second.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_LEAST = 1024
"""Minimum rate in bytes per second at which a body arrives, unless the server has paused reading, and at which a
response is received."""


class BoundedConnection(H11Protocol):
    """Connection that is subject to the limits.

    Attributes:
        limit: maximum number of connections at once.
        timeout: seconds for the head of a request to arrive, accurate within a factor of two.
    """

    limit: ClassVar[int]
    timeout: ClassVar[float]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._began = self.loop.time()
        self._came = 0
        self._before: tuple[object, object, int] | None = None
        self._untaken: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count a connection, and close the oldest waiting one if there are too many."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.timeout, self._look)
        if len(self.connections) > self.limit:
            waiting = [each for each in self.connections if isinstance(each, BoundedConnection) and each._waits]
            min(waiting, key=lambda each: each._began)._close()

    def data_received(self, data: bytes) -> None:
        """Count and process received data."""
        self._came += len(data)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the connection's timer."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def _waits(self) -> bool:
        """Return whether the connection waits for a request's head."""
        return self.conn.their_state is h11.IDLE

    def resume_writing(self) -> None:
        """Continue with a response, of which enough has been received."""
        self._untaken = None
        super().resume_writing()

    def _look(self) -> None:
        """Close the connection if too little has arrived, or been received, since the last check."""
        untaken = self.transport.get_write_buffer_size() if self.flow.write_paused else None
        if untaken is not None and self._untaken is not None and self._untaken - untaken < _LEAST * self.timeout:
            self._close()
            return
        self._untaken = untaken
        state, request, came = self._before or (None, None, 0)
        if state is self.conn.their_state and request is self.cycle:
            takes = state is h11.SEND_BODY and not (self.flow.read_paused or self.cycle.waiting_for_100_continue)
            if self._waits or (takes and self._came - came < _LEAST * self.timeout):
                self._close()
                return
        self._before = self.conn.their_state, self.cycle, self._came
        self._timer = self.loop.call_later(self.timeout, self._look)

    def _close(self) -> None:
        self.connections.discard(self)
        self.transport.abort()


def bounded(most: int, seconds: float) -> type[BoundedConnection]:
    """Return a protocol class for at most so many connections, with a timeout in seconds."""
    return type("Bounded", (BoundedConnection,), {"limit": most, "timeout": seconds})
