"""Page of events, updated live."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from kilonova.api.routes.context import Before, RouteContext
from kilonova.model.event import EventKind
from kilonova.web.overview_cache import OverviewCache
from kilonova.web.rendering import PageRenderer

_ROWS = 100
"""Number of events per page."""


def event_pages(context: RouteContext, pages: PageRenderer, _glances: OverviewCache) -> APIRouter:
    """Return the route of the page of events."""
    router = APIRouter()
    project = context.project

    @router.get("/events")
    def events(
        request: Request, before: Before = None, kind: str = "", binding: str = "", channel: str = ""
    ) -> Response:
        kinds = [each for each in EventKind if each.value == kind]
        found = project.events_before(before, _ROWS + 1, kinds or None, binding or None, channel or None)
        given = {name: value for name, value in (("kind", kind), ("binding", binding), ("channel", channel)) if value}
        return pages.show(
            request,
            "events.html",
            found=found[:_ROWS],
            kinds=[each.value for each in EventKind],
            kind=kind,
            binding=binding,
            channel=channel,
            earlier="?" + urlencode({**given, "before": found[_ROWS - 1].number}) if len(found) > _ROWS else None,
            later="?" + urlencode(given) if before is not None else None,
        )

    return router
