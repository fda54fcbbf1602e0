"""Runs: those that have been, one that is asked for, and what becomes of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse

from kilonova.catalog.runs import Made
from kilonova.model.run import Run
from kilonova.server.routes.context import ACCEPTED, Before, Begun, Context, ErrandShown, Limit, Wait, Who, page
from kilonova.service.reports import RunRecord

Number = Annotated[int, Path(ge=0, le=2**53)]
_LOG: dict[int | str, dict[str, Any]] = {
    200: {"description": "The log.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShown:
    """A run, and what it made of which channel."""

    run: Run
    made: list[Made]


@dataclass(frozen=True, slots=True)
class Again:
    """The bindings that are due again, so that a server does what a run was to do."""

    bindings: list[str]


def run_routes(context: Context) -> APIRouter:
    """The routes of runs."""
    router = APIRouter(tags=["runs"])
    project = context.project

    @router.get("/runs", dependencies=context.read)
    def runs(request: Request, response: Response, before: Before = None, limit: Limit = 100) -> list[RunShown]:
        """The runs, newest first, and what they made."""
        history, made = project.history(limit + 1, before)
        found = [RunShown(run=run, made=[item for item in made if item.run == run.number]) for run in history]
        return page(request, response, found, limit, "before", lambda last: last.run.number)

    @router.get("/runs/{number}", dependencies=context.read)
    def one(number: Number) -> RunRecord:
        """A run: how far it has come while it goes on, what it made, and what it was started for."""
        return project.one_run(number)

    @router.get("/runs/{number}/log", dependencies=context.read, response_class=Response, responses=_LOG)
    def log(number: Number) -> PlainTextResponse:
        """What a run did and what its code said."""
        return PlainTextResponse(project.log(number).text)

    @router.post("/runs", dependencies=context.operate, responses=ACCEPTED)
    async def run(
        response: Response, task: Annotated[list[str] | None, Query()] = None, wait: Wait = True
    ) -> Begun | ErrandShown:
        """Run tasks now: all that are due, or the named ones."""
        return await context.begun(response, wait, "run", tasks=task)

    @router.post("/runs/{number}/cancellation", dependencies=context.operate)
    def cancel(number: Number, who: Who) -> RunRecord:
        """End a run that goes on: nothing of it is published, and its process stops within seconds."""
        project.cancel(number, who)
        return project.one_run(number)

    @router.post("/runs/{number}/retry", dependencies=context.operate)
    def retry(number: Number, who: Who) -> Again:
        """Let a server start again what a run that has not succeeded was to do."""
        return Again(list(project.retry_run(number, who)))

    return router
