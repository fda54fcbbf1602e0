"""How blocks are laid out and merged, decided from their sizes.

Bases of a keyed channel that are large enough are laid out in buckets by hash of the key, one sorted file
each, so that deltas merge with them without shuffling or sorting the base. The figures behind the defaults
are in `docs/design/spark.md`.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from kilonova.model.block import Block
from kilonova.model.reading import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Where the physical strategies change over, in bytes of Parquet.

    Attributes:
        bucketed: bases of at least this size are laid out in buckets.
        bucket: how much one bucket should hold.
        broadcast: deltas up to this size are sent to every worker rather than shuffled.
        single: blocks made of at most this much input are written as one file.
        compared: snapshots up to this size are compared with an upsert, to see whether it changes anything;
            larger ones only if the delta is at least a twentieth of their size.
    """

    bucketed: int = 32 << 20
    bucket: int = 64 << 20
    broadcast: int = 8 << 20
    single: int = 8 << 20
    compared: int = 128 << 20


def buckets_for(expected: int, keyed: bool, sizes: Sizes) -> int:
    """Into how many buckets a base of an expected size goes; 0 for none.

    >>> buckets_for(200 << 20, True, Sizes()), buckets_for(1 << 20, True, Sizes())
    (4, 0)
    """
    if not keyed or expected < sizes.bucketed:
        return 0
    return min(4096, 1 << max(0, math.ceil(math.log2(max(1, expected) / sizes.bucket))))


class Strategy(enum.Enum):
    """How a delta meets the rows that it changes.

    ALIGNED joins the base bucket by bucket, shuffling only the delta; BROADCAST sends the delta to the base's
    rows; SHUFFLED moves both.
    """

    ALIGNED = "aligned"
    BROADCAST = "broadcast"
    SHUFFLED = "shuffled"


def strategy(base: Block | None, deltas: tuple[Block, ...], sizes: Sizes) -> Strategy:
    """How to merge deltas with a base.

    >>> strategy(None, (), Sizes())
    <Strategy.SHUFFLED: 'shuffled'>
    """
    if base is None:
        return Strategy.SHUFFLED
    if base.buckets:
        return Strategy.ALIGNED
    size = sum(block.statistics.bytes for block in deltas)
    return Strategy.BROADCAST if size <= sizes.broadcast else Strategy.SHUFFLED


def worth_comparing(old: Snapshot, delta_bytes: int, sizes: Sizes) -> bool:
    """Whether to look if a delta changes anything, rather than to publish it as it is."""
    size = sum(block.statistics.bytes for block in old.blocks)
    return size <= max(sizes.compared, 20 * delta_bytes)
