"""Workflows that are sent: what registering them would change, and registering them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from kilonova.server.receiving import received, sent_as
from kilonova.server.routes.context import ACCEPTED, Context, ErrandShown, Wait, accepted

_MOST = 20
"""How many megabytes are sent at most: it is text."""

Action = Literal["add", "change", "keep", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelChange:
    """What becomes of a channel."""

    channel: str
    action: Action
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """What becomes of a task, and what its first run will read: see `kilonova.service.changes.TaskChange`."""

    task: str
    action: Action
    logic: int
    detail: str
    rows: int
    bytes: int
    downstream: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingChange:
    """What becomes of a binding."""

    binding: str
    action: Action
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Part of a definition that is not compared with the registered one; see `kilonova.service.changes.Unseen`."""

    kind: Literal["task", "channel"]
    name: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShown:
    """What registering a workflow changes, or would change.

    Attributes:
        workflow: its name.
        empty: whether nothing changes.
        channels: what becomes of its channels.
        tasks: what becomes of its tasks.
        bindings: what becomes of its bindings.
        unseen: parts of definitions that are not compared with the registered ones.
    """

    workflow: str
    empty: bool
    channels: list[ChannelChange]
    tasks: list[TaskChange]
    bindings: list[BindingChange]
    unseen: list[Unseen]


def workflow_routes(context: Context) -> APIRouter:
    """The routes of workflows."""
    router = APIRouter(tags=["workflows"])

    @router.post(
        "/workflows",
        dependencies=context.trusted,
        responses=ACCEPTED,
        openapi_extra=sent_as("text/x-python", "application/zip"),
    )
    async def apply(
        request: Request,
        response: Response,
        format: Literal["python", "zip"] = "python",
        place: Annotated[
            list[str] | None, Query(description="What in a zip defines workflows: a Python file, or a folder of SQL.")
        ] = None,
        dry_run: Annotated[bool, Query(description="Only say what would change.")] = False,
        wait: Wait = True,
    ) -> list[PlanShown] | ErrandShown:
        """Register the workflows that the body defines: a Python file, or a zip of Python files or a folder of SQL.

        The code runs on the server's machine, in a process of its own.
        """
        sent = await received(request, f"workflow.{format}", _MOST)
        arguments: dict[str, Any] = {
            "file": str(sent.file),
            "format": format,
            "places": place or [],
            "dry_run": dry_run,
        }
        if not wait:
            return accepted(response, context.errands.ask("apply", sent.discard, **arguments))
        plans: list[PlanShown] = await context.errands.done("apply", sent.discard, client=request, **arguments)
        return plans

    return router
