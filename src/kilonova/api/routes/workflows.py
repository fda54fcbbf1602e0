"""Routes of uploaded workflows: planning and applying their registration."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request

from kilonova.api.response_models import ResponseModel
from kilonova.api.routes.context import ACCEPTED, TRUSTED, OperationResponse, Starting
from kilonova.api.uploads import receive_upload, sent_as

_MOST = 20
"""Maximum size of an upload in megabytes: it is text."""

Action = Literal["add", "change", "keep", "drop"]


class ChannelChangeResponse(ResponseModel):
    """Planned change of a channel."""

    channel: str
    action: Action
    detail: str


class TaskChangeResponse(ResponseModel):
    """Planned change of a task, and the input of its first run: see `kilonova.service.workflow_plan.TaskChange`."""

    task: str
    action: Action
    logic: int
    detail: str
    rows: int
    bytes: int
    downstream: list[str]
    overruled: str
    diff: str
    seconds: dict[str, float]


class BindingChangeResponse(ResponseModel):
    """Planned change of a binding."""

    binding: str
    action: Action
    detail: str


class UnseenResponse(ResponseModel):
    """Part of a definition that is not compared with the registered one."""

    kind: Literal["task", "channel"]
    name: str
    what: str


class PlanResponse(ResponseModel):
    """Changes that registering a workflow makes, or would make; `empty` if it changes nothing.

    Attributes:
        until: the time at which they take effect, if they are deferred.
        discards: the time at which the deferred definition would have taken effect that this one replaces.
    """

    workflow: str
    empty: bool
    channels: list[ChannelChangeResponse]
    tasks: list[TaskChangeResponse]
    bindings: list[BindingChangeResponse]
    unseen: list[UnseenResponse]
    until: datetime | None
    discards: datetime | None


router = APIRouter(tags=["workflows"])


@router.post(
    "/workflows",
    dependencies=TRUSTED,
    responses=ACCEPTED,
    openapi_extra=sent_as("text/x-python", "application/zip"),
)
async def apply(
    start: Starting,
    request: Request,
    format: Literal["python", "zip"] = "python",
    path: Annotated[
        list[str] | None,
        Query(description="Path in a zip that defines workflows: a Python file, or a folder of SQL files."),
    ] = None,
    dry_run: Annotated[bool, Query(description="Return the plan without applying it.")] = False,
    same_logic: Annotated[
        list[str] | None, Query(description="Task or view whose changed definition does the same: its output stays.")
    ] = None,
    new_version: Annotated[
        list[str] | None, Query(description="Task or view that gets a new logic version, although nothing has changed.")
    ] = None,
    defer: Annotated[
        str | None,
        Query(description="Time in UTC from which changed tasks are migrated: 02:00, an ISO timestamp, or 6 hours."),
    ] = None,
) -> list[PlanResponse] | OperationResponse:
    """Register the workflows that the body defines: a Python file, or a zip of Python files or a folder of SQL.

    The code runs on the server's machine, in a process of its own.
    """
    sent = await receive_upload(request, f"workflow.{format}", _MOST)
    return await start(
        lambda plans: [PlanResponse.model_validate(each) for each in plans],
        "apply",
        sent.discard,
        file=str(sent.file),
        format=format,
        paths=path or [],
        dry_run=dry_run,
        same_logic=same_logic or [],
        new_version=new_version or [],
        defer=defer,
    )
