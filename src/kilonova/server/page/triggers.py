"""What runs by itself: the bindings, what starts each next and why, and what has fired."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from kilonova.catalog.overview import Overview
from kilonova.server.page.glances import Glances, part
from kilonova.server.page.picture import pictured
from kilonova.server.page.rendering import Pages
from kilonova.server.routes.context import Before, Context, Number

_ROWS = 50
"""How many bindings, or firings, a page has."""

_NEXT = 8
"""How many of the times that come next are shown."""


def trigger_pages(context: Context, pages: Pages, glances: Glances) -> APIRouter:
    """The pages of bindings and their triggers."""
    router = APIRouter()
    project = context.project

    @router.get("/triggers")
    def triggers(request: Request, q: str = "", only: str = "", start: Number = 0) -> Response:
        every = glances.overview()
        names = [
            name
            for name, each in every.bindings.items()
            if q.strip().lower() in name.lower()
            and (only != "paused" or each.paused)
            and (only != "due" or each.due)
            and (only != "workflowettes" or not each.alone)
        ]
        return pages.show(
            request,
            "triggers.html",
            every=every,
            found=project.prospects(names=names[start : start + _ROWS]),
            upcoming=project.upcoming(_NEXT) if start == 0 else [],
            count=len(names),
            start=start,
            size=_ROWS,
            q=q,
            only=only,
        )

    @router.get("/triggers/{name}")
    def binding(request: Request, name: str, before: Before = None) -> Response:
        pending = project.prospects(names=[name])[0]
        every = glances.overview()
        near = _of(every, pending.bound.binding.tasks)
        firings = project.firings(_ROWS + 1, name, before)
        return pages.show(
            request,
            "binding.html",
            pending=pending,
            binding=pending.bound.binding,
            firings=firings[:_ROWS],
            before=before,
            more=len(firings) > _ROWS,
            near=pictured(near, every),
        )

    return router


def _of(overview: Overview, tasks: tuple[str, ...]) -> Overview:
    """Tasks with what they read and write."""
    mine = [overview.tasks[name] for name in tasks if name in overview.tasks]
    names = {channel for task in mine for channel in task.writes} | {
        each.channel for task in mine for each in task.reads
    }
    return part(overview, names, tasks)
