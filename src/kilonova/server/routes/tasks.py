"""Tasks, and how views are kept up to date."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter, Request, Response

from kilonova.server.routes.context import After, Context, Limit, page
from kilonova.service.explanation import Kept
from kilonova.service.reports import TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a task has read a channel: up to which point, of which that is the newest."""

    point: int
    newest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShown:
    """A task.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        logic: its logic version.
        reads: the channels that it reads, up to which point it has, and which is the newest.
        writes: the channels that it writes.
        variants: the ways to do it.
        due: why it has something to do; None if it has not.
        waits_until: until when its schedule holds it back; None if it does not.
    """

    name: str
    workflow: str
    logic: int
    reads: dict[str, Cursor]
    writes: list[str]
    variants: list[str]
    due: str | None
    waits_until: datetime | None


def task_routes(context: Context) -> APIRouter:
    """The routes of tasks."""
    router = APIRouter(tags=["tasks"])
    project = context.project

    @router.get("/tasks", dependencies=context.read)
    def tasks(request: Request, response: Response, after: After = "", limit: Limit = 100) -> list[TaskShown]:
        """The tasks by name, how far they have come, and which have something to do."""
        found = [_shown(status) for status in project.tasks(after, limit + 1)]
        return page(request, response, found, limit, "after", lambda last: last.name)

    @router.get("/tasks/{name}", dependencies=context.read)
    def task(name: str) -> TaskShown:
        """A task."""
        return _shown(project.task(name))

    @router.get("/views/{name}", dependencies=context.read)
    def view(name: str) -> list[Kept]:
        """How a view is kept up to date, with what it keeps for that and what its last runs took."""
        return list(project.explain(name))

    return router


def _shown(status: TaskStatus) -> TaskShown:
    known = status.registered
    return TaskShown(
        name=known.task.name,
        workflow=known.workflow,
        logic=known.logic,
        reads={lag.channel: Cursor(point=lag.cursor, newest=lag.newest) for lag in status.lags},
        writes=list(known.task.writes),
        variants=[variant.name for variant in known.task.variants],
        due=status.due,
        waits_until=status.waits_until,
    )
