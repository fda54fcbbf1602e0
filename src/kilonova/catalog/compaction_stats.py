"""Statistics of delta merges by readers of channels: see `kilonova.schedule.compaction`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Integer, case, func, or_, select
from sqlalchemy import cast as sql_cast

from kilonova.catalog import codec, tables
from kilonova.catalog.channel_store import WRITING, channel_id, placed_by
from kilonova.catalog.database import Transaction
from kilonova.model.encoding import Append, is_append_only
from kilonova.model.run import RunKind, RunState
from kilonova.schedule.compaction import DeltaStack, small


def delta_stacks(tx: Transaction, name: str | None = None) -> list[DeltaStack]:
    """Return the delta stack of every channel with deltas after its newest base that is not being compacted.

    Args:
        tx: an open transaction.
        name: only this channel; None for all.

    Raises:
        NotFound: there is no such channel.
    """
    block, place, channel = tables.block, tables.placement, tables.channel
    here = () if name is None else (place.c.channel_id == channel_id(tx, name),)
    live = tx.connection.execute(
        select(place.c.channel_id, place.c.start, place.c.end, block.c.bytes)
        .join(block, block.c.id == place.c.block_id)
        .where(place.c.live, place.c.merged_into.is_(None), *here)
        .order_by(place.c.channel_id, place.c.end)
    ).all()
    bases: dict[int, tuple[int, int]] = {}
    for row in live:
        if row.start is None and row.end >= bases.get(row.channel_id, (0, 0))[0]:
            bases[row.channel_id] = (row.end, row.bytes)
    deltas: dict[int, list[int]] = {}
    for row in live:
        if row.start is not None and row.start >= bases.get(row.channel_id, (0, 0))[0]:
            deltas.setdefault(row.channel_id, []).append(row.bytes)
    compacted = select(block.c.target_id).join(tables.run, tables.run.c.id == block.c.run_id)
    compacted = compacted.where(
        block.c.state == WRITING,
        tables.run.c.kind == RunKind.COMPACTION.value,
        tables.run.c.state == RunState.RUNNING.value,
    )
    for number in tx.connection.execute(compacted).scalars():
        deltas.pop(number, None)
    merged = _merged(tx, here)
    declared = select(channel.c.id, channel.c.name, channel.c.encoding, channel.c.policy)
    rows = tx.connection.execute(declared if name is None else declared.where(channel.c.name == name)).all()
    found: list[DeltaStack] = []
    for row in rows:
        if row.id in deltas:
            encoding = codec.encoding_from_json(row.encoding)
            stack = DeltaStack(
                channel=row.name,
                appended=is_append_only(encoding),
                base=bases.get(row.id, (0, 0))[1],
                count=len(deltas[row.id]),
                deltas=sum(deltas[row.id]),
                readings=tuple(merged.get(row.id, ())),
                policy=codec.policy_from_json(row.policy),
                crowded=isinstance(encoding, Append) and bool(small(deltas[row.id])),
            )
            found.append(stack)
    return found


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
