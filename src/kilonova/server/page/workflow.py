"""The workflow as a live graph."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Annotated
from zlib import crc32

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from kilonova.catalog.overview import Overview
from kilonova.server.page.glances import Glances, around, condition, part, standing, told
from kilonova.server.page.picture import pictured
from kilonova.server.page.rendering import Pages
from kilonova.server.page.words import holding
from kilonova.server.routes.context import Context

_MATCHES = 12
"""How many names are offered for what somebody types."""

_DIGITS = 16
"""No number of a run has so many."""


def workflow_pages(_context: Context, pages: Pages, glances: Glances) -> APIRouter:
    """The page of the workflow, and what keeps it up to date."""
    router = APIRouter()

    @router.get("/")
    def workflow(
        request: Request,
        workflow: str = "",
        focus: str = "",
        depth: Annotated[int, Query(ge=1, le=20)] = 2,
    ) -> Response:
        every = glances.overview()
        shown = _narrowed(every, workflow, focus, depth)
        return pages.show(
            request,
            "workflow.html",
            every=every,
            shown=shown,
            picture=pictured(shown, every),
            workflows=sorted({each.workflow for each in every.channels.values()}),
            workflow=workflow,
            focus=focus,
            depth=depth,
            counts=_counts(shown),
            shape=shape(every),
            start=_start(every) if request.state.viewer.operates else None,
        )

    @router.get("/workflow/state")
    def state() -> Response:
        """What changes on the picture, without the picture."""
        every = glances.overview()
        return _fresh(
            {
                "shape": shape(every),
                "going": bool(every.running),
                "tasks": {
                    name: [found.state, found.text]
                    for name, task in every.tasks.items()
                    for found in (standing(task, every),)
                },
                "channels": {
                    name: [condition(each), holding(each.rows), each.time and each.time.isoformat(), told(each)]
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
    def search(q: str = "") -> Response:
        """Channels, tasks and bindings whose names contain what somebody types."""
        every, wanted = glances.overview(), q.strip().lower()
        names = [
            *(("task", name, f"/tasks/{name}") for name in every.tasks),
            *(("channel", name, f"/channels/{name}") for name in every.channels),
            *(("binding", name, f"/triggers/{name}") for name, each in every.bindings.items() if not each.alone),
        ]
        found = [each for each in names if wanted in each[1].lower()]
        found.sort(key=lambda each: (not each[1].lower().startswith(wanted), len(each[1]), each[1]))
        if wanted.isdecimal() and len(wanted) < _DIGITS:
            found.insert(0, ("run", f"Run {int(wanted)}", f"/runs/{int(wanted)}"))
        return _fresh([{"kind": kind, "name": name, "page": page} for kind, name, page in found[:_MATCHES]])

    return router


def draw_ahead(glances: Glances) -> None:
    """Draw the workflow before somebody asks for it, because the first time takes longest."""
    try:
        every = glances.overview()
        pictured(every, every)
    except Exception as error:  # whoever asks for it is told
        logging.getLogger(__name__).warning("the workflow was not drawn ahead: %s", error)


def _fresh(content: object) -> JSONResponse:
    """An answer that nobody keeps."""
    return JSONResponse(content, headers={"Cache-Control": "no-store"})


def _narrowed(overview: Overview, workflow: str, focus: str, depth: int) -> Overview:
    if focus:
        task = overview.tasks.get(focus)
        return around(overview, task.writes if task else [focus], depth)
    if workflow:
        mine = {name for name, each in overview.channels.items() if each.workflow == workflow}
        read = {each.channel for task in overview.tasks.values() if task.workflow == workflow for each in task.reads}
        return part(overview, mine | read)
    return overview


def _start(overview: Overview) -> str | None:
    """Where somebody can put the first data, if there is none at all."""
    if any(each.point for each in overview.channels.values()):
        return None
    made = {channel for task in overview.tasks.values() for channel in task.writes}
    return next((name for name, each in overview.channels.items() if name not in made and not each.watched), None)


def _counts(overview: Overview) -> dict[str, int]:
    """How many tasks stand how, those that want to be seen first."""
    found = Counter(standing(task, overview).state for task in overview.tasks.values())
    return {state: found[state] for state in ("running", "failed", "due", "paused", "empty", "fresh")}


def shape(overview: Overview) -> str:
    """What differs if the picture has to be drawn anew: channels or tasks have come or gone, or read otherwise."""
    parts = [
        f"{task.workflow}.{task.binding}.{task.name}.{task.logic}:{','.join(each.channel for each in task.reads)}"
        for task in overview.tasks.values()
    ]
    parts += [f"{channel.workflow}.{channel.name}" for channel in overview.channels.values()]
    return f"{crc32(repr(parts).encode()):x}"
