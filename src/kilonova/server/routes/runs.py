"""Runs: those that have been, one that is asked for, and what becomes of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse

from kilonova.model.run import RunKind, RunState
from kilonova.server.routes.context import ACCEPTED, Before, Begun, Context, ErrandShown, Limit, Wait, Who, page
from kilonova.service.reports import RunDetail, RunSummary

Number = Annotated[int, Path(ge=0, le=2**53)]
_LOG: dict[int | str, dict[str, Any]] = {
    200: {"description": "The log.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@dataclass(frozen=True, slots=True)
class Again:
    """The bindings that are due again, so that a server does what a run was to do."""

    bindings: list[str]


def run_routes(context: Context) -> APIRouter:
    """The routes of runs."""
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
        """The runs, newest first, and what they made: all, or those that are or concern something."""
        found = project.runs(limit + 1, before, state=state, kind=kind, binding=binding, task=task, channel=channel)
        return page(request, response, found, limit, "before", lambda last: last.run.number)

    @router.get("/runs/{number}", dependencies=context.read)
    def one(number: Number) -> RunDetail:
        """A run: how far it has come and what it holds while it goes on, what it read and made, what started it."""
        return project.run_detail(number)

    @router.get("/runs/{number}/log", dependencies=context.read, response_class=Response, responses=_LOG)
    def log(number: Number) -> PlainTextResponse:
        """What a run did and what its code said."""
        return PlainTextResponse(project.log(number).text)

    @router.post("/runs", dependencies=context.operate, responses=ACCEPTED)
    async def run(
        request: Request, response: Response, task: Annotated[list[str] | None, Query()] = None, wait: Wait = True
    ) -> Begun | ErrandShown:
        """Run tasks now: all that are due, or the named ones."""
        return await context.begun(request, response, wait, "run", tasks=task)

    @router.post("/runs/{number}/cancellation", dependencies=context.operate)
    def cancel(number: Number, who: Who) -> RunDetail:
        """End a run that goes on: nothing of it is published, and its process stops within seconds."""
        project.cancel(number, who)
        return project.run_detail(number)

    @router.post("/runs/{number}/retry", dependencies=context.operate)
    def retry(number: Number, who: Who) -> Again:
        """Let a server start again what a run that has not succeeded was to do."""
        return Again(list(project.retry_run(number, who)))

    return router
