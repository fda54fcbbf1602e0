"""A page that is requested, with what it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from kilonova.api.routes.context import RouteContext
from kilonova.catalog.read_models.overview import Overview
from kilonova.service.project import Project
from kilonova.web.overview_cache import OverviewCache
from kilonova.web.rendering import PageRenderer


@dataclass(frozen=True, slots=True)
class Page:
    """A requested page, and what it is made from: the context of the API's routes, a renderer, and the overview."""

    request: Request
    context: RouteContext
    renderer: PageRenderer
    overviews: OverviewCache

    @property
    def project(self) -> Project:
        """The project."""
        return self.context.project

    def overview(self) -> Overview:
        """Return the current overview of the project."""
        return self.overviews.overview()

    def show(self, template: str, *, code: int = 200, **values: Any) -> Response:
        """Render the page: see `kilonova.web.rendering.PageRenderer.show`."""
        return self.renderer.show(self.request, template, code=code, **values)


async def _page(request: Request) -> Page:
    state = request.app.state
    return Page(request, state.context, state.renderer, state.overviews)


CurrentPage = Annotated[Page, Depends(_page)]
"""The requested page; an application has what it consists of as `app.state`."""
