"""Tasks, and how views are kept up to date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.encoders import jsonable_encoder

from kilonova.server.routes.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShown:
    """A task.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        logic: its logic version.
        reads: the channels that it reads, and up to which point it has.
        writes: the channels that it writes.
        variants: the ways to do it.
        due: why it has something to do; None if it has not.
    """

    name: str
    workflow: str
    logic: int
    reads: dict[str, int]
    writes: list[str]
    variants: list[str]
    due: str | None


def task_routes(context: Context) -> APIRouter:
    """The routes of tasks."""
    router = APIRouter(tags=["tasks"])
    project = context.project

    @router.get("/tasks", dependencies=context.read)
    def tasks() -> list[TaskShown]:
        """The tasks."""
        status = project.status(0)
        return [
            TaskShown(
                name=name,
                workflow=known.workflow,
                logic=known.logic,
                reads={channel: known.cursor(channel) for channel in known.task.reads},
                writes=list(known.task.writes),
                variants=[variant.name for variant in known.task.variants],
                due=status.due.get(name),
            )
            for name, known in status.tasks.items()
        ]

    @router.get("/views/{name}", dependencies=context.read)
    def view(name: str) -> list[dict[str, Any]]:
        """How a view is kept up to date, with what it keeps for that and what its last runs took."""
        explained: list[dict[str, Any]] = jsonable_encoder(project.explain(name))
        return explained

    return router
