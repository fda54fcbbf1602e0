"""Routes of workflows: planning, previewing and applying their registration, uploaded or from the project's files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool

from kilonova.api.response_models import ResponseModel
from kilonova.api.routes.context import (
    ACCEPTED,
    ADMIN,
    READ,
    TRUSTED,
    CurrentProject,
    Limit,
    OperationResponse,
    Starting,
)
from kilonova.api.uploads import receive_upload, sent_as
from kilonova.catalog.workflow_files import RegisteredWorkflow
from kilonova.errors import NotFound
from kilonova.model.sample import sample_of
from kilonova.service.affected_channels import DownstreamEffect
from kilonova.service.logic_history import LogicVersion
from kilonova.service.project import Project

_MOST = 20
"""Maximum size of an upload in megabytes: it is text."""

Action = Literal["add", "change", "keep", "drop"]


class ChannelChangeResponse(ResponseModel):
    """Planned change of a channel."""

    channel: str
    action: Action
    detail: str


class TaskChangeResponse(ResponseModel):
    """Planned change of a task, and the input of its first run: see `kilonova.service.task_plan.TaskChange`."""

    task: str
    action: Action
    logic: int
    detail: str
    rows: int
    bytes: int
    downstream: list[str]
    overruled: str
    diff: str
    anew: bool
    migrated: bool
    migration: str
    seconds: dict[str, float]
    waits: list[str]


class BindingChangeResponse(ResponseModel):
    """Planned change of a binding."""

    binding: str
    action: Action
    detail: str


class BoundChangeResponse(ResponseModel):
    """Planned change of a bound: on staleness along a path, or on inconsistency if the path is empty."""

    channel: str
    path: list[str]
    action: Action
    detail: str


class UnseenResponse(ResponseModel):
    """Part of a definition that is not compared with the registered one."""

    kind: Literal["task", "channel"]
    name: str
    what: str


class IncompatibleSchemaResponse(ResponseModel):
    """Channel that will lack columns which each logic version of a task requires."""

    channel: str
    task: str
    detail: str


class AffectedChannelResponse(ResponseModel):
    """Channel downstream of a change whose task does not change: see `kilonova.service.affected_channels`."""

    channel: str
    task: str
    workflow: str
    reads: str
    effect: DownstreamEffect
    detail: str


class PlanResponse(ResponseModel):
    """Changes that registering a workflow makes, or would make; `empty` if it changes nothing.

    Attributes:
        until: the time at which they take effect, if they are deferred.
        discards: the time at which the deferred definition would have taken effect that this one replaces.
        affected: the channels downstream of changed tasks, and what becomes of them.
        digest: a digest of what the plan does, by which it can be applied as it was looked at (`expected`).
    """

    workflow: str
    empty: bool
    channels: list[ChannelChangeResponse]
    tasks: list[TaskChangeResponse]
    bindings: list[BindingChangeResponse]
    bounds: list[BoundChangeResponse]
    unseen: list[UnseenResponse]
    incompatible: list[IncompatibleSchemaResponse]
    until: datetime | None
    discards: datetime | None
    affected: list[AffectedChannelResponse]
    digest: str


class ExampleResponse(ResponseModel):
    """Row that is added (`+`) or removed (`-`)."""

    sign: Literal["+", "-"]
    row: dict[str, Any]


class ChannelPreviewResponse(ResponseModel):
    """Difference in the rows of a channel: see `kilonova.service.preview.ChannelPreview`."""

    channel: str
    before: int | None
    after: int | None
    added: int
    removed: int
    columns: list[str]
    examples: list[ExampleResponse]
    key: list[str]
    changed: int
    differing: dict[str, int]


class WrongResponse(ResponseModel):
    """Migrated channel that differs from the recomputed one, in so many rows."""

    channel: str
    rows: int


class SampledChannelResponse(ResponseModel):
    """Source channel of a preview on a sample: see `kilonova.service.source_sample.SampledChannel`."""

    channel: str
    by: list[str]
    rows: int
    of: int | None


class FailedResponse(ResponseModel):
    """Binding downstream that cannot run after the change, with the error."""

    binding: str
    problem: str


class PreviewResponse(ResponseModel):
    """Preview of a change: see `kilonova.service.preview.Preview`."""

    plans: list[PlanResponse]
    channels: list[ChannelPreviewResponse]
    wrong: list[WrongResponse]
    verified: list[str]
    sample: list[SampledChannelResponse]
    failed: list[FailedResponse]


class WorkflowResponse(ResponseModel):
    """A registered workflow: see `kilonova.catalog.workflow_files.RegisteredWorkflow`."""

    name: str
    file: str | None
    tasks: int
    registered: datetime | None
    deferred_until: datetime | None


Verify = Annotated[bool, Query(description="Also recompute migrated outputs, and compare them with the migrated ones.")]
Rows = Annotated[int, Query(ge=0, le=100, description="How many differing rows to return of each channel.")]
SampleSize = Annotated[
    str | None, Query(description="Compute both definitions from a sample of the source rows: 1%, or a number of rows.")
]
SampleBy = Annotated[
    list[str] | None,
    Query(description="Column by whose values rows are chosen; sources without it are read as a whole."),
]
DryRun = Annotated[bool, Query(description="Return the plan without applying it.")]
Defer = Annotated[
    str | None,
    Query(description="Time in UTC from which changed tasks are migrated: 02:00, an ISO timestamp, or 6 hours."),
]
SameLogic = Annotated[
    list[str] | None, Query(description="Task or view whose changed definition does the same: its output stays.")
]
NewVersion = Annotated[
    list[str] | None,
    Query(description="Task or view that gets a new logic version, although nothing has changed."),
]
Format = Literal["python", "zip"]
Paths = Annotated[
    list[str] | None,
    Query(description="Path in a zip that defines workflows: a Python file, or a folder of SQL files."),
]


class PreviewOptions:
    """Options of a preview, as a dependency of its route.

    Attributes:
        arguments: the arguments of the operation.
    """

    def __init__(
        self, verify: Verify = False, rows: Rows = 10, sample: SampleSize = None, sample_by: SampleBy = None
    ) -> None:
        if sample is not None:
            sample_of(sample, tuple(sample_by or ()))  # a mistake is reported before a worker is waited for
        self.arguments: dict[str, Any] = {
            "verify": verify,
            "examples": rows,
            "sample": sample,
            "sample_by": sample_by or [],
        }


Previewing = Annotated[PreviewOptions, Depends()]

router = APIRouter(tags=["workflows"])


@router.get("/workflows", dependencies=READ, response_model=list[WorkflowResponse])
def workflows(project: CurrentProject) -> Sequence[RegisteredWorkflow]:
    """List the workflows by name, with the files from which they were applied."""
    return project.reader.workflows()


@router.get("/workflows/{name}/versions", dependencies=READ)
def workflow_versions(project: CurrentProject, name: str, limit: Limit = 100) -> list[LogicVersion]:
    """List the newest logic versions of the tasks of a workflow, the last registered first."""
    project.reader.workflow(name)
    return list(project.reader.workflow_history(name, limit))


@router.post(
    "/workflows",
    dependencies=TRUSTED,
    responses=ACCEPTED,
    openapi_extra=sent_as("text/x-python", "application/zip"),
)
async def apply(
    start: Starting,
    request: Request,
    format: Format = "python",
    path: Paths = None,
    dry_run: DryRun = False,
    same_logic: SameLogic = None,
    new_version: NewVersion = None,
    defer: Defer = None,
) -> list[PlanResponse] | OperationResponse:
    """Register the workflows that the body defines: a Python file, or a zip of Python files or a folder of SQL.

    The code runs on the server's machine, in a process of its own.
    """
    sent = await receive_upload(request, f"workflow.{format}", _MOST)
    return await start(
        plans_response,
        "apply",
        sent.discard,
        file=str(sent.file),
        format=format,
        paths=path or [],
        dry_run=dry_run,
        same_logic=same_logic or [],
        new_version=new_version or [],
        defer=defer,
        expected=None,
    )


@router.post(
    "/workflows/preview",
    dependencies=TRUSTED,
    responses=ACCEPTED,
    openapi_extra=sent_as("text/x-python", "application/zip"),
)
async def preview(
    start: Starting, request: Request, options: Previewing, format: Format = "python", path: Paths = None
) -> PreviewResponse | OperationResponse:
    """Show how the workflows that the body defines would change the rows, without changing anything.

    The code runs on the server's machine.
    """
    sent = await receive_upload(request, f"workflow.{format}", _MOST)
    source = {"file": str(sent.file), "format": format, "paths": path or []}
    return await start(
        PreviewResponse.model_validate, "preview", sent.discard, source=source, rollback=None, **options.arguments
    )


@router.post("/workflows/{name}/apply", dependencies=ADMIN, responses=ACCEPTED)
async def apply_file(
    start: Starting,
    project: CurrentProject,
    name: str,
    dry_run: DryRun = False,
    same_logic: SameLogic = None,
    new_version: NewVersion = None,
    defer: Defer = None,
    expected: Annotated[
        list[str] | None,
        Query(description="Digests of the plans that were looked at: if the plans are others by now, 409."),
    ] = None,
) -> list[PlanResponse] | OperationResponse:
    """Register what the file of a workflow, from which it was last applied, defines now on the server's machine."""
    return await start(
        plans_response,
        "apply",
        **await run_in_threadpool(file_of, project, name),
        dry_run=dry_run,
        same_logic=same_logic or [],
        new_version=new_version or [],
        defer=defer,
        expected=expected,
    )


@router.post("/workflows/{name}/preview", dependencies=ADMIN, responses=ACCEPTED)
async def preview_file(
    start: Starting, project: CurrentProject, name: str, options: Previewing
) -> PreviewResponse | OperationResponse:
    """Show how applying the file of a workflow would change the rows, without changing anything."""
    source = await run_in_threadpool(file_of, project, name)
    return await start(PreviewResponse.model_validate, "preview", source=source, rollback=None, **options.arguments)


def plans_response(plans: Sequence[object]) -> list[PlanResponse]:
    """Convert the plans that a worker has returned."""
    return [PlanResponse.model_validate(each) for each in plans]


def file_of(project: Project, workflow: str) -> dict[str, Any]:
    """Return where the file of a workflow is, as arguments of `kilonova.scheduler.workflow_loader.load_workflows`.

    Raises:
        NotFound: there is no such workflow, or it was never applied from a file.
    """
    known = project.reader.workflow(workflow)
    if known.file is None:
        problem = f"the file of the workflow {workflow} is not known"
        raise NotFound(problem, hint="Apply it once by kilonova apply FILE, or send it to POST /api/v1/workflows")
    return {"file": str(project.directory.resolve() / known.file), "format": "path", "workflow": workflow}
