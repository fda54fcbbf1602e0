"""Routes of runs: listing, details, logs, starting, cancelling and retrying."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from kilonova.api.routes.context import (
    ACCEPTED,
    OPERATE,
    READ,
    Before,
    CurrentProject,
    OperationResponse,
    Paged,
    PathNumber,
    RunStartedResponse,
    Starting,
    Who,
)
from kilonova.model.firing import Firing
from kilonova.model.run import RunKind, RunState
from kilonova.service.reports import RunDetail, RunSummary

_LOG: dict[int | str, dict[str, Any]] = {
    200: {"description": "The log.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}

router = APIRouter(tags=["runs"])


@router.get("/runs", dependencies=READ)
def runs(
    project: CurrentProject,
    paging: Paged,
    state: RunState | None = None,
    kind: RunKind | None = None,
    binding: str | None = None,
    task: str | None = None,
    channel: str | None = None,
    before: Before = None,
) -> list[RunSummary]:
    """List the runs, newest first, with their output: all, or those that match the filters."""
    found = project.runs(paging.more, before, state=state, kind=kind, binding=binding, task=task, channel=channel)
    return paging.page(found, "before", lambda last: last.run.number)


@router.get("/runs/{number}", dependencies=READ)
def one(project: CurrentProject, number: PathNumber) -> RunDetail:
    """Return a run: its input, output and trigger, and while it is running its progress and the blocks it holds."""
    return project.run_detail(number)


@router.get("/runs/{number}/log", dependencies=READ, response_class=Response, responses=_LOG)
def log(project: CurrentProject, number: PathNumber) -> PlainTextResponse:
    """Return a run's log: its steps, and the output of its code."""
    return PlainTextResponse(project.log(number).text)


@router.post("/runs", dependencies=OPERATE, responses=ACCEPTED)
async def run(
    start: Starting, task: Annotated[list[str] | None, Query()] = None
) -> RunStartedResponse | OperationResponse:
    """Run tasks now: all that are due, or the given ones."""
    return await start(RunStartedResponse, "run", tasks=task)


@router.post("/runs/{number}/cancel", dependencies=OPERATE)
def cancel(project: CurrentProject, number: PathNumber, who: Who) -> RunDetail:
    """Cancel a running run: nothing of it is published, and its process stops within seconds."""
    project.cancel(number, who)
    return project.run_detail(number)


@router.post("/runs/{number}/retry", dependencies=OPERATE, status_code=202)
def retry(project: CurrentProject, response: Response, number: PathNumber, who: Who) -> list[Firing]:
    """Retry the work of a run that has not succeeded: a server starts its bindings again.

    It returns a firing for each binding; `Location` is the URL of the first, which says what becomes of it.
    """
    firings = project.retry_run(number, who)
    response.headers["Location"] = f"/api/v1/firings/{firings[0].number}"
    return list(firings)
