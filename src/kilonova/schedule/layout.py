"""Choice of block layout and merge strategy by block sizes.

Bases of a keyed channel that are large enough are laid out in buckets by hash of the key, one sorted file
each, so that deltas merge with them without shuffling or sorting the base. The measurements behind the defaults
are in `docs/design/spark.md`.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from kilonova.model.block import Block, Delta
from kilonova.model.encoding import Append
from kilonova.model.read_plan import SnapshotRead

_TASK_SIZE = 4 << 20
"""Size of Parquet that one task reads and writes where blocks are small, as Spark splits its input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutThresholds:
    """Size thresholds of the physical strategies, in bytes of Parquet.

    Attributes:
        bucketing_min: bases of at least this size are laid out in buckets.
        bucket_size: target size of a bucket in a large base; up to 64 buckets have half of it, to use more workers.
        broadcast_max: deltas up to this size are broadcast rather than shuffled.
        single_task_max: up to this size, blocks are merged in one task, which avoids a shuffle, and written as one
            file.
        full_compare_max: snapshots up to this size are compared with an upsert as a whole, to find what it changes; of
            larger ones a few rows are compared first, and the others only if those are unchanged.
        local_check_max: blocks up to this expected size have their keys checked in this process after they are written,
            larger ones by the Spark job that writes them; an upsert that is compared as a whole is so in this process
            up to this size.
        lookup_min: snapshots of at least this size are not read whole by a change that needs few of their rows, which
            are looked up by key in this process; where Spark runs on other machines, only up to `local_check_max`.
    """

    bucketing_min: int = 32 << 20
    bucket_size: int = 64 << 20
    broadcast_max: int = 8 << 20
    single_task_max: int = 8 << 20
    full_compare_max: int = 16 << 20
    local_check_max: int = 256 << 20
    lookup_min: int = 1 << 20


def buckets_for(expected: int, base: Block | None, sizes: LayoutThresholds) -> int:
    """Return the number of buckets for a base of an expected size; 0 for none.

    Args:
        expected: its size.
        base: an older base; its number of buckets is kept if it is close enough, to avoid moving rows.
        sizes: the thresholds.

    >>> [buckets_for(size, None, LayoutThresholds()) for size in (200 << 20, 20 << 30, 1 << 20)]
    [8, 512, 0]
    """
    if expected < sizes.bucketing_min:
        return 0
    enough = max(expected / sizes.bucket_size, min(64, 2 * expected / sizes.bucket_size))
    buckets = min(4096, 1 << max(0, math.ceil(math.log2(enough))))
    return base.buckets if base is not None and buckets <= 2 * base.buckets <= 4 * buckets else buckets


def tasks_for(expected: int | None, sizes: LayoutThresholds, *, checked_later: bool = False) -> int | None:
    """Return the number of tasks that write a block without a shuffle; None if the rows of a key must be in one task.

    Args:
        expected: the block's expected size; None if unknown.
        sizes: the thresholds.
        checked_later: whether the block's keys are checked once it is written.

    >>> [tasks_for(size << 20, LayoutThresholds(), checked_later=True) for size in (1, 14, 200)]
    [1, 4, 50]
    >>> tasks_for(14 << 20, LayoutThresholds()) is None
    True
    """
    if expected is None:
        return None
    if expected <= sizes.single_task_max:
        return 1
    return math.ceil(expected / _TASK_SIZE) if checked_later else None


class Strategy(enum.Enum):
    """Strategy of joining a delta with the rows that it changes.

    TOGETHER joins both in one task; ALIGNED joins the base bucket by bucket, shuffling only the delta;
    BROADCAST broadcasts the delta to the base's rows; SHUFFLED shuffles both.
    """

    TOGETHER = "together"
    ALIGNED = "aligned"
    BROADCAST = "broadcast"
    SHUFFLED = "shuffled"


def strategy(
    base: Block | None, deltas: tuple[Block, ...], sizes: LayoutThresholds, *, copied: bool = False
) -> Strategy:
    """Return the strategy of merging deltas with a base.

    Args:
        base: the base; None for no rows, or the result of an earlier merge.
        deltas: the deltas after it.
        sizes: the thresholds.
        copied: whether all rows are needed with all columns, in the base's layout; else the reader may drop most of
            them, which Spark does earliest where rows need no join.

    >>> strategy(None, (), LayoutThresholds())
    <Strategy.SHUFFLED: 'shuffled'>
    """
    if base is None:
        return Strategy.SHUFFLED
    small = sum(block.statistics.bytes for block in deltas) <= sizes.broadcast_max
    if base.buckets and (copied or not small):
        return Strategy.ALIGNED
    return Strategy.BROADCAST if small else Strategy.SHUFFLED


def together(blocks: tuple[Block, ...], sizes: LayoutThresholds) -> bool:
    """Return whether blocks are so small that one task merges them fastest; never for appended rows.

    >>> together((), LayoutThresholds())
    False
    """
    merged = any(isinstance(block.kind, Delta) and not isinstance(block.encoding, Append) for block in blocks)
    small = sum(block.statistics.bytes for block in blocks) <= sizes.single_task_max
    return merged and small and not any(block.buckets for block in blocks)


def compares_whole(old: SnapshotRead, sizes: LayoutThresholds) -> bool:
    """Return whether a delta is compared at once with all rows that it replaces."""
    return sum(block.statistics.bytes for block in old.blocks) <= sizes.full_compare_max
