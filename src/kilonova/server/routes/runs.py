"""Runs: those that have been, and one that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from kilonova.catalog.runs import Made
from kilonova.model.run import Run
from kilonova.server.routes.context import ACCEPTED, Before, Begun, Context, ErrandShown, Limit, Wait, page


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShown:
    """A run, and what it made of which channel."""

    run: Run
    made: list[Made]


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
    def one(number: Annotated[int, Path(ge=0, le=2**53)]) -> RunShown:
        """A run, and what it made."""
        run, made = project.recorded(number)
        return RunShown(run=run, made=made)

    @router.post("/runs", dependencies=context.operate, responses=ACCEPTED)
    async def run(
        response: Response, task: Annotated[list[str] | None, Query()] = None, wait: Wait = True
    ) -> Begun | ErrandShown:
        """Run tasks now: all that are due, or the named ones."""
        return await context.begun(response, wait, "run", tasks=task)

    return router
