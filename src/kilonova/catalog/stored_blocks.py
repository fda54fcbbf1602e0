"""Live blocks as recorded when written, for verifying the warehouse without reading channels."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select, update

from kilonova.catalog import channel_store, codec, tables
from kilonova.catalog.channel_store import block_from, kind_from
from kilonova.catalog.database import Transaction, is_among
from kilonova.catalog.manifest import Manifest
from kilonova.errors import NotFound
from kilonova.model.block import BlockName, Kind
from kilonova.model.damage import WrittenBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBlock:
    """Live block and its files.

    Attributes:
        channel: its channel.
        kind: base or delta, with its points.
        written: its files, size and manifest, as recorded when it was written.
    """

    channel: str
    kind: Kind
    written: WrittenBlock


def live_blocks(tx: Transaction, channels: Iterable[str] | None = None) -> list[LiveBlock]:
    """Return all live blocks, or those of given channels, by number.

    Raises:
        NotFound: there is no such channel.
    """
    query = _live().order_by(tables.block.c.id)
    if channels is not None:
        query = query.where(
            tables.placement.c.channel_id.in_([channel_store.channel_id(tx, name) for name in channels])
        )
    return _blocks(tx, query)


def unverified(tx: Transaction, before: datetime, limit: int) -> list[LiveBlock]:
    """Return live blocks that were last written or verified before a time, the oldest first.

    Args:
        tx: an open transaction.
        before: the time.
        limit: the maximum number of blocks.
    """
    last = func.coalesce(tables.block.c.verified, tables.run.c.started)
    query = _live().join(tables.run, tables.run.c.id == tables.block.c.run_id).where(last < before)
    return _blocks(tx, query.order_by(last, tables.block.c.id).limit(limit))


def set_verified(tx: Transaction, numbers: Collection[int]) -> None:
    """Record that blocks have just been verified."""
    tx.connection.execute(update(tables.block).where(is_among(tx, tables.block.c.id, numbers)).values(verified=tx.now))


def _live() -> Select[Any]:
    """Return a query for live blocks as recorded when written."""
    block, place = tables.block.c, tables.placement.c
    return (
        select(
            block.id,
            block.suffix,
            place.start,
            place.end,
            block.stored,
            place.manifest,
            block.files,
            block.bytes,
            block.external.is_not(None).label("outside"),
            tables.channel.c.name,
        )
        .join(tables.placement, place.block_id == block.id)
        .join(tables.channel, tables.channel.c.id == place.channel_id)
        .where(place.live)
    )


def _blocks(tx: Transaction, query: Select[Any]) -> list[LiveBlock]:
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


def manifest_of(tx: Transaction, channel: str, number: int) -> Manifest:
    """Return the current manifest of a block in a channel, from the catalog.

    Raises:
        NotFound: there is no such block in the channel, or it is not live.
    """
    output, point, place = tables.run_output.c, tables.point.c, tables.placement.c
    row = tx.connection.execute(
        channel_store.placed_blocks()
        .add_columns(output.task, output.point, output.run_id.label("run"), point.version)
        .join(tables.run_output, channel_store.placed_by(tables.run_output))
        .join(tables.point, (point.channel_id == output.channel_id) & (point.number == output.point))
        .where(place.channel_id == channel_store.channel_id(tx, channel), place.block_id == number, place.live)
    ).first()
    if row is None:
        raise NotFound("the block no longer exists", hint="Verify the warehouse again")
    return Manifest(
        catalog=tx.identity(),
        channel=channel,
        task=row.task,
        run=row.run,
        point=row.point,
        version=codec.version_from_json(row.version),
        block=block_from(row),
    )


def set_manifest(tx: Transaction, channel: str, number: int, digest: str) -> None:
    """Record the digest of a rewritten manifest of a block in a channel."""
    here, place = channel_store.channel_id(tx, channel), tables.placement.c
    mine = update(tables.placement).where(place.channel_id == here, place.block_id == number)
    tx.connection.execute(mine.values(manifest=digest))
    channel_store.mark_changed(tx, [here])
