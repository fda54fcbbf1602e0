"""How a snapshot of a channel would be put together now, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from kilonova.catalog import chains
from kilonova.catalog.database import Transaction
from kilonova.catalog.stretches import stretches
from kilonova.model.block import Block
from kilonova.model.policy import described


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A snapshot as its blocks, and what compacting the channel would cost.

    Attributes:
        at: the point.
        base: the base that it begins with; None if there is none.
        deltas: the deltas after it, in order.
        rows: rows in these blocks.
        bytes: the bytes to read.
        buckets_aligned: whether the base lies in buckets by key, so that deltas can be merged without moving its rows.
        ratio: how many times the bytes of the base are read, which is what compacting would leave, about; None without
            a base.
        policy: when the channel is compacted by itself, in words.
        paid: what its readers have paid for merging since its newest base is there, in bytes; None where nothing is
            to be merged at the newest point, or it is being compacted.
        price: what compacting it costs, in bytes; None likewise.
    """

    at: int
    base: Block | None
    deltas: tuple[Block, ...]
    rows: int
    bytes: int
    buckets_aligned: bool
    ratio: float | None
    policy: str
    paid: float | None
    price: float | None


def assembly(tx: Transaction, channel: str, at: int | None = None) -> Assembly:
    """How a snapshot would be put together.

    Args:
        tx: an open transaction.
        channel: the channel.
        at: the point; None for the newest.

    Raises:
        UnknownName: there is no such channel, or the point is not readable, or has been collected.
    """
    chronicle = chains.chronicle(tx, channel)
    snapshot = chronicle.snapshot(chronicle.effective if at is None else at)
    stretch = next(iter(stretches(tx, channel)), None)
    size = sum(block.statistics.bytes for block in snapshot.blocks)
    base = snapshot.base
    return Assembly(
        at=snapshot.at,
        base=base,
        deltas=snapshot.deltas,
        rows=sum(block.statistics.rows for block in snapshot.blocks),
        bytes=size,
        buckets_aligned=base is not None and base.buckets > 0,
        ratio=size / base.statistics.bytes if base is not None and base.statistics.bytes else None,
        policy=described(chains.policy(tx, channel)),
        paid=None if stretch is None else stretch.paid,
        price=None if stretch is None else stretch.price,
    )
