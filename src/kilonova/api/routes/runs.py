"""Routes of runs: listing, details, logs, starting, cancelling and retrying."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse

from kilonova.api.routes.context import (
    ACCEPTED,
    Before,
    Limit,
    OperationResponse,
    RouteContext,
    RunStartedResponse,
    Wait,
    Who,
    paginate,
)
from kilonova.model.run import RunKind, RunState
from kilonova.service.reports import RunDetail, RunSummary

Number = Annotated[int, Path(ge=0, le=2**53)]
_LOG: dict[int | str, dict[str, Any]] = {
    200: {"description": "The log.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@dataclass(frozen=True, slots=True)
class RetryResponse:
    """The bindings that are due again, so that a server retries the work of a run."""

    bindings: list[str]


def run_routes(context: RouteContext) -> APIRouter:
    """Return the routes of runs."""
    router = APIRouter(tags=["runs"])
    project = context.project

    @router.get("/runs", dependencies=context.read)
    def runs(
        request: Request,
        response: Response,
        state: RunState | None = None,
        kind: RunKind | None = None,
        binding: str | None = None,
        task: str | None = None,
        channel: str | None = None,
        before: Before = None,
        limit: Limit = 100,
    ) -> list[RunSummary]:
        """List the runs, newest first, with their output: all, or those that match the filters."""
        found = project.runs(limit + 1, before, state=state, kind=kind, binding=binding, task=task, channel=channel)
        return paginate(request, response, found, limit, "before", lambda last: last.run.number)

    @router.get("/runs/{number}", dependencies=context.read)
    def one(number: Number) -> RunDetail:
        """Return a run: its input, output and trigger, and while it is running its progress and the blocks it holds."""
        return project.run_detail(number)

    @router.get("/runs/{number}/log", dependencies=context.read, response_class=Response, responses=_LOG)
    def log(number: Number) -> PlainTextResponse:
        """Return a run's log: its steps, and the output of its code."""
        return PlainTextResponse(project.log(number).text)

    @router.post("/runs", dependencies=context.operate, responses=ACCEPTED)
    async def run(
        request: Request, response: Response, task: Annotated[list[str] | None, Query()] = None, wait: Wait = True
    ) -> RunStartedResponse | OperationResponse:
        """Run tasks now: all that are due, or the given ones."""
        return await context.begun(request, response, wait, "run", tasks=task)

    @router.post("/runs/{number}/cancel", dependencies=context.operate)
    def cancel(number: Number, who: Who) -> RunDetail:
        """Cancel a running run: nothing of it is published, and its process stops within seconds."""
        project.cancel(number, who)
        return project.run_detail(number)

    @router.post("/runs/{number}/retry", dependencies=context.operate)
    def retry(number: Number, who: Who) -> RetryResponse:
        """Retry, on a server, the work of a run that has not succeeded."""
        return RetryResponse(list(project.retry_run(number, who)))

    return router
