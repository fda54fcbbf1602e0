"""Routes of verification: checking that the blocks in the warehouse are as they were written, and repair."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kilonova.api.response_models import ResponseModel
from kilonova.api.routes.context import ACCEPTED, OPERATE, CurrentProject, OperationResponse, Starting
from kilonova.model.damage import DamageKind
from kilonova.service.fsck import FsckReport


class DamageResponse(ResponseModel):
    """Damage of a block: a file in the directory `block`, or the directory as a whole, is not as it was written."""

    channel: str
    block: str
    kind: str
    file: str | None
    damage: DamageKind


class RemedyResponse(ResponseModel):
    """Remedy for a damaged channel, which is automatic if `kilonova fsck --repair` applies it."""

    channel: str
    remedy: str
    automatic: bool


class VerificationResponse(ResponseModel):
    """Result of a verification: the number of blocks, their files and size, and what is damaged.

    Attributes:
        unreferenced: block directories that are unknown to the catalog, or recorded there as deleted.
    """

    blocks: int
    files: int
    bytes: int
    damages: list[DamageResponse]
    remedies: list[RemedyResponse]
    unreferenced: list[str]


class UnrepairedResponse(ResponseModel):
    """A damaged channel that can be repaired only by supplying its rows again."""

    channel: str
    remedy: str


class RepairResponse(ResponseModel):
    """Result of a repair: the number of blocks verified, the channels mended, and those left damaged."""

    blocks: int
    mended: list[str]
    left: list[UnrepairedResponse]


router = APIRouter(tags=["channels"])


@router.get("/verification", dependencies=OPERATE)
def verification(
    project: CurrentProject, channel: Annotated[list[str] | None, Query()] = None, checksums: bool = False
) -> VerificationResponse:
    """Compare the blocks of channels, or all, with what was written: names and sizes, or contents as well."""
    return _shown(project.fsck(channel, checksums=checksums))


@router.post("/verification", dependencies=OPERATE, responses=ACCEPTED)
async def repair(
    start: Starting, channel: Annotated[list[str] | None, Query()] = None, checksums: bool = False
) -> RepairResponse | OperationResponse:
    """Verify the blocks of channels, or all, and repair what can be repaired without rows from elsewhere."""
    return await start(RepairResponse.model_validate, "repair", channels=channel, checksums=checksums)


def _shown(found: FsckReport) -> VerificationResponse:
    return VerificationResponse(
        blocks=found.blocks,
        files=found.files,
        bytes=found.bytes,
        damages=[
            DamageResponse(
                channel=each.block.channel,
                block=each.block.written.name.directory,
                kind=str(each.block.kind),
                file=damage.file,
                damage=damage.kind,
            )
            for each in found.damaged
            for damage in each.damages
        ],
        remedies=[
            RemedyResponse(channel=each.channel, remedy=str(each), automatic=each.is_automatic)
            for each in found.remedies
        ],
        unreferenced=list(found.unreferenced),
    )
