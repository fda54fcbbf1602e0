"""Statistics of delta merges by readers of channels: see `kilonova.schedule.compaction`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, case, func, or_, select
from sqlalchemy import cast as sql_cast

from kilonova.catalog import codec, tables
from kilonova.catalog.channel_store import WRITING, channel_id, placed_by
from kilonova.catalog.database import Transaction
from kilonova.model.encoding import Append, Removal, Upsert, is_append_only
from kilonova.model.run import RunKind, RunState
from kilonova.schedule.compaction import DeltaStack, small


class _Placed(NamedTuple):
    """Size and layout of a block of a channel.

    Attributes:
        bytes: its bytes.
        buckets: number of its buckets.
        encoding: its encoding, as stored.
        rewritten: whether a compaction wrote it.
    """

    bytes: int
    buckets: int
    encoding: Any
    rewritten: bool

    @property
    def is_removal(self) -> bool:
        """Return whether it removes rows by a condition."""
        return self.encoding is not None and isinstance(codec.block_encoding_from_json(self.encoding), Removal)


def delta_stacks(tx: Transaction, name: str | None = None) -> list[DeltaStack]:
    """Return the delta stack of every channel with deltas after its newest base that is not being compacted.

    Args:
        tx: an open transaction.
        name: only this channel; None for all.

    Raises:
        NotFound: there is no such channel.
    """
    channel = tables.channel
    here = () if name is None else (tables.placement.c.channel_id == channel_id(tx, name),)
    stacks = _stacks(tx, here)
    for number in _being_compacted(tx):
        stacks.pop(number, None)
    merged = _merged(tx, here)
    declared = select(channel.c.id, channel.c.name, channel.c.encoding, channel.c.policy)
    rows = tx.connection.execute(declared if name is None else declared.where(channel.c.name == name)).all()
    found: list[DeltaStack] = []
    for row in rows:
        if row.id in stacks:
            base, deltas = stacks[row.id]
            encoding, buckets, sizes = codec.encoding_from_json(row.encoding), base.buckets, [d.bytes for d in deltas]
            upserts = isinstance(encoding, Upsert) and all(d.encoding == row.encoding for d in deltas)
            ready = (d for d in deltas if d.buckets == buckets and (d.rewritten or (len(deltas) == 1 and not buckets)))
            stack = DeltaStack(
                channel=row.name,
                appended=is_append_only(encoding),
                base=base.bytes,
                count=len(sizes),
                deltas=sum(sizes),
                merged=sum(delta.bytes for delta in ready) if upserts else 0,
                upserts=upserts,
                readings=tuple(merged.get(row.id, ())),
                policy=codec.policy_from_json(row.policy),
                crowded=isinstance(encoding, Append) and bool(small(list(map(_mergeable_size, deltas)))),
            )
            found.append(stack)
    return found


def _mergeable_size(delta: _Placed) -> float:
    """Return the size of a delta in bytes; infinity for a removal, which is not merged with its neighbours."""
    return math.inf if delta.is_removal else delta.bytes


def _stacks(tx: Transaction, here: Sequence[ColumnElement[bool]]) -> dict[int, tuple[_Placed, list[_Placed]]]:
    """Return the newest base, an empty one if there is none, and the deltas after it of channels that have some.

    Args:
        tx: an open transaction.
        here: conditions that select the placements.
    """
    block, place, run = tables.block.c, tables.placement.c, tables.run
    live = tx.connection.execute(
        select(place.channel_id, place.start, place.end, block.bytes, block.buckets, block.encoding, run.c.kind)
        .join(tables.block, block.id == place.block_id)
        .join(run, run.c.id == block.run_id)
        .where(place.live, place.merged_into.is_(None), *here)
        .order_by(place.channel_id, place.end)
    ).all()
    bases: dict[int, tuple[int, _Placed]] = {}
    none = (0, _Placed(0, 0, None, False))
    deltas: dict[int, list[_Placed]] = {}
    for row in live:
        if row.start is None and row.end >= bases.get(row.channel_id, none)[0]:
            bases[row.channel_id] = (row.end, _Placed(row.bytes, row.buckets, row.encoding, False))
    for row in live:
        if row.start is not None and row.start >= bases.get(row.channel_id, none)[0]:
            rewritten = row.kind == RunKind.COMPACTION.value
            delta = _Placed(row.bytes, row.buckets, row.encoding, rewritten)
            deltas.setdefault(row.channel_id, []).append(delta)
    return {number: (bases.get(number, none)[1], each) for number, each in deltas.items()}


def _being_compacted(tx: Transaction) -> Sequence[int]:
    """Return the channels, by number, that a run is compacting."""
    block = tables.block
    compacted = select(block.c.target_id).join(tables.run, tables.run.c.id == block.c.run_id)
    compacted = compacted.where(
        block.c.state == WRITING,
        tables.run.c.kind == RunKind.COMPACTION.value,
        tables.run.c.state == RunState.RUNNING.value,
    )
    return tx.connection.execute(compacted).scalars().all()


def _merged(tx: Transaction, here: Sequence[ColumnElement[bool]]) -> dict[int, list[int]]:
    """Return the number of deltas that each read of a snapshot has merged, by channel; counting live blocks only.

    Args:
        tx: an open transaction.
        here: conditions that select the placements.
    """
    place, read = tables.placement, tables.run_input_block
    begins = func.sum(case((or_(place.c.start.is_(None), place.c.start == 0), 1), else_=0))
    follows = func.sum(sql_cast(place.c.start.is_not(None), Integer))
    rows = tx.connection.execute(
        select(place.c.channel_id, follows.label("deltas"))
        .join(read, placed_by(read))
        .where(place.c.live, *here)
        .group_by(place.c.channel_id, read.c.run_id, read.c.task)
        .having(begins > 0)
    )
    found: dict[int, list[int]] = {}
    for row in rows:
        if row.deltas:
            found.setdefault(row.channel_id, []).append(int(row.deltas))
    return found
