"""Connections to the HTTP API: how many there may be at once, and how long a request may take to come.

A connection on which a request's head has not come entirely holds a descriptor and gives nothing. Of those the oldest
is closed where one more would be too many; and each is closed that has waited for too long, as are those on which a
body comes more slowly than at `_LEAST` bytes a second.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_LEAST = 1024
"""Bytes of a body that come in a second at least, unless the server does not take them yet."""


def bounded(most: int, seconds: float) -> type[asyncio.Protocol]:
    """A protocol for connections.

    Args:
        most: how many there may be at once.
        seconds: how long the head of a request may take, within a factor of two.
    """

    class Bounded(H11Protocol):
        """A connection."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._began = self.loop.time()
            self._came = 0
            self._before: tuple[object, object, int] | None = None
            self._timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Count a connection, and close the oldest that waits if it is one too many."""
            super().connection_made(transport)
            self._timer = self.loop.call_later(seconds, self._look)
            if len(self.connections) > most:
                waiting = [each for each in self.connections if isinstance(each, Bounded) and each._waits]
                min(waiting, key=lambda each: each._began)._close()

        def data_received(self, data: bytes) -> None:
            """Take what has come."""
            self._came += len(data)
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget a connection."""
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

        @property
        def _waits(self) -> bool:
            """Whether a request's head is to come."""
            return self.conn.their_state is h11.IDLE

        def _look(self) -> None:
            """Close a connection on which too little has come since the last look."""
            state, request, came = self._before or (None, None, 0)
            if state is self.conn.their_state and request is self.cycle:
                takes = state is h11.SEND_BODY and not (self.flow.read_paused or self.cycle.waiting_for_100_continue)
                if self._waits or (takes and self._came - came < _LEAST * seconds):
                    self._close()
                    return
            self._before = self.conn.their_state, self.cycle, self._came
            self._timer = self.loop.call_later(seconds, self._look)

        def _close(self) -> None:
            self.connections.discard(self)
            self.transport.abort()

    return Bounded
