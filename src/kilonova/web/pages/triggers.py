"""Pages of bindings: their triggers and the status of each, the next times, and past firings."""

from __future__ import annotations

from fastapi import APIRouter, Response

from kilonova.api.routes.context import Before, Number
from kilonova.catalog.read_models.overview import Overview
from kilonova.web.graph.picture import graph_picture
from kilonova.web.overview_cache import select_part
from kilonova.web.page import CurrentPage

_ROWS = 50
"""Number of bindings, or firings, per page."""

_NEXT = 8
"""Number of upcoming times shown."""


router = APIRouter()


@router.get("/triggers")
def triggers(page: CurrentPage, q: str = "", only: str = "", start: Number = 0) -> Response:
    """Show the bindings and their triggers."""
    every = page.overview()
    names = [
        name
        for name, each in every.bindings.items()
        if q.strip().lower() in name.lower()
        and (only != "paused" or each.paused)
        and (only != "due" or each.due)
        and (only != "workflowettes" or not each.implicit)
    ]
    return page.show(
        "triggers.html",
        every=every,
        found=page.project.reader.binding_statuses(names=names[start : start + _ROWS]),
        upcoming=page.project.reader.upcoming_triggers(_NEXT) if start == 0 else [],
        count=len(names),
        start=start,
        size=_ROWS,
        q=q,
        only=only,
    )


@router.get("/triggers/{name}")
def binding(page: CurrentPage, name: str, before: Before = None) -> Response:
    """Show a binding."""
    pending = page.project.reader.binding_statuses(names=[name])[0]
    every = page.overview()
    firings = page.project.reader.firings(_ROWS + 1, name, before)
    return page.show(
        "binding.html",
        pending=pending,
        binding=pending.bound.binding,
        firings=firings[:_ROWS],
        before=before,
        more=len(firings) > _ROWS,
        near=graph_picture(_of(every, pending.bound.binding.tasks), every),
    )


def _of(overview: Overview, tasks: tuple[str, ...]) -> Overview:
    """Return the part of an overview with some tasks and their inputs and outputs."""
    mine = [overview.tasks[name] for name in tasks if name in overview.tasks]
    names = {channel for task in mine for channel in task.writes} | {
        each.channel for task in mine for each in task.reads
    }
    return select_part(overview, names, tasks)
