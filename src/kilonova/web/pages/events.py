"""Page of events, updated live."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Response

from kilonova.api.routes.context import Before
from kilonova.model.event import EventKind
from kilonova.web.page import CurrentPage

_ROWS = 100
"""Number of events per page."""


router = APIRouter()


@router.get("/events")
def events(page: CurrentPage, before: Before = None, kind: str = "", binding: str = "", channel: str = "") -> Response:
    """Show the events."""
    kinds = [each for each in EventKind if each.value == kind]
    found = page.project.reader.events_before(before, _ROWS + 1, kinds or None, binding or None, channel or None)
    given = {name: value for name, value in (("kind", kind), ("binding", binding), ("channel", channel)) if value}
    return page.show(
        "events.html",
        found=found[:_ROWS],
        kinds=[each.value for each in EventKind],
        kind=kind,
        binding=binding,
        channel=channel,
        earlier="?" + urlencode({**given, "before": found[_ROWS - 1].number}) if len(found) > _ROWS else None,
        later="?" + urlencode(given) if before is not None else None,
    )
