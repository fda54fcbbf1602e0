"""Runs: those that have been, and one that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.encoders import jsonable_encoder

from kilonova.model.run import Run
from kilonova.server.routes.context import Begun, Context, Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShown:
    """A run, and what it made of which channel."""

    run: Run
    made: list[dict[str, Any]]


def run_routes(context: Context) -> APIRouter:
    """The routes of runs."""
    router = APIRouter(tags=["runs"])

    @router.get("/runs", dependencies=context.read)
    def runs(limit: Limit = 100) -> list[RunShown]:
        """The last runs, newest first, and what they made."""
        history, made = context.project.history(limit)
        return [
            RunShown(run=run, made=[jsonable_encoder(item) for item in made if item.run == run.number])
            for run in history
        ]

    @router.post("/runs", dependencies=context.operate)
    async def run(task: Annotated[list[str] | None, Query()] = None) -> Begun:
        """Run tasks now, and answer when they have ended: all that are due, or the named ones."""
        return Begun(await context.done("run", tasks=task))

    return router
