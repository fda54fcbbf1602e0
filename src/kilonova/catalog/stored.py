"""Live blocks as they were written, for verifying the warehouse without reading channels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select, update

from kilonova.catalog import chains, codec, tables
from kilonova.catalog.chains import block_from, kind_from
from kilonova.catalog.database import Transaction
from kilonova.catalog.manifest import Manifest
from kilonova.errors import UnknownName
from kilonova.model.block import BlockName, Kind
from kilonova.model.damage import WrittenBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBlock:
    """A block that can be read.

    Attributes:
        channel: its channel.
        kind: between which points it stands.
        written: how it was written.
    """

    channel: str
    kind: Kind
    written: WrittenBlock


def live_blocks(tx: Transaction, channels: Iterable[str] | None = None) -> list[LiveBlock]:
    """All live blocks, or those of some channels, by number.

    Raises:
        UnknownName: there is no such channel.
    """
    block = tables.block.c
    query = (
        select(
            block.id,
            block.suffix,
            block.start,
            block.end,
            block.stored,
            block.manifest,
            block.files,
            block.bytes,
            block.external.is_not(None).label("outside"),
            tables.channel.c.name,
        )
        .join(tables.channel, tables.channel.c.id == block.channel_id)
        .where(block.state == chains.LIVE)
        .order_by(block.id)
    )
    if channels is not None:
        query = query.where(block.channel_id.in_([chains.channel_id(tx, name) for name in channels]))
    return [
        LiveBlock(
            channel=row.name,
            kind=kind_from(row),
            written=WrittenBlock(
                name=BlockName(row.id, row.suffix or ""),
                files=() if row.outside else None if row.stored is None else codec.stored_from_json(row.stored),
                count=0 if row.outside else row.files,
                bytes=0 if row.outside else row.bytes,
                manifest=row.manifest,
            ),
        )
        for row in tx.connection.execute(query)
    ]


def manifest_of(tx: Transaction, number: int) -> Manifest:
    """The manifest that a block has now, by what the catalog knows of it.

    Raises:
        UnknownName: there is no such block, or it is not live.
    """
    output, point = tables.run_output.c, tables.point.c
    row = tx.connection.execute(
        select(
            tables.block, tables.channel.c.name, output.task, output.point, output.run_id.label("run"), point.version
        )
        .join(tables.channel, tables.channel.c.id == tables.block.c.channel_id)
        .join(tables.run_output, output.block_id == tables.block.c.id)
        .join(tables.point, (point.channel_id == output.channel_id) & (point.number == output.point))
        .where(tables.block.c.id == number, tables.block.c.state == chains.LIVE)
    ).first()
    if row is None:
        raise UnknownName("the block has gone", hint="Verify the warehouse again")
    return Manifest(
        catalog=tx.identity(),
        channel=row.name,
        task=row.task,
        run=row.run,
        point=row.point,
        version=codec.version_from_json(row.version),
        block=block_from(row),
    )


def set_manifest(tx: Transaction, number: int, digest: str) -> None:
    """Write down the digest of a block's manifest that was written again."""
    tx.connection.execute(update(tables.block).where(tables.block.c.id == number).values(manifest=digest))
