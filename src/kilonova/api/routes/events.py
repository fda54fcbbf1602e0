"""Routes of events: listing past ones and streaming new ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, StreamingResponse

from kilonova.api.auth import AccessDenied
from kilonova.api.routes.context import Before, Limit, Number, RouteContext, paginate
from kilonova.model.event import Event, EventKind
from kilonova.model.role import Role
from kilonova.service.project import Project

Kinds = Annotated[list[EventKind] | None, Query(description="Only events of these kinds.")]
Named = Annotated[
    str | None, Query(description="Only events of this channel, among the 5,000 newest that match otherwise.")
]


class EventStream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"


def event_routes(context: RouteContext) -> APIRouter:
    """Return the routes of events."""
    router = APIRouter(tags=["events"])
    project = context.project
    newest = NewestEventResponse(project)

    @router.get("/events", dependencies=context.read)
    def events(
        request: Request,
        response: Response,
        since: Number = 0,
        before: Before = None,
        kind: Kinds = None,
        binding: str | None = None,
        channel: Named = None,
        limit: Limit = 1000,
    ) -> list[Event]:
        """List the events after an event, in order; with `before` or a filter, newest first."""
        if (before, kind, binding, channel) == (None, None, None, None):
            found = project.events(since, limit + 1)
            return paginate(request, response, found, limit, "since", lambda last: last.number)
        found = project.events_before(before, limit + 1, kind, binding, channel, since=since)
        return paginate(request, response, found, limit, "before", lambda last: last.number)

    @router.get("/events/stream", dependencies=context.read, response_class=EventStream)
    async def stream(request: Request, since: Annotated[int | None, Query(ge=0, le=2**31)] = None) -> Response:
        """Stream events as server-sent events, from now on or after an event (also by the header `Last-Event-ID`)."""
        last = request.headers.get("last-event-id", "")
        seen = max(since or 0, int(last) if last.isdecimal() else 0)
        begin = seen or await run_in_threadpool(project.newest_event)

        async def ended() -> bool:
            return context.over.is_set() or await request.is_disconnected()

        def admitted() -> bool:
            try:
                context.access.check(request, Role.READ)
            except AccessDenied:
                return False
            return True

        return EventStream(_streamed(project, newest, begin, ended, admitted))

    return router


_LOOK = 0.2
"""Seconds between checks for events to stream."""

_ALIVE = 15.0
"""Seconds without events after which a stream sends a keep-alive comment."""


_ADMIT = 5.0
"""Seconds between checks that a stream's client is still authorized: its token may be revoked."""


class NewestEventResponse:
    """Cached number of the newest event: queried once per interval, however many streams there are.

    Args:
        project: the project.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._number = 0
        self._next = 0.0

    async def __call__(self) -> int:
        """Return the number, at most two intervals old; 0 if there is none, or it has not been queried yet."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LOOK  # concurrent callers get the previous number
            self._number = await run_in_threadpool(self._project.newest_event)
        return self._number


async def _streamed(
    project: Project,
    newest: Callable[[], Awaitable[int]],
    since: int,
    ended: Callable[[], Awaitable[bool]],
    admitted: Callable[[], bool],
) -> AsyncIterator[str]:
    spoken = asked = time.monotonic()
    while not await ended():
        if time.monotonic() - asked > _ADMIT:
            if not await run_in_threadpool(admitted):
                return
            asked = time.monotonic()
        for event in await run_in_threadpool(project.events, since, 1000) if await newest() > since else ():
            since = event.number
            body = JSONResponse(jsonable_encoder(event)).body
            yield f"id: {event.number}\nevent: {event.kind.value}\ndata: {bytes(body).decode()}\n\n"
            spoken = time.monotonic()
        if time.monotonic() - spoken > _ALIVE:
            yield ": alive\n\n"
            spoken = time.monotonic()
        await asyncio.sleep(_LOOK)
