"""Routes of events: listing past ones and streaming new ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, StreamingResponse

from kilonova.api.auth import AccessDenied
from kilonova.api.newest_event import INTERVAL
from kilonova.api.routes.context import READ, Before, Context, CurrentProject, Limit, Number, Paging, RouteContext
from kilonova.model.event import Event, EventKind
from kilonova.model.role import Role

Kinds = Annotated[list[EventKind] | None, Query(description="Only events of these kinds.")]
Named = Annotated[
    str | None, Query(description="Only events of this channel, among the 5,000 newest that match otherwise.")
]


class EventStream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"


router = APIRouter(tags=["events"])


async def _long_page(request: Request, response: Response, limit: Limit = 1000) -> Paging:
    return Paging(request, response, limit)


@router.get("/events", dependencies=READ)
def events(
    project: CurrentProject,
    paging: Annotated[Paging, Depends(_long_page)],
    since: Number = 0,
    before: Before = None,
    kind: Kinds = None,
    binding: str | None = None,
    channel: Named = None,
) -> list[Event]:
    """List the events after an event, in order; with `before` or a filter, newest first."""
    if (before, kind, binding, channel) == (None, None, None, None):
        return paging.page(project.events(since, paging.more), "since", lambda last: last.number)
    found = project.reader.events_before(before, paging.more, kind, binding, channel, since=since)
    return paging.page(found, "before", lambda last: last.number)


@router.get("/events/stream", dependencies=READ, response_class=EventStream)
async def stream(
    context: Context, request: Request, since: Annotated[int | None, Query(ge=0, le=2**31)] = None
) -> Response:
    """Stream events as server-sent events, from now on or after an event (also by the header `Last-Event-ID`)."""
    last = request.headers.get("last-event-id", "")
    seen = max(since or 0, int(last) if last.isdecimal() else 0)
    begin = seen or await run_in_threadpool(context.project.reader.newest_event)

    async def ended() -> bool:
        return context.over.is_set() or await request.is_disconnected()

    def admitted() -> bool:
        try:
            context.access.check(request, Role.READ)
        except AccessDenied:
            return False
        return True

    return EventStream(_streamed(context, begin, ended, admitted))


_ALIVE = 15.0
"""Seconds without events after which a stream sends a keep-alive comment."""


_ADMIT = 5.0
"""Seconds between checks that a stream's client is still authorized: its token may be revoked."""


async def _streamed(
    context: RouteContext, since: int, ended: Callable[[], Awaitable[bool]], admitted: Callable[[], bool]
) -> AsyncIterator[str]:
    spoken = asked = time.monotonic()
    while not await ended():
        if time.monotonic() - asked > _ADMIT:
            if not await run_in_threadpool(admitted):
                return
            asked = time.monotonic()
        fresh = await context.newest_event() > since
        for event in await run_in_threadpool(context.project.events, since, 1000) if fresh else ():
            since = event.number
            body = JSONResponse(jsonable_encoder(event)).body
            yield f"id: {event.number}\nevent: {event.kind.value}\ndata: {bytes(body).decode()}\n\n"
            spoken = time.monotonic()
        if time.monotonic() - spoken > _ALIVE:
            yield ": alive\n\n"
            spoken = time.monotonic()
        await asyncio.sleep(INTERVAL)
