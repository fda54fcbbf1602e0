"""Page of the catalog's servers: the ones alive, the work of each, and failovers."""

from __future__ import annotations

from fastapi import APIRouter, Response

from kilonova.web.page import CurrentPage

_ROWS = 30
"""Number of servers, and of failovers, shown."""


router = APIRouter()


@router.get("/servers")
def servers(page: CurrentPage) -> Response:
    """Show the servers."""
    return page.show(
        "servers.html",
        found=page.project.reader.servers(_ROWS),
        takeovers=page.project.reader.failovers(_ROWS),
        here=page.context.server.name,
        lease=page.project.settings.serve.lease,
    )
