"""Page of the workflow as a live graph."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Annotated
from zlib import crc32

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from kilonova.catalog.read_models.overview import Overview
from kilonova.service.formatting import holding
from kilonova.web.graph.picture import graph_picture
from kilonova.web.overview_cache import (
    OverviewCache,
    channel_status,
    describe_channel,
    neighbourhood,
    select_part,
    task_status,
)
from kilonova.web.page import CurrentPage

_MATCHES = 12
"""Maximum number of search results."""

_DIGITS = 16
"""Number of digits that no run number reaches."""


router = APIRouter()


@router.get("/")
def workflow(
    page: CurrentPage,
    workflow: str = "",
    focus: str = "",
    depth: Annotated[int, Query(ge=1, le=20)] = 2,
) -> Response:
    """Show the workflow as a graph."""
    every = page.overview()
    shown = _narrowed(every, workflow, focus, depth)
    return page.show(
        "workflow.html",
        every=every,
        shown=shown,
        picture=graph_picture(shown, every),
        workflows=sorted({each.workflow for each in every.channels.values()}),
        workflow=workflow,
        focus=focus,
        depth=depth,
        counts=_counts(shown),
        quarantined=_quarantined(shown),
        shape=shape(every),
        start=_start(every) if page.request.state.viewer.operates else None,
    )


@router.get("/workflow/state")
def state(page: CurrentPage) -> Response:
    """Return the variable part of the drawing: its status, without the layout."""
    every = page.overview()
    return _fresh(
        {
            "shape": shape(every),
            "going": bool(every.running),
            "quarantined": _quarantined(every),
            "tasks": {
                name: [found.state, found.text]
                for name, task in every.tasks.items()
                for found in (task_status(task, every),)
            },
            "channels": {
                name: [
                    channel_status(each),
                    holding(each.rows),
                    each.time and each.time.isoformat(),
                    describe_channel(each),
                ]
                for name, each in every.channels.items()
            },
            "behind": {
                task.name: {each.channel: each.behind for each in task.reads if each.behind}
                for task in every.tasks.values()
                if any(each.behind for each in task.reads)
            },
        }
    )


@router.get("/search")
def search(page: CurrentPage, q: str = "") -> Response:
    """Return the channels, tasks and bindings whose names contain the search text."""
    every, wanted = page.overview(), q.strip().lower()
    names = [
        *(("task", name, f"/tasks/{name}") for name in every.tasks),
        *(("channel", name, f"/channels/{name}") for name in every.channels),
        *(("binding", name, f"/triggers/{name}") for name, each in every.bindings.items() if not each.implicit),
    ]
    found = [each for each in names if wanted in each[1].lower()]
    found.sort(key=lambda each: (not each[1].lower().startswith(wanted), len(each[1]), each[1]))
    if wanted.isdecimal() and len(wanted) < _DIGITS:
        found.insert(0, ("run", f"Run {int(wanted)}", f"/runs/{int(wanted)}"))
    return _fresh([{"kind": kind, "name": name, "page": page} for kind, name, page in found[:_MATCHES]])


def draw_ahead(overviews: OverviewCache) -> None:
    """Draw the workflow before the first request, because the first time takes longest."""
    try:
        every = overviews.overview()
        graph_picture(every, every)
    except Exception as error:  # reported to the requests that follow
        logging.getLogger(__name__).warning("the picture of the workflow was not rendered in advance: %s", error)


def _fresh(content: object) -> JSONResponse:
    """Return a JSON response that is not cached."""
    return JSONResponse(content, headers={"Cache-Control": "no-store"})


def _narrowed(overview: Overview, workflow: str, focus: str, depth: int) -> Overview:
    if focus:
        task = overview.tasks.get(focus)
        return neighbourhood(overview, task.writes if task else [focus], depth)
    if workflow:
        mine = {name for name, each in overview.channels.items() if each.workflow == workflow}
        read = {each.channel for task in overview.tasks.values() if task.workflow == workflow for each in task.reads}
        return select_part(overview, mine | read)
    return overview


def _start(overview: Overview) -> str | None:
    """Return a source channel to ingest the first data into, if there is no data at all."""
    if any(each.point for each in overview.channels.values()):
        return None
    made = {channel for task in overview.tasks.values() for channel in task.writes}
    return next((name for name, each in overview.channels.items() if name not in made and not each.watched), None)


def _counts(overview: Overview) -> dict[str, int]:
    """Return the number of tasks by status, the most important first."""
    found = Counter(task_status(task, overview).state for task in overview.tasks.values())
    return {state: found[state] for state in ("running", "failed", "due", "paused", "empty", "fresh")}


def _quarantined(overview: Overview) -> int:
    """Return the number of quarantined files."""
    return sum(channel.quarantined for channel in overview.channels.values())


def shape(overview: Overview) -> str:
    """Return a hash that changes if the graph must be redrawn: if channels, tasks or their inputs change."""
    parts = [
        f"{task.workflow}.{task.binding}.{task.name}.{task.logic}:{','.join(each.channel for each in task.reads)}"
        for task in overview.tasks.values()
    ]
    parts += [f"{channel.workflow}.{channel.name}" for channel in overview.channels.values()]
    return f"{crc32(repr(parts).encode()):x}"
