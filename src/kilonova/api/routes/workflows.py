"""Routes of uploaded workflows: planning and applying their registration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from kilonova.api.routes.context import ACCEPTED, OperationResponse, RouteContext, Wait, accepted_response
from kilonova.api.uploads import receive_upload, sent_as

_MOST = 20
"""Maximum size of an upload in megabytes: it is text."""

Action = Literal["add", "change", "keep", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelChangeResponse:
    """Planned change of a channel."""

    channel: str
    action: Action
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChangeResponse:
    """Planned change of a task, and the input of its first run: see `kilonova.service.workflow_plan.TaskChange`."""

    task: str
    action: Action
    logic: int
    detail: str
    rows: int
    bytes: int
    downstream: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingChangeResponse:
    """Planned change of a binding."""

    binding: str
    action: Action
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenResponse:
    """Part of a definition that is not compared with the registered one."""

    kind: Literal["task", "channel"]
    name: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResponse:
    """Changes that registering a workflow makes, or would make.

    Attributes:
        workflow: its name.
        empty: whether nothing changes.
        channels: the changes of its channels.
        tasks: the changes of its tasks.
        bindings: the changes of its bindings.
        unseen: parts of definitions that are not compared with the registered ones.
    """

    workflow: str
    empty: bool
    channels: list[ChannelChangeResponse]
    tasks: list[TaskChangeResponse]
    bindings: list[BindingChangeResponse]
    unseen: list[UnseenResponse]


def workflow_routes(context: RouteContext) -> APIRouter:
    """Return the routes of workflows."""
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
        path: Annotated[
            list[str] | None,
            Query(description="Path in a zip that defines workflows: a Python file, or a folder of SQL files."),
        ] = None,
        dry_run: Annotated[bool, Query(description="Return the plan without applying it.")] = False,
        wait: Wait = True,
    ) -> list[PlanResponse] | OperationResponse:
        """Register the workflows that the body defines: a Python file, or a zip of Python files or a folder of SQL.

        The code runs on the server's machine, in a process of its own.
        """
        sent = await receive_upload(request, f"workflow.{format}", _MOST)
        arguments: dict[str, Any] = {
            "file": str(sent.file),
            "format": format,
            "paths": path or [],
            "dry_run": dry_run,
        }
        if not wait:
            return accepted_response(response, context.operations.ask("apply", sent.discard, **arguments))
        plans: list[PlanResponse] = await context.operations.done("apply", sent.discard, client=request, **arguments)
        return plans

    return router
