"""The servers over the catalog: which are alive, what each has taken on, and what others took over."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from kilonova.server.page.glances import Glances
from kilonova.server.page.rendering import Pages
from kilonova.server.routes.context import Context

_ROWS = 30
"""How many servers, and take-overs, are shown."""


def server_pages(context: Context, pages: Pages, _glances: Glances) -> APIRouter:
    """The page of servers."""
    router = APIRouter()
    project = context.project

    @router.get("/servers")
    def servers(request: Request) -> Response:
        return pages.show(
            request,
            "servers.html",
            found=project.attendance(_ROWS),
            takeovers=project.takeovers(_ROWS),
            here=context.server.name,
            lease=project.settings.serve.lease,
        )

    return router
