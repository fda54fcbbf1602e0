"""Long-running operations of the API, done by workers; clients wait for the outcome or poll for it.

Outcomes are kept in memory by the server that accepted the operation; lasting results are recorded in the catalog.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from kilonova.errors import Cancelled, Conflict, InvalidState, NotFound, SparkUnavailable
from kilonova.service.spark_operations import SparkOperations

_UNENDED = 100
"""Maximum number of operations that wait or run at once."""

_PAGES = 50
"""Maximum number of these that are pages of rows: read-only clients leave room for others."""

_ENDED = 1000
"""Maximum number of outcomes that are kept."""

_LOOK = 0.5
"""Seconds between checks whether a client still waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An accepted operation.

    Attributes:
        name: unguessable name by which to poll for the outcome.
        what: the kind of operation.
        channel: the channel concerned; None if it is not one.
        outcome: future of the result, or of a `kilonova.service.spark_operations.OperationFailed`.
    """

    name: str
    what: str
    channel: str | None
    outcome: Future[Any]


def client_gone() -> Cancelled:
    """Return the error of a request whose client has disconnected; the client does not receive it."""
    return Cancelled(
        "the client has disconnected",
        hint="Repeat the request; an Idempotency-Key keeps an ingest from being inserted twice",
    )


class Operations:
    """The accepted operations of a server."""

    def __init__(self, server: SparkOperations) -> None:
        self._server = server
        self._asked: dict[str, Operation] = {}
        self._lock = threading.Lock()

    def ask(self, what: str, then: Callable[[], None] = lambda: None, **arguments: Any) -> Operation:
        """Start an operation, done by a worker.

        Args:
            what: see `kilonova.service.spark_operations.SparkOperations.operation`.
            then: called when it has ended, whatever the outcome, or if it is not accepted.
            arguments: its arguments.

        Raises:
            Conflict: too many operations are waiting already.
            SparkUnavailable: too many pages are waiting already.
        """
        with ExitStack() as after, self._lock:
            after.callback(then)
            ended = [name for name, asked in self._asked.items() if asked.outcome.done()]
            if len(self._asked) - len(ended) >= _UNENDED:
                raise Conflict(f"{_UNENDED} operations are already waiting for workers", hint="Try again later")
            pages = sum(asked.what == "page" and not asked.outcome.done() for asked in self._asked.values())
            if what == "page" and pages >= _PAGES:
                raise SparkUnavailable(f"{_PAGES} pages are already waiting for workers", hint="Try again later")
            for name in ended[: max(0, len(ended) - _ENDED)]:
                del self._asked[name]
            outcome, channel = self._server.operation(what, **arguments), arguments.get("channel")
            asked = Operation(name=uuid.uuid4().hex, what=what, channel=channel, outcome=outcome)
            self._asked[asked.name] = asked
            after.pop_all()
        asked.outcome.add_done_callback(lambda _: then())
        return asked

    async def done(
        self,
        what: str,
        then: Callable[[], None] = lambda: None,
        *,
        client: Request | None = None,
        **arguments: Any,
    ) -> Any:
        """Start an operation as `ask` does, with the same errors, and wait for its result.

        If the client whose request is given disconnects before a worker has begun, the operation is not done.

        Raises:
            OperationFailed: the operation failed.
            Cancelled: the client has disconnected.
        """
        waiting = self.ask(what, then, **arguments).outcome
        outcome = asyncio.wrap_future(waiting)
        while client is not None and not (waiting.running() or outcome.done()):
            await asyncio.wait([outcome], timeout=_LOOK)
            if not waiting.running() and await client.is_disconnected() and waiting.cancel():
                raise client_gone()
        return await outcome

    def before(self, operation: Operation) -> int | None:
        """Return how many runs and operations are before one that waits for a worker; None if it does not."""
        outcome = operation.outcome
        return None if outcome.running() or outcome.done() else self._server.before(outcome)

    def progress(self, operation: Operation) -> str | None:
        """Return what a worker does for an operation now, as text for users; None if it has not said."""
        return self._server.progress(operation.outcome)

    def before_first(self, what: str, channel: str | None = None) -> int | None:
        """Return how many are before the first of some operations that waits for a worker; None if none does.

        Args:
            what: the kind of operation.
            channel: the channel concerned; None for those that concern none.
        """
        with self._lock:
            found = [each for each in self._asked.values() if each.what == what and each.channel == channel]
        return next((before for each in found if (before := self.before(each)) is not None), None)

    def cancel(self, operation: Operation) -> None:
        """Cancel an operation that has not begun, or a preview, which leaves nothing behind.

        Raises:
            InvalidState: it has begun and is no preview, or it has ended.
        """
        if operation.outcome.done():
            raise InvalidState(f"the operation has ended: {operation.what}", hint="Its outcome stays")
        if operation.outcome.cancel():
            return
        if operation.what != "preview":
            hint = "Wait until it has ended, or cancel its run"
            raise InvalidState(f"a worker has begun the operation: {operation.what}", hint=hint)
        self._server.cancel(operation.outcome)

    def asked(self, name: str) -> Operation:
        """Return an operation by its name.

        Raises:
            NotFound: this server did not accept it, or has dropped its outcome.
        """
        try:
            return self._asked[name]
        except KeyError:
            hint = "Ask the server that accepted it, or see the runs"
            raise NotFound("there is no such operation", hint=hint) from None
