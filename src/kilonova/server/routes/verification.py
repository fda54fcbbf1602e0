"""Verification: whether the blocks in the warehouse are as they were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query

from kilonova.model.damage import DamageKind
from kilonova.server.routes.context import Context
from kilonova.service.fsck import Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageShown:
    """Something of a block that is not as it was written.

    Attributes:
        channel: the block's channel.
        block: the name of its directory.
        kind: which points it leads to.
        file: the file in it; None for the directory as a whole.
        damage: how it differs.
    """

    channel: str
    block: str
    kind: str
    file: str | None
    damage: DamageKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyShown:
    """What mends a damaged channel.

    Attributes:
        channel: the channel.
        remedy: what mends it.
        automatic: whether `kilonova fsck --repair` does so.
    """

    channel: str
    remedy: str
    automatic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedShown:
    """What verification has found.

    Attributes:
        blocks: how many blocks were verified.
        files: how many files they have.
        bytes: how many bytes these have.
        damages: what is not as it was written.
        remedies: what mends each damaged channel.
        unreferenced: directories of blocks that the catalog does not know, or knows to have been deleted.
    """

    blocks: int
    files: int
    bytes: int
    damages: list[DamageShown]
    remedies: list[RemedyShown]
    unreferenced: list[str]


def verification_routes(context: Context) -> APIRouter:
    """The routes of verification."""
    router = APIRouter(tags=["channels"])

    @router.get("/verification", dependencies=context.operate)
    def verification(channel: Annotated[list[str] | None, Query()] = None, checksums: bool = False) -> VerifiedShown:
        """Compare the blocks of channels, or all, with what was written: names and sizes, or contents as well."""
        return _shown(context.project.fsck(channel, checksums=checksums))

    return router


def _shown(found: Verified) -> VerifiedShown:
    return VerifiedShown(
        blocks=found.blocks,
        files=found.files,
        bytes=found.bytes,
        damages=[
            DamageShown(
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
            RemedyShown(channel=each.channel, remedy=str(each), automatic=each.is_automatic) for each in found.remedies
        ],
        unreferenced=list(found.unreferenced),
    )
