"""Plan of assembling a snapshot of a channel from its blocks, with the costs."""

from __future__ import annotations

from dataclasses import dataclass

from kilonova.catalog import channel_store
from kilonova.catalog.compaction_stats import delta_stacks
from kilonova.catalog.database import Transaction
from kilonova.model.block import Block
from kilonova.model.compaction_policy import describe_policy
from kilonova.model.row_count import RowCount


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPlan:
    """Blocks of a snapshot, and the cost of compacting the channel.

    Attributes:
        at: the point.
        base: the base that it starts from; None if there is none.
        deltas: the deltas after it, in order.
        rows: number of rows of the snapshot, as far as the blocks record it.
        block_rows: rows in these blocks.
        bytes: the bytes to read.
        buckets_aligned: whether the base is bucketed by key, so that deltas can be merged without shuffling its rows.
        ratio: the bytes to read as a multiple of the bytes of the base, about the size that compaction would leave;
            None without a base.
        policy: the policy of automatic compaction, as text.
        read_cost: the merge cost that readers have paid since the newest base was written, in bytes; None if there is
            nothing to merge at the newest point, or it is being compacted.
        compaction_cost: the cost of compaction, in bytes; None likewise.
    """

    at: int
    base: Block | None
    deltas: tuple[Block, ...]
    rows: RowCount
    block_rows: int
    bytes: int
    buckets_aligned: bool
    ratio: float | None
    policy: str
    read_cost: float | None
    compaction_cost: float | None


def snapshot_plan(tx: Transaction, channel: str, at: int | None = None) -> SnapshotPlan:
    """Return the plan of a snapshot.

    Args:
        tx: an open transaction.
        channel: the channel.
        at: the point; None for the newest.

    Raises:
        NotFound: there is no such channel, or the point is not readable, or has been collected.
    """
    state = channel_store.channel_state(tx, channel)
    snapshot = state.snapshot(state.latest_distinct if at is None else channel_store.listed_point(tx, state, at))
    stack = next(iter(delta_stacks(tx, channel)), None)
    size = sum(block.statistics.bytes for block in snapshot.blocks)
    base = snapshot.base
    return SnapshotPlan(
        at=snapshot.at,
        base=base,
        deltas=snapshot.deltas,
        rows=RowCount.of(snapshot.blocks),
        block_rows=sum(block.statistics.rows for block in snapshot.blocks),
        bytes=size,
        buckets_aligned=base is not None and base.buckets > 0,
        ratio=size / base.statistics.bytes if base is not None and base.statistics.bytes else None,
        policy=describe_policy(channel_store.policy(tx, channel)),
        read_cost=None if stack is None else stack.read_cost,
        compaction_cost=None if stack is None else stack.compaction_cost,
    )
