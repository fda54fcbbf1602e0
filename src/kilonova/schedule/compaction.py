"""Selection of channels to compact (Nova, sections 2.4 and 6).

Compaction costs once; without it every read pays for merging on the fly. Future reads are unknown, so this is the
ski-rental problem: a channel is compacted once the merge cost of the reads since the newest base equals the cost of
compaction, which is within a small constant factor of the offline optimum. Space is bounded too: the deltas of a keyed
or weighted channel may be no larger than its base, because a part of them replaces other rows. A channel may have
another policy (`kilonova.model.compaction_policy`).

All costs are in bytes read or written.

Deltas of an append-only channel may be read by cursor only, so that no read pays for merging them and no base
replaces them. Small adjacent deltas are merged there, to bound their number: always so many at once that each row is
rewritten only a few times in all.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from kilonova.model.block import Block
from kilonova.model.compaction_policy import CostBased, Manual, MaxDeltas, Policy
from kilonova.model.encoding import Append

_MERGE = 0.2
"""Cost of merging n deltas, as a share of reading the snapshot: this times the root of n (measured: 10 and 50)."""

_OPEN = 0.01
"""Cost of opening the files of one more delta of an appended snapshot, as a share of reading the snapshot."""

_BUY = 2.0
"""Cost of compaction, as a multiple of the snapshot: reading it and writing it."""

_LITTLE = 16 << 20
"""Size in bytes that deltas may always have."""

_NEIGHBOURS = 16
"""Minimum number of adjacent deltas to merge."""

_TOGETHER = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
"""Maximum sizes in bytes of merged deltas, by level: each level merges deltas of the level before."""

_AT_ONCE = 1000
"""Maximum number of deltas that one run merges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaStack:
    """Newest base of a channel and the deltas after it.

    Attributes:
        channel: the channel.
        appended: whether its deltas only add rows, so that there is nothing to merge.
        base: the bytes of the base; 0 if there is none.
        count: how many deltas are after it.
        deltas: their bytes.
        readings: how many deltas each read of a snapshot has merged since the base was written.
        policy: the channel's policy of automatic compaction.
        crowded: whether enough adjacent deltas are small to merge them.
    """

    channel: str
    appended: bool
    base: int
    count: int
    deltas: int
    readings: tuple[int, ...]
    policy: Policy = field(default_factory=CostBased)
    crowded: bool = False

    @property
    def read_cost(self) -> float:
        """Merge cost that its readers have paid, in bytes."""
        share = sum(_OPEN * count if self.appended else _MERGE * math.sqrt(count) for count in self.readings)
        return share * (self.base + self.deltas)

    @property
    def compaction_cost(self) -> float:
        """Cost of compacting it, in bytes."""
        return _BUY * (self.base + self.deltas)

    @property
    def score(self) -> float:
        """Score of compacting it; from 1 on it is compacted."""
        match self.policy:
            case CostBased(max_amplification=most):
                if not self.deltas:
                    return 0.0
                wasted = 0.0 if self.appended else self.deltas / max(most * self.base, _LITTLE)
                return max(self.read_cost / self.compaction_cost, wasted)
            case MaxDeltas(deltas=deltas):
                return self.count / deltas
            case Manual():
                return 0.0
            case _:
                assert_never(self.policy)


def select_for_compaction(stacks: Iterable[DeltaStack]) -> tuple[str, ...]:
    """Return the channels to compact, those with the highest score first.

    >>> rarely = DeltaStack(channel="a", appended=False, base=100, count=9, deltas=10, readings=(1, 2, 3))
    >>> often = DeltaStack(channel="b", appended=False, base=100, count=4, deltas=10, readings=(4, 4, 4, 4, 4, 4))
    >>> select_for_compaction([rarely, often])
    ('b',)
    """
    ranked = sorted(stacks, key=lambda each: (-each.score, each.channel))
    return tuple(each.channel for each in ranked if each.score >= 1)


def channels_to_merge(stacks: Iterable[DeltaStack]) -> tuple[str, ...]:
    """Return the channels whose small deltas are to be merged: those that are not to be compacted as a whole."""
    weighed = (each for each in stacks if isinstance(each.policy, CostBased))
    return tuple(sorted(each.channel for each in weighed if each.crowded and each.score < 1))


def mergeable_runs(deltas: Sequence[Block], cursors: Collection[int], *, few: bool) -> tuple[tuple[Block, ...], ...]:
    """Return chains of adjacent deltas, each to be merged into one delta.

    Args:
        deltas: deltas that lead from one point to the next, in order.
        cursors: the points up to which readers have read: no chain crosses one, as its rows would be stored twice.
        few: whether two deltas, however small, are enough for a chain, instead of the usual minimum.

    Returns:
        The chains, in order; no more than one run should merge.
    """
    stops = set(cursors)
    parts: list[list[Block]] = []
    before: Block | None = None
    for delta in deltas:
        if before is None or delta.start in stops or not _alike(before, delta):
            parts.append([])
        parts[-1].append(delta)
        before = delta
    found: list[tuple[Block, ...]] = []
    for part in parts:
        for each in small(tuple(block.statistics.bytes for block in part), few=few):
            if found and sum(map(len, found)) + len(each) > _AT_ONCE:
                return tuple(found)
            found.append(tuple(part[place] for place in each))
    return tuple(found)


def _alike(one: Block, other: Block) -> bool:
    """Return whether two adjacent deltas can be merged, and neither is external."""
    return (
        isinstance(one.encoding, Append)
        and one.encoding == other.encoding
        and (one.schema, one.columns) == (other.schema, other.columns)
        and one.external is None
        and other.external is None
    )


def small(sizes: Sequence[int], *, few: bool = False) -> list[range]:
    """Return the ranges of adjacent deltas that are small and numerous enough to merge.

    The merged delta is so large that it is not merged again with others as small as these.

    Args:
        sizes: their bytes, in order.
        few: whether two are enough, however small.

    >>> small([1000] * 20), small([1000] * 9), small([10, 10, 1 << 30, 10, 10], few=True)
    ([range(0, 20)], [], [range(0, 2), range(3, 5)])
    """
    least = 2 if few else _NEIGHBOURS
    for limit in _TOGETHER[-1:] if few else _TOGETHER:
        largest = limit // least
        found: list[range] = []
        begin = total = 0
        for place, size in enumerate((*sizes, math.inf)):
            if size > largest or total + size > limit or place - begin == _AT_ONCE:
                if place - begin >= least and (few or total > largest):
                    found.append(range(begin, place))
                begin, total = place, 0
            if size > largest:
                begin = place + 1
            else:
                total += int(size)
        if found:
            return found
    return []
