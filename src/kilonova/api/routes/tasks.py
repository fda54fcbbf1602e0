"""Routes of tasks, and of the maintenance of views."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BeforeValidator

from kilonova.api.response_models import ResponseModel, attribute, list_of, response_model
from kilonova.api.routes.channel_history import BlockResponse
from kilonova.api.routes.context import READ, After, Before, CurrentProject, Paged
from kilonova.catalog.read_models.task_runs import TaskRun
from kilonova.model.task import Variant
from kilonova.service.explain_view import MaintainedRelation
from kilonova.service.next_run import PortPreview, TaskPreview
from kilonova.service.reports import Lag, TaskStatus


class CursorResponse(ResponseModel):
    """Cursor of a task on a channel: the point up to which it has read, and the channel's newest point."""

    point: int = attribute("cursor")
    newest: int


def _by_channel(lags: Sequence[Lag]) -> dict[str, Lag]:
    return {lag.channel: lag for lag in reversed(lags)}  # the newest version is the first


def _names(variants: Sequence[Variant]) -> list[str]:
    return [variant.name for variant in variants]


class TaskResponse(ResponseModel):
    """A task.

    Attributes:
        reads: the channels that it reads, with its cursors and their newest points.
        due: the reason why it is due; None if it is not.
        waits_until: the time until which its schedule delays it; None if it does not.
        deferred_until: the time at which a deferred definition of it takes effect; None if there is none.
    """

    name: str = attribute("registered", "task", "name")
    workflow: str = attribute("registered", "workflow")
    logic: int = attribute("registered", "logic")
    reads: Annotated[dict[str, CursorResponse], BeforeValidator(_by_channel)] = attribute("lags")
    writes: list[str] = attribute("registered", "task", "writes")
    variants: Annotated[list[str], BeforeValidator(_names)] = attribute("registered", "task", "variants")
    due: str | None
    waits_until: datetime | None
    deferred_until: datetime | None


_PortPreviewResponse = response_model(PortPreview, blocks=list[BlockResponse])
_TaskPreviewResponse = response_model(TaskPreview, reads=list_of(_PortPreviewResponse))

router = APIRouter(tags=["tasks"])


@router.get("/tasks", dependencies=READ, response_model=list[TaskResponse])
def tasks(project: CurrentProject, paging: Paged, after: After = "") -> list[TaskStatus]:
    """List the tasks by name, with their cursors and whether they are due."""
    return paging.page(project.reader.tasks(after, paging.more), "after", lambda last: last.registered.task.name)


@router.get("/tasks/{name}", dependencies=READ, response_model=TaskResponse)
def task(project: CurrentProject, name: str) -> TaskStatus:
    """Return a task."""
    return project.reader.task(name)


@router.get("/tasks/{name}/next-run", dependencies=READ, response_model=_TaskPreviewResponse)
def next_run(project: CurrentProject, name: str) -> TaskPreview:
    """Preview a task's run, if it ran now: the refresh method and the input."""
    return project.reader.task_preview(name)


@router.get("/tasks/{name}/runs", dependencies=READ)
def runs(project: CurrentProject, name: str, paging: Paged, before: Before = None) -> list[TaskRun]:
    """List the last runs of a task, newest first, with actual and estimated durations."""
    return paging.page(project.reader.task_runs(name, before, paging.more), "before", lambda last: last.run)


@router.get("/views/{name}", dependencies=READ)
def view(project: CurrentProject, name: str) -> list[MaintainedRelation]:
    """Explain the maintenance of a view: the relations kept for it, and the durations of its last runs."""
    return list(project.explain(name))
