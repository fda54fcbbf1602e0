"""Routes of tasks, and of the maintenance of views."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter, Request, Response

from kilonova.api.routes.channel_history import BlockResponse, part_shown
from kilonova.api.routes.context import After, Before, Limit, RouteContext, paginate
from kilonova.catalog.read_models.task_runs import TaskRun
from kilonova.model.run import RefreshMethod
from kilonova.model.task import Mode
from kilonova.service.explain_view import MaintainedRelation
from kilonova.service.next_run import TaskPreview
from kilonova.service.reports import TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorResponse:
    """Cursor of a task on a channel: the point up to which it has read, and the channel's newest point."""

    point: int
    newest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResponse:
    """A task.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        logic: its logic version.
        reads: the channels that it reads, with its cursors and their newest points.
        writes: the channels that it writes.
        variants: the names of its variants.
        due: the reason why it is due; None if it is not.
        waits_until: the time until which its schedule delays it; None if it does not.
    """

    name: str
    workflow: str
    logic: int
    reads: dict[str, CursorResponse]
    writes: list[str]
    variants: list[str]
    due: str | None
    waits_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPreviewResponse:
    """Preview of a port: the input that a task would read through it.

    Attributes:
        port: the port.
        channel: the channel.
        mode: how the port reads.
        start: the point up to which the task has read.
        end: the point up to which it would read.
        how: the read plan, as text.
        blocks: the blocks to read.
        rows: number of rows in them.
        bytes: their size.
    """

    port: str
    channel: str
    mode: Mode
    start: int
    end: int
    how: str
    blocks: list[BlockResponse]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPreviewResponse:
    """Preview of a task's next run, if it ran now.

    Attributes:
        due: the reason why it is due; None if it is not, or is delayed by its schedule.
        waits_until: the time until which its schedule delays it; None if it does not.
        variant: the variant that would run.
        method: the refresh method that would be used.
        reason: the reason for that choice.
        estimates: estimated duration of that method and of the possible others, in seconds.
        reads: the previews of its ports.
    """

    due: str | None
    waits_until: datetime | None
    variant: str
    method: RefreshMethod
    reason: str
    estimates: dict[RefreshMethod, float]
    reads: list[PortPreviewResponse]


def task_routes(context: RouteContext) -> APIRouter:
    """Return the routes of tasks and views."""
    router = APIRouter(tags=["tasks"])
    project = context.project

    @router.get("/tasks", dependencies=context.read)
    def tasks(request: Request, response: Response, after: After = "", limit: Limit = 100) -> list[TaskResponse]:
        """List the tasks by name, with their cursors and whether they are due."""
        found = [_shown(status) for status in project.tasks(after, limit + 1)]
        return paginate(request, response, found, limit, "after", lambda last: last.name)

    @router.get("/tasks/{name}", dependencies=context.read)
    def task(name: str) -> TaskResponse:
        """Return a task."""
        return _shown(project.task(name))

    @router.get("/tasks/{name}/next-run", dependencies=context.read)
    def outlook(name: str) -> TaskPreviewResponse:
        """Preview a task's run, if it ran now: the refresh method and the input."""
        return _outlook_shown(project.task_preview(name))

    @router.get("/tasks/{name}/runs", dependencies=context.read)
    def runs(
        name: str, request: Request, response: Response, before: Before = None, limit: Limit = 100
    ) -> list[TaskRun]:
        """List the last runs of a task, newest first, with actual and estimated durations."""
        found = list(project.task_runs(name, before, limit + 1))
        return paginate(request, response, found, limit, "before", lambda last: last.run)

    @router.get("/views/{name}", dependencies=context.read)
    def view(name: str) -> list[MaintainedRelation]:
        """Explain the maintenance of a view: the relations kept for it, and the durations of its last runs."""
        return list(project.explain(name))

    return router


def _shown(status: TaskStatus) -> TaskResponse:
    known = status.registered
    return TaskResponse(
        name=known.task.name,
        workflow=known.workflow,
        logic=known.logic,
        reads={lag.channel: CursorResponse(point=lag.cursor, newest=lag.newest) for lag in status.lags},
        writes=list(known.task.writes),
        variants=[variant.name for variant in known.task.variants],
        due=status.due,
        waits_until=status.waits_until,
    )


def _outlook_shown(outlook: TaskPreview) -> TaskPreviewResponse:
    return TaskPreviewResponse(
        due=outlook.due,
        waits_until=outlook.waits_until,
        variant=outlook.variant,
        method=outlook.method,
        reason=outlook.reason,
        estimates=dict(outlook.estimates),
        reads=[
            PortPreviewResponse(
                port=each.port,
                channel=each.channel,
                mode=each.mode,
                start=each.start,
                end=each.end,
                how=each.how,
                blocks=[part_shown(block) for block in each.blocks],
                rows=each.rows,
                bytes=each.bytes,
            )
            for each in outlook.reads
        ],
    )
