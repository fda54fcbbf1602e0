"""Space: the blocks that nothing needs any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from kilonova.engine.reclaim import Collected
from kilonova.server.routes.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShown:
    """A block that garbage collection looked at.

    Attributes:
        channel: its channel.
        block: its number.
        kind: which points it leads to.
        rows: how many rows it holds.
        bytes: its size.
        held_by: what needs it; None if it goes.
    """

    channel: str
    block: int
    kind: str
    rows: int
    bytes: int
    held_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedShown:
    """What garbage collection did, or would do.

    Attributes:
        blocks: how many blocks go.
        bytes: their size.
        deleted: how many blocks' files were deleted, those of failed runs included.
        strangers: directories in the warehouse that are not this catalog's; they are left alone.
        looked_at: the blocks that go; with `dry_run`, those that stay as well.
    """

    blocks: int
    bytes: int
    deleted: int
    strangers: list[str]
    looked_at: list[BlockShown]


def garbage_routes(context: Context) -> APIRouter:
    """The routes of garbage."""
    router = APIRouter(tags=["channels"])

    @router.post("/garbage", dependencies=context.operate)
    def garbage(
        channel: Annotated[list[str] | None, Query()] = None,
        dry_run: bool = False,
        provenance: Literal["logical", "physical"] | None = None,
    ) -> CollectedShown:
        """Delete the blocks of channels, or all, that nothing needs any more; or say which, and what holds the rest."""
        done = context.project.collect_garbage(channel, dry_run=dry_run, provenance=provenance)
        return _shown(done, everything=dry_run)

    return router


def _shown(done: Collected, *, everything: bool) -> CollectedShown:
    going = [verdict for verdict in done.verdicts if verdict.goes]
    return CollectedShown(
        blocks=len(going),
        bytes=sum(verdict.block.statistics.bytes for verdict in going),
        deleted=done.swept,
        strangers=list(done.strangers),
        looked_at=[
            BlockShown(
                channel=verdict.channel,
                block=verdict.block.number,
                kind=str(verdict.block.kind),
                rows=verdict.block.statistics.rows,
                bytes=verdict.block.statistics.bytes,
                held_by=verdict.held_by,
            )
            for verdict in (done.verdicts if everything else going)
        ],
    )
