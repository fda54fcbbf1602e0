"""Routes of the history of channels: their points, blocks, sizes, schemas and readers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from kilonova.api.routes.context import Before, Limit, RouteContext, paginate
from kilonova.catalog.read_models.point_history import BlockRecord, PointRecord
from kilonova.catalog.read_models.schema_history import SchemaRecord
from kilonova.model.block import Block
from kilonova.model.channel import PointState
from kilonova.model.encoding import describe_encoding
from kilonova.model.run import RunKind
from kilonova.service.reports import Lag
from kilonova.service.size_history import SizePoint
from kilonova.service.snapshot_plan import SnapshotPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRecordResponse:
    """Record of a block that leads to a point, live or not.

    Attributes:
        block: its number.
        kind: the points that it leads to; None while it is being written.
        state: "live", "being written" or "collected".
        encoding: its encoding, as text; empty while it is being written.
        rows: number of its rows.
        bytes: its size.
        files: number of its files.
        removals: number of rows of the relation that it replaces or deletes; None where that is not known.
        run: the run that wrote it.
        made: the kind of that run.
    """

    block: int
    kind: str | None
    state: str
    encoding: str
    rows: int | None
    bytes: int | None
    files: int | None
    removals: int | None
    run: int
    made: RunKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResponse:
    """A point of a channel.

    Attributes:
        number: its number.
        state: reserved, filled or cancelled.
        time: when it was filled or cancelled.
        run: the run that reserved it.
        kind: the kind of that run.
        task: the task that wrote it.
        reason: the refresh method and why it was chosen.
        version: its version vector.
        blocks: the blocks that lead to it; one that a compaction made stands beside the one that filled the point.
    """

    number: int
    state: PointState
    time: datetime | None
    run: int
    kind: RunKind
    task: str | None
    reason: str
    version: str
    blocks: list[BlockRecordResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResponse:
    """A block that is read.

    Attributes:
        block: its number.
        kind: the points that it leads to.
        encoding: its encoding, as text.
        rows: number of its rows.
        bytes: its size.
        files: number of its files.
        buckets: number of buckets by key that its rows are laid out in; 0 for none.
    """

    block: int
    kind: str
    encoding: str
    rows: int
    bytes: int
    files: int
    buckets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPlanResponse:
    """Plan of assembling a snapshot now, and the cost of compacting the channel.

    Attributes:
        at: the point.
        base: the base that it begins with.
        deltas: the deltas after it, in order.
        rows: number of rows in these blocks.
        bytes: number of bytes to read.
        buckets_aligned: whether deltas can be merged without moving the rows of the base.
        ratio: bytes to read as a multiple of the base's.
        policy: the channel's compaction policy, as text.
        read_cost: cost of merging since the newest base, in bytes; None where nothing is merged.
        compaction_cost: cost of compacting, in bytes; None likewise.
    """

    at: int
    base: BlockResponse | None
    deltas: list[BlockResponse]
    rows: int
    bytes: int
    buckets_aligned: bool
    ratio: float | None
    policy: str
    read_cost: float | None
    compaction_cost: float | None


def channel_history_routes(context: RouteContext) -> APIRouter:
    """Return the routes of the history of channels."""
    router = APIRouter(tags=["channels"])
    project = context.project

    @router.get("/channels/{name}/points", dependencies=context.read)
    def points(
        name: str, request: Request, response: Response, before: Before = None, limit: Limit = 100
    ) -> list[PointResponse]:
        """List the points of a channel, newest first, with the blocks that lead to each, live or not."""
        found = [_point_shown(point) for point in project.channel_history(name, before, limit + 1).points]
        return paginate(request, response, found, limit, "before", lambda last: last.number)

    @router.get("/channels/{name}/sizes", dependencies=context.read)
    def growth(name: str, limit: Limit = 200) -> list[SizePoint]:
        """List the sizes of a channel at its last filled points, oldest first."""
        return list(project.size_history(name, limit))

    @router.get("/channels/{name}/schemas", dependencies=context.read)
    def schemas(name: str, limit: Limit = 20) -> list[SchemaRecord]:
        """List the last changes of a channel's schema, newest first."""
        return list(project.schemas(name, limit))

    @router.get("/channels/{name}/readers", dependencies=context.read)
    def readers(name: str) -> list[Lag]:
        """List the tasks that read a channel, and the lag of each."""
        return list(project.readers(name))

    @router.get("/channels/{name}/snapshot-plan", dependencies=context.read)
    def assembly(name: str, at: Annotated[int | None, Query(ge=0, lt=2**31)] = None) -> SnapshotPlanResponse:
        """Return the plan of assembling a snapshot of a channel now, and its cost."""
        return _assembly_shown(project.snapshot_plan(name, at))

    return router


def part_shown(block: Block) -> BlockResponse:
    """Convert a block that is read to its response."""
    return BlockResponse(
        block=block.number,
        kind=str(block.kind),
        encoding=describe_encoding(block.encoding),
        rows=block.statistics.rows,
        bytes=block.statistics.bytes,
        files=block.statistics.files,
        buckets=block.buckets,
    )


def _point_shown(point: PointRecord) -> PointResponse:
    return PointResponse(
        number=point.number,
        state=point.state,
        time=point.time,
        run=point.run,
        kind=point.kind,
        task=point.task,
        reason=point.reason,
        version=str(point.version),
        blocks=[_record_shown(block) for block in point.blocks],
    )


def _record_shown(block: BlockRecord) -> BlockRecordResponse:
    return BlockRecordResponse(
        block=block.number,
        kind=None if block.kind is None else str(block.kind),
        state=block.state,
        encoding=block.encoding,
        rows=block.rows,
        bytes=block.bytes,
        files=block.files,
        removals=block.removals,
        run=block.run,
        made=block.made,
    )


def _assembly_shown(found: SnapshotPlan) -> SnapshotPlanResponse:
    return SnapshotPlanResponse(
        at=found.at,
        base=None if found.base is None else part_shown(found.base),
        deltas=[part_shown(block) for block in found.deltas],
        rows=found.rows,
        bytes=found.bytes,
        buckets_aligned=found.buckets_aligned,
        ratio=found.ratio,
        policy=found.policy,
        read_cost=found.read_cost,
        compaction_cost=found.compaction_cost,
    )
