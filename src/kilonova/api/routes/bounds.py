"""Routes of bounds on staleness and inconsistency."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BeforeValidator

from kilonova.api.response_models import ResponseModel, attribute
from kilonova.api.routes.context import OPERATE, READ, CurrentProject, Who
from kilonova.catalog.bound_status import BoundStatus
from kilonova.model.bound_phase import BoundPhase
from kilonova.service.bound_schedule import BoundSchedule


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else time.total_seconds()


_Seconds = Annotated[float, BeforeValidator(_seconds)]
_OptionalSeconds = Annotated[float | None, BeforeValidator(_seconds)]

Path = Annotated[
    str | None,
    Query(
        description="Source channel of a bound on staleness, or orders/daily: it, and tasks on the way; "
        "omitted for a bound on inconsistency."
    ),
]


class BoundResponse(ResponseModel):
    """A bound on staleness along a path, or on inconsistency if the path is empty; times are in seconds.

    Attributes:
        limit: the limit that applies.
        declared: the limit that the workflow declares; null if it declares none.
        changed: when the limit was set at run time; null if it is as declared.
        point: the point that is evaluated.
        start: the beginning of the validity of the newest source data that it reflects.
        end: the end of the validity of the oldest; null if it is now.
        amount: the present staleness or inconsistency.
        kept: the point that readers are given, where newer ones are withheld; else null.
    """

    channel: str = attribute("registered", "channel")
    path: list[str] = attribute("registered", "path")
    limit: _Seconds = attribute("bound", "limit")
    declared: _OptionalSeconds = attribute("registered", "declared")
    changed: datetime | None = attribute("registered", "changed")
    changed_by: str | None = attribute("registered", "changed_by")
    point: int
    start: datetime | None
    end: datetime | None
    amount: _Seconds
    slack: _Seconds
    phase: BoundPhase
    kept: int | None


router = APIRouter(tags=["bounds"])


@router.get("/bounds", dependencies=READ, response_model=list[BoundResponse])
def bounds(
    project: CurrentProject,
    channel: Annotated[list[str] | None, Query(description="The channels; all if omitted.")] = None,
) -> Sequence[BoundStatus]:
    """List the bounds by channel and path, with the slack that is left."""
    for name in channel or ():
        project.reader.require_channel(name)
    return project.bounds(channel)


@router.get("/bounds/schedule", dependencies=READ, response_model=BoundSchedule)
def bound_schedule(
    project: CurrentProject,
    channel: Annotated[list[str] | None, Query(description="The channels; all if omitted.")] = None,
) -> BoundSchedule:
    """Show the runs that keep bounds: what starts now or next and when, alternatives, and what no plan keeps."""
    for name in channel or ():
        project.reader.require_channel(name)
    return project.bound_schedule(channel)


@router.put("/channels/{name}/bound", dependencies=OPERATE, response_model=list[BoundResponse])
def set_bound(
    project: CurrentProject,
    name: str,
    who: Who,
    limit: Annotated[str, Query(description="The limit, such as 1 day, or 0.")],
    path: Path = None,
) -> Sequence[BoundStatus]:
    """Set the limit of a bound of a channel, until the workflow declares another one; return all of its bounds."""
    project.set_bound(name, limit, path, who)
    return project.bounds([name])


@router.delete("/channels/{name}/bound", dependencies=OPERATE, response_model=list[BoundResponse])
def remove_bound(project: CurrentProject, name: str, who: Who, path: Path = None) -> Sequence[BoundStatus]:
    """Remove a bound of a channel, until the workflow declares another limit; return the bounds that are left."""
    project.remove_bound(name, path, who)
    return project.bounds([name])


@router.post("/channels/{name}/bound/reset", dependencies=OPERATE, response_model=list[BoundResponse])
def reset_bound(project: CurrentProject, name: str, who: Who, path: Path = None) -> Sequence[BoundStatus]:
    """Set the limit of a bound back to the one that the workflow declares; return all bounds of the channel."""
    project.reset_bound(name, path, who)
    return project.bounds([name])
