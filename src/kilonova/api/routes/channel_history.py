"""Routes of the history of channels: their points, blocks, sizes, schemas and readers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from kilonova.api.response_models import EncodingText, ResponseModel, Text, attribute, list_of, response_model
from kilonova.api.routes.context import READ, Before, CurrentProject, Limit, Paged
from kilonova.catalog.read_models.point_history import BlockRecord, PointRecord
from kilonova.catalog.read_models.schema_history import SchemaRecord
from kilonova.service.channel_versions import ChannelVersions
from kilonova.service.reports import Lag
from kilonova.service.size_history import SizePoint
from kilonova.service.snapshot_plan import SnapshotPlan


class BlockResponse(ResponseModel):
    """A block that is read: its number, the points that it leads to as `kind`, and its size.

    Attributes:
        buckets: number of buckets by key that its rows are laid out in; 0 for none.
    """

    block: int = attribute("number")
    kind: Text
    encoding: EncodingText
    rows: int = attribute("statistics", "rows")
    bytes: int = attribute("statistics", "bytes")
    files: int = attribute("statistics", "files")
    buckets: int


_BlockRecordResponse = response_model(
    BlockRecord, number=Annotated[int, Field(serialization_alias="block")], kind=Text | None, added=None
)
_PointResponse = response_model(PointRecord, version=Text, blocks=list_of(_BlockRecordResponse))
_SnapshotPlanResponse = response_model(SnapshotPlan, base=BlockResponse | None, deltas=list[BlockResponse])

router = APIRouter(tags=["channels"])


@router.get("/channels/{name}/points", dependencies=READ, response_model=list_of(_PointResponse))
def points(project: CurrentProject, name: str, paging: Paged, before: Before = None) -> list[PointRecord]:
    """List the points of a channel, newest first, with the blocks that lead to each, live or not."""
    found = project.reader.channel_history(name, before, paging.more).points
    return paging.page(found, "before", lambda last: last.number)


@router.get("/channels/{name}/versions", dependencies=READ)
def versions(project: CurrentProject, name: str, limit: Limit = 100, before: Before = None) -> ChannelVersions:
    """Return the version vectors of a channel's points, newest first, with a component for each ancestor."""
    return project.reader.versions(name, before, limit)


@router.get("/channels/{name}/sizes", dependencies=READ)
def sizes(project: CurrentProject, name: str, limit: Limit = 200) -> list[SizePoint]:
    """List the sizes of a channel at its last filled points, oldest first."""
    return list(project.reader.size_history(name, limit))


@router.get("/channels/{name}/schemas", dependencies=READ)
def schemas(project: CurrentProject, name: str, limit: Limit = 20) -> list[SchemaRecord]:
    """List the last changes of a channel's schema, newest first."""
    return list(project.reader.schemas(name, limit))


@router.get("/channels/{name}/readers", dependencies=READ)
def readers(project: CurrentProject, name: str) -> list[Lag]:
    """List the tasks that read a channel, and the lag of each."""
    return list(project.reader.readers(name))


@router.get("/channels/{name}/snapshot-plan", dependencies=READ, response_model=_SnapshotPlanResponse)
def snapshot_plan(
    project: CurrentProject, name: str, at: Annotated[int | None, Query(ge=0, lt=2**31)] = None
) -> SnapshotPlan:
    """Return the plan of assembling a snapshot of a channel now, and its cost."""
    return project.reader.snapshot_plan(name, at)
