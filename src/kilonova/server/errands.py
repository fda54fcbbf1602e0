"""What the API lets workers do, for those who wait for the outcome and those who come back for it.

Outcomes are kept by the server that was asked, and no longer than it lives: what was done stands in the catalog.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from kilonova.errors import Busy, Cancelled, SparkUnavailable, UnknownName
from kilonova.server.loop import Server

_UNENDED = 100
"""How many may wait or be done at once."""

_PAGES = 50
"""How many of them are pages of rows: who may only look leaves room for others."""

_ENDED = 1000
"""How many outcomes are kept."""


_LOOK = 0.5
"""Seconds between looks whether a client still waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An errand that somebody has asked for.

    Attributes:
        name: by which to ask what became of it; nobody can guess it.
        what: what is done.
        outcome: the result to come, or `kilonova.server.loop.Refused`.
    """

    name: str
    what: str
    outcome: Future[Any]


class Client(Protocol):
    """Who waits for an answer."""

    async def is_disconnected(self) -> bool:
        """Return whether they are gone."""


def client_gone() -> Cancelled:
    """Return why nothing is done for a client that has gone; it is not there to read this."""
    return Cancelled("the client has gone", hint="Ask again; give an ingest an Idempotency-Key, so that it comes once")


class Errands:
    """The errands that somebody has asked a server for.

    Args:
        server: the server.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._asked: dict[str, Asked] = {}
        self._lock = threading.Lock()

    def ask(self, what: str, then: Callable[[], None] = lambda: None, **arguments: Any) -> Asked:
        """Let a worker do something.

        Args:
            what: see `kilonova.server.loop.Server.errand`.
            then: called when it has ended, however it did, or if it is not taken on.
            arguments: its arguments.

        Raises:
            Busy: too many errands wait already.
            SparkUnavailable: too many pages do.
        """
        with ExitStack() as after, self._lock:
            after.callback(then)
            ended = [name for name, asked in self._asked.items() if asked.outcome.done()]
            if len(self._asked) - len(ended) >= _UNENDED:
                raise Busy(f"{_UNENDED} errands wait for workers already", hint="Try again later")
            pages = sum(asked.what == "page" and not asked.outcome.done() for asked in self._asked.values())
            if what == "page" and pages >= _PAGES:
                raise SparkUnavailable(f"{_PAGES} pages wait for workers already", hint="Try again later")
            for name in ended[: max(0, len(ended) - _ENDED)]:
                del self._asked[name]
            asked = Asked(name=uuid.uuid4().hex, what=what, outcome=self._server.errand(what, **arguments))
            self._asked[asked.name] = asked
            after.pop_all()
        asked.outcome.add_done_callback(lambda _: then())
        return asked

    async def done(
        self, what: str, then: Callable[[], None] = lambda: None, *, client: Client | None = None, **arguments: Any
    ) -> Any:
        """Let a worker do something, and wait for the result; see `ask`.

        Args:
            what: see `kilonova.server.loop.Server.errand`.
            then: called when it has ended, however it did, or if it is not taken on.
            client: who waits: if they are gone before a worker has begun, it is not done.
            arguments: its arguments.

        Raises:
            Refused: it could not be done.
            Busy: too many errands wait already.
            SparkUnavailable: too many pages do.
            Cancelled: the client has gone.
        """
        waiting = self.ask(what, then, **arguments).outcome
        outcome = asyncio.wrap_future(waiting)
        while client is not None and not (waiting.running() or outcome.done()):
            await asyncio.wait([outcome], timeout=_LOOK)
            if not waiting.running() and await client.is_disconnected() and waiting.cancel():
                raise client_gone()
        return await outcome

    def asked(self, name: str) -> Asked:
        """An errand that was asked for.

        Raises:
            UnknownName: nobody has asked this server for it, or that was long ago.
        """
        try:
            return self._asked[name]
        except KeyError:
            raise UnknownName("there is no such errand", hint="Ask the server that took it; see the runs") from None
