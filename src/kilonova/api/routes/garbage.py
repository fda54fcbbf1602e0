"""Route of garbage collection: deletes the blocks that are no longer needed."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from kilonova.api.response_models import ResponseModel, Text, attribute
from kilonova.api.routes.context import OPERATE, CurrentProject


class GCDecisionResponse(ResponseModel):
    """Decision of garbage collection on a block.

    Attributes:
        kind: the points that it leads to.
        held_by: the reason why it is needed; None if it is deleted.
    """

    channel: str
    block: int = attribute("block", "number")
    kind: Text = attribute("block", "kind")
    rows: int = attribute("block", "statistics", "rows")
    bytes: int = attribute("block", "statistics", "bytes")
    held_by: str | None


class GCResponse(ResponseModel):
    """Result of garbage collection, or of a dry run: the number of blocks to delete, and their size.

    Attributes:
        deleted: number of blocks whose files were deleted, those of failed runs included.
        branches: number of deleted branches of previews whose process was killed.
        unknown_directories: directories in the warehouse that do not belong to this catalog; they are not touched.
        looked_at: the decisions on blocks to delete; with `dry_run`, also on those that stay.
    """

    blocks: int
    bytes: int
    deleted: int
    branches: int
    unknown_directories: list[str]
    looked_at: list[GCDecisionResponse]


router = APIRouter(tags=["channels"])


@router.post("/gc", dependencies=OPERATE)
def garbage(
    project: CurrentProject,
    channel: Annotated[list[str] | None, Query()] = None,
    dry_run: bool = False,
    provenance: Literal["logical", "physical", "all"] | None = None,
) -> GCResponse:
    """Delete the unneeded blocks of channels, or all; or list them, and the reasons to keep the others."""
    done = project.collect_garbage(channel, dry_run=dry_run, provenance=provenance)
    going = [verdict for verdict in done.verdicts if verdict.goes]
    return GCResponse(
        blocks=len(going),
        bytes=sum(verdict.block.statistics.bytes for verdict in going),
        deleted=done.swept,
        branches=done.branches,
        unknown_directories=list(done.unknown_directories),
        looked_at=[GCDecisionResponse.model_validate(each) for each in (done.verdicts if dry_run else going)],
    )
