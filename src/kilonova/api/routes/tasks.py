"""Routes of tasks, and of the maintenance of views."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.concurrency import run_in_threadpool
from pydantic import BeforeValidator

from kilonova.api.response_models import ResponseModel, attribute, list_of, response_model
from kilonova.api.routes.channel_history import BlockResponse
from kilonova.api.routes.context import (
    ACCEPTED,
    ADMIN,
    READ,
    After,
    Before,
    CurrentProject,
    OperationResponse,
    Paged,
    Starting,
)
from kilonova.api.routes.workflows import (
    Defer,
    DryRun,
    PlanResponse,
    Previewing,
    PreviewResponse,
    plans_response,
)
from kilonova.catalog.read_models.task_runs import TaskRun
from kilonova.model.task import Variant
from kilonova.schedule.retraction import TouchedChannel
from kilonova.service.explain_view import MaintainedRelation
from kilonova.service.logic_history import LogicDifference, LogicVersion
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
        alert: what it waits for, or stops before, because columns that it requires are missing; None if none is.
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
    alert: str | None
    deferred_until: datetime | None


Version = Annotated[int, Path(ge=0, le=2**31)]
Since = Annotated[
    int | None, Query(ge=0, le=2**31, description="The version to compare with; by default the one before.")
]
Rollback = Annotated[int, Query(ge=0, le=2**31, description="The logic version to return to.")]


class RetractionResponse(ResponseModel):
    """Repairs of what a faulty logic version has touched, at the next run.

    Attributes:
        touched: the channels with points that reflect the version.
        steps: how the output of each task is repaired, by task, inputs first.
        plan: the plan by which an earlier definition replaces it; None if another version has replaced it already.
    """

    touched: list[TouchedChannel]
    steps: dict[str, str]
    plan: PlanResponse | None


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


@router.get("/tasks/{name}/versions", dependencies=READ)
def versions(project: CurrentProject, name: str) -> list[LogicVersion]:
    """List the logic versions of a task, newest first, with their migrations and first runs."""
    return list(project.reader.logic_history(name))


@router.get("/tasks/{name}/versions/{version}/diff", dependencies=READ)
def diff(project: CurrentProject, name: str, version: Version, since: Since = None) -> LogicDifference:
    """Return how a logic version of a task differs from another."""
    return project.reader.logic_difference(name, version, since)


@router.post("/tasks/{name}/rollback", dependencies=ADMIN, responses=ACCEPTED)
async def rollback(
    start: Starting,
    project: CurrentProject,
    name: str,
    version: Rollback,
    dry_run: DryRun = False,
    defer: Defer = None,
    expected: Annotated[
        str | None, Query(description="Digest of the plan that was looked at: if the plan is another by now, 409.")
    ] = None,
) -> list[PlanResponse] | OperationResponse:
    """Register the definition of an earlier logic version again, as a new version.

    The output is migrated or recomputed at the next run. Repeating the request changes nothing.
    """
    await run_in_threadpool(project.reader.task, name)
    return await start(
        plans_response, "rollback", task=name, version=version, dry_run=dry_run, defer=defer, expected=expected
    )


@router.post("/tasks/{name}/rollback/preview", dependencies=ADMIN, responses=ACCEPTED)
async def preview_rollback(
    start: Starting, project: CurrentProject, name: str, version: Rollback, options: Previewing
) -> PreviewResponse | OperationResponse:
    """Show how a rollback would change the rows, without changing anything."""
    await run_in_threadpool(project.reader.task, name)
    given = {"task": name, "version": version}
    return await start(PreviewResponse.model_validate, "preview", source=None, rollback=given, **options.arguments)


@router.post("/tasks/{name}/versions/{version}/retract", dependencies=ADMIN, responses=ACCEPTED)
async def retract(
    start: Starting,
    project: CurrentProject,
    name: str,
    version: Version,
    to: Annotated[
        int | None,
        Query(ge=0, le=2**31, description="The version that replaces it; by default the newest earlier good one."),
    ] = None,
    recompute: Annotated[
        bool, Query(description="Recompute the output of the task, even if it could be migrated.")
    ] = False,
    dry_run: DryRun = False,
) -> RetractionResponse | OperationResponse:
    """Retract a faulty logic version: all that it has touched is repaired at the next run.

    If it is the present version of the task, an earlier definition is registered again.
    """
    await run_in_threadpool(project.reader.task, name)
    return await start(
        RetractionResponse.model_validate,
        "retract",
        task=name,
        version=version,
        to=to,
        recompute=recompute,
        dry_run=dry_run,
    )


@router.get("/views/{name}", dependencies=READ)
def view(project: CurrentProject, name: str) -> list[MaintainedRelation]:
    """Explain the maintenance of a view: the relations kept for it, and the durations of its last runs."""
    return list(project.explain(name))
