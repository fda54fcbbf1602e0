"""Tasks, and how views are kept up to date."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter, Request, Response

from kilonova.catalog.past import Past
from kilonova.model.run import Way
from kilonova.model.task import Mode
from kilonova.server.routes.chains import PartShown, part_shown
from kilonova.server.routes.context import After, Before, Context, Limit, page
from kilonova.service.explanation import Kept
from kilonova.service.outlook import Outlook
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProspectShown:
    """What a task would read through a port.

    Attributes:
        port: the port.
        channel: the channel.
        mode: how the port reads.
        start: the point up to which the task has read.
        end: the point up to which it would read.
        how: what is put together of which blocks, in words.
        blocks: the blocks.
        rows: rows in them.
        bytes: their size.
    """

    port: str
    channel: str
    mode: Mode
    start: int
    end: int
    how: str
    blocks: list[PartShown]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlookShown:
    """What a task would do if it ran now.

    Attributes:
        due: why it has something to do; None if it has not, or is held back by its schedule.
        waits_until: until when its schedule holds it back; None if it does not.
        variant: the variant that would run.
        way: the way it would be done.
        reason: why so.
        estimates: what that way and others that are open are estimated to take, in seconds.
        reads: what it would read.
    """

    due: str | None
    waits_until: datetime | None
    variant: str
    way: Way
    reason: str
    estimates: dict[Way, float]
    reads: list[ProspectShown]


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

    @router.get("/tasks/{name}/outlook", dependencies=context.read)
    def outlook(name: str) -> OutlookShown:
        """What a task would do if it ran now: in which way, and what it would read."""
        return _outlook_shown(project.outlook(name))

    @router.get("/tasks/{name}/runs", dependencies=context.read)
    def runs(name: str, request: Request, response: Response, before: Before = None, limit: Limit = 100) -> list[Past]:
        """The last runs of a task, newest first: what each took, and what it was estimated to take."""
        found = list(project.past(name, before, limit + 1))
        return page(request, response, found, limit, "before", lambda last: last.run)

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


def _outlook_shown(outlook: Outlook) -> OutlookShown:
    return OutlookShown(
        due=outlook.due,
        waits_until=outlook.waits_until,
        variant=outlook.variant,
        way=outlook.way,
        reason=outlook.reason,
        estimates=dict(outlook.estimates),
        reads=[
            ProspectShown(
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
