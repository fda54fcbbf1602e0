"""Page of the catalog's servers: the ones alive, the work of each, and failovers."""

from __future__ import annotations

from fastapi import APIRouter, Response

from kilonova.model.event import EventKind
from kilonova.web.page import CurrentPage

_ROWS = 30
"""Number of servers, and of failovers, shown."""

_FAILOVERS = (EventKind.SERVER_SILENT, EventKind.ABANDONED)


router = APIRouter()


@router.get("/servers")
def servers(page: CurrentPage) -> Response:
    """Show the servers."""
    return page.show(
        "servers.html",
        found=page.project.reader.servers(_ROWS),
        takeovers=page.project.reader.events_before(None, _ROWS, _FAILOVERS),
        here=page.context.server.name,
        lease=page.project.settings.serve.lease,
    )
