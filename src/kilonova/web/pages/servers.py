"""Page of the catalog's servers: the ones alive, the work of each, and failovers."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from kilonova.api.routes.context import RouteContext
from kilonova.web.overview_cache import OverviewCache
from kilonova.web.rendering import PageRenderer

_ROWS = 30
"""Number of servers, and of failovers, shown."""


def server_pages(context: RouteContext, pages: PageRenderer, _glances: OverviewCache) -> APIRouter:
    """Return the route of the page of servers."""
    router = APIRouter()
    project = context.project

    @router.get("/servers")
    def servers(request: Request) -> Response:
        return pages.show(
            request,
            "servers.html",
            found=project.servers(_ROWS),
            takeovers=project.failovers(_ROWS),
            here=context.server.name,
            lease=project.settings.serve.lease,
        )

    return router
