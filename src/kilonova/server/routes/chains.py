"""What became of channels: their points and blocks, how large they were, their schemas, and who reads them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from kilonova.catalog.points import BlockRecord, PointRecord
from kilonova.catalog.schemas import SchemaRecord
from kilonova.model.block import Block
from kilonova.model.channel import PointState
from kilonova.model.encoding import described
from kilonova.model.run import RunKind
from kilonova.server.routes.context import Before, Context, Limit, page
from kilonova.service.assembly import Assembly
from kilonova.service.growth import Size
from kilonova.service.reports import Lag


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRecordShown:
    """A block that leads to a point, live or not.

    Attributes:
        block: its number.
        kind: which points it leads to; None while it is being written.
        state: "live", "being written" or "collected".
        encoding: how its rows read, in words; empty while it is being written.
        rows: rows in it.
        bytes: its size.
        files: the number of its files.
        removals: how many rows of the relation it replaces or deletes; None where that is not known.
        run: the run that wrote it.
        made: what that run was for.
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
class PointShown:
    """A point.

    Attributes:
        number: its number.
        state: reserved, filled or cancelled.
        time: when it was filled or cancelled.
        run: the run that reserved it.
        kind: what that run is for.
        task: the task that wrote it.
        reason: how it was made and why so.
        version: what it reflects.
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
    blocks: list[BlockRecordShown]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartShown:
    """A block that is read for something.

    Attributes:
        block: its number.
        kind: which points it leads to.
        encoding: how its rows read, in words.
        rows: rows in it.
        bytes: its size.
        files: the number of its files.
        buckets: into how many buckets by key its rows are laid out; 0 for none.
    """

    block: int
    kind: str
    encoding: str
    rows: int
    bytes: int
    files: int
    buckets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblyShown:
    """How a snapshot would be put together now, and what compacting the channel would cost.

    Attributes:
        at: the point.
        base: the base that it begins with.
        deltas: the deltas after it, in order.
        rows: rows in these blocks.
        bytes: the bytes to read.
        buckets_aligned: whether deltas can be merged without moving the rows of the base.
        ratio: how many times the bytes of the base are read.
        policy: when the channel is compacted by itself, in words.
        paid: what merging has cost its readers since its newest base is there, in bytes; None where nothing is merged.
        price: what compacting costs, in bytes; None likewise.
    """

    at: int
    base: PartShown | None
    deltas: list[PartShown]
    rows: int
    bytes: int
    buckets_aligned: bool
    ratio: float | None
    policy: str
    paid: float | None
    price: float | None


def chain_routes(context: Context) -> APIRouter:
    """The routes of what became of channels."""
    router = APIRouter(tags=["channels"])
    project = context.project

    @router.get("/channels/{name}/points", dependencies=context.read)
    def points(
        name: str, request: Request, response: Response, before: Before = None, limit: Limit = 100
    ) -> list[PointShown]:
        """The points of a channel, newest first, with the blocks that lead to each, live or not."""
        found = [_point_shown(point) for point in project.chain(name, before, limit + 1).points]
        return page(request, response, found, limit, "before", lambda last: last.number)

    @router.get("/channels/{name}/growth", dependencies=context.read)
    def growth(name: str, limit: Limit = 200) -> list[Size]:
        """How large a channel was at its last filled points, oldest first."""
        return list(project.growth(name, limit))

    @router.get("/channels/{name}/schemas", dependencies=context.read)
    def schemas(name: str, limit: Limit = 20) -> list[SchemaRecord]:
        """The last changes of a channel's schema, newest first."""
        return list(project.schemas(name, limit))

    @router.get("/channels/{name}/readers", dependencies=context.read)
    def readers(name: str) -> list[Lag]:
        """The tasks that read a channel, and how far each is behind."""
        return list(project.readers(name))

    @router.get("/channels/{name}/assembly", dependencies=context.read)
    def assembly(name: str, at: Annotated[int | None, Query(ge=0, lt=2**31)] = None) -> AssemblyShown:
        """How a snapshot of a channel would be put together now, and what that costs."""
        return _assembly_shown(project.assembly(name, at))

    return router


def part_shown(block: Block) -> PartShown:
    """A block that is read for something."""
    return PartShown(
        block=block.number,
        kind=str(block.kind),
        encoding=described(block.encoding),
        rows=block.statistics.rows,
        bytes=block.statistics.bytes,
        files=block.statistics.files,
        buckets=block.buckets,
    )


def _point_shown(point: PointRecord) -> PointShown:
    return PointShown(
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


def _record_shown(block: BlockRecord) -> BlockRecordShown:
    return BlockRecordShown(
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


def _assembly_shown(found: Assembly) -> AssemblyShown:
    return AssemblyShown(
        at=found.at,
        base=None if found.base is None else part_shown(found.base),
        deltas=[part_shown(block) for block in found.deltas],
        rows=found.rows,
        bytes=found.bytes,
        buckets_aligned=found.buckets_aligned,
        ratio=found.ratio,
        policy=found.policy,
        paid=found.paid,
        price=found.price,
    )
