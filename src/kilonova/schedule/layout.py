"""How blocks are laid out and merged, decided from their sizes.

Bases of a keyed channel that are large enough are laid out in buckets by hash of the key, one sorted file
each, so that deltas merge with them without shuffling or sorting the base. The figures behind the defaults
are in `docs/design/spark.md`.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from kilonova.model.block import Block, Delta
from kilonova.model.encoding import Append
from kilonova.model.reading import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Where the physical strategies change over, in bytes of Parquet.

    Attributes:
        bucketed: bases of at least this size are laid out in buckets.
        bucket: how much one bucket should hold in a large base; up to 64 buckets hold half of it, for
            more workers have something to do then.
        broadcast: deltas up to this size are sent to every worker rather than shuffled.
        single: at most this much is merged by one worker, which saves shuffling it, and written as one file.
        compared: snapshots up to this size are compared with a whole upsert, to see what it changes; of
            larger ones a few rows at first, and the others only if those stay as they were.
    """

    bucketed: int = 32 << 20
    bucket: int = 64 << 20
    broadcast: int = 8 << 20
    single: int = 8 << 20
    compared: int = 16 << 20


def buckets_for(expected: int, base: Block | None, sizes: Sizes) -> int:
    """Into how many buckets a base of an expected size goes; 0 for none.

    Args:
        expected: its size.
        base: an older base; its number of buckets is kept while it is not far off, for then nothing moves.
        sizes: where that changes over.

    >>> buckets_for(200 << 20, None, Sizes()), buckets_for(20 << 30, None, Sizes()), buckets_for(1 << 20, None, Sizes())
    (8, 512, 0)
    """
    if expected < sizes.bucketed:
        return 0
    enough = max(expected / sizes.bucket, min(64, 2 * expected / sizes.bucket))
    buckets = min(4096, 1 << max(0, math.ceil(math.log2(enough))))
    return base.buckets if base is not None and buckets <= 2 * base.buckets <= 4 * buckets else buckets


class Strategy(enum.Enum):
    """How a delta meets the rows that it changes.

    TOGETHER has one worker join both; ALIGNED joins the base bucket by bucket, shuffling only the delta;
    BROADCAST sends the delta to the base's rows; SHUFFLED moves both.
    """

    TOGETHER = "together"
    ALIGNED = "aligned"
    BROADCAST = "broadcast"
    SHUFFLED = "shuffled"


def strategy(base: Block | None, deltas: tuple[Block, ...], sizes: Sizes, *, copied: bool = False) -> Strategy:
    """How to merge deltas with a base.

    Args:
        base: the base; None for no rows, or rows of another making.
        deltas: what comes after it.
        sizes: where that changes over.
        copied: whether all rows are wanted with all columns, in the base's layout; else whoever reads them may leave
            out most, which Spark does soonest where rows need not meet theirs.

    >>> strategy(None, (), Sizes())
    <Strategy.SHUFFLED: 'shuffled'>
    """
    if base is None:
        return Strategy.SHUFFLED
    small = sum(block.statistics.bytes for block in deltas) <= sizes.broadcast
    if base.buckets and (copied or not small):
        return Strategy.ALIGNED
    return Strategy.BROADCAST if small else Strategy.SHUFFLED


def together(blocks: tuple[Block, ...], sizes: Sizes) -> bool:
    """Whether blocks are so small that one worker merges them soonest; nothing is gained where rows only add up.

    >>> together((), Sizes())
    False
    """
    merged = any(isinstance(block.kind, Delta) and not isinstance(block.encoding, Append) for block in blocks)
    small = sum(block.statistics.bytes for block in blocks) <= sizes.single
    return merged and small and not any(block.buckets for block in blocks)


def compares_whole(old: Snapshot, sizes: Sizes) -> bool:
    """Whether a delta is compared at once with all that it replaces."""
    return sum(block.statistics.bytes for block in old.blocks) <= sizes.compared
