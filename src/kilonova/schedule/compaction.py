"""Selection of channels to compact, and of deltas to merge (Nova, sections 2.4 and 6).

Of upserts, a read of a snapshot costs at most `_LIMIT` copies of its rows, as far as that can be estimated from sizes.
Where it would cost more, the deltas are merged into one that is laid out like the base: reading it costs a fraction of
what as many rows cost as they were published. Once the deltas have `_SHARE` of the size of the base, the channel is
compacted instead. So a base is rewritten at most once for `_SHARE` of it in new rows, a merged delta only once the
deltas after it are a part of it, and in all at most 16 times what was published, where each delta counts as `_FILE`
bytes more, or `_LITTLE` where the base is larger than that: a run takes as long as copying so many bytes. This does
not depend on how often the channel was read, because reads outside of runs are not recorded.

Within the limit, and for other encodings, future reads are unknown, so this is the ski-rental problem: a channel is
compacted once the merge cost of the reads since the newest base equals the cost of compaction. A snapshot's first read
counts without the cost of the join with the base, because the next delta brings that back. Space is bounded too: the
deltas of a keyed or weighted channel may be no larger than its base, because a part of them replaces other rows. A
channel may have another policy (`kilonova.model.compaction_policy`).

Costs are in bytes read or written by a copy of the rows.

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
from kilonova.model.encoding import Append, Upsert

_LIMIT = 1.3
"""Cost of reading a snapshot and writing it, in copies of its rows, at most."""

_JOIN = 0.2
"""Cost of joining a base with any deltas, in copies of the base."""

_CHAIN = 2.5
"""Cost of combining deltas as they were published, and of merging them, in copies of their rows."""

_MERGED = 0.6
"""The same where they are one delta that is laid out like the base."""

_SHARE = 0.1
"""Size of the deltas of a compacted channel, as a share of the base, at least."""

_OPEN = 0.01
"""Cost of opening the files of one more delta of an appended snapshot, in copies of the snapshot."""

_COMPACT_UPSERTS, _COMPACT = 0.65, 1.5
"""Cost of compaction in copies of the snapshot: of upserts, and of others, which Spark merges."""

_LITTLE = 16 << 20
"""Size in bytes that deltas may always have, and up to which all bases cost the same.

With larger bases, any delta that is not laid out like the base costs as much as so many bytes.
"""

_FILE = 128 << 10
"""Size in bytes of rows that cost as much as opening the files of a delta."""

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
        merged: the bytes of those among them that are laid out like the base.
        upserts: whether all of them are upserts, which can be merged into one.
        readings: how many deltas each read of a snapshot has merged since the base was written.
        policy: the channel's policy of automatic compaction.
        crowded: whether enough adjacent deltas are small to merge them.
    """

    channel: str
    appended: bool
    base: int
    count: int
    deltas: int
    merged: int = 0
    upserts: bool = False
    readings: tuple[int, ...]
    policy: Policy = field(default_factory=CostBased)
    crowded: bool = False

    @property
    def read_ratio(self) -> float:
        """Estimated cost of reading its snapshot and writing it, in copies of its rows."""
        if not self.count:
            return 1.0
        return 1 + (_OPEN * self.count if self.appended else _JOIN + self._chain_ratio)

    @property
    def _chain_ratio(self) -> float:
        """Estimated cost of combining the deltas of its snapshot, in copies of its rows."""
        published, files = self.deltas - self.merged, _FILE * self.count
        fixed = _LITTLE if published and self.base > _LITTLE else 0
        return (fixed + _CHAIN * (published + files) + _MERGED * self.merged) / max(self.base, _LITTLE)

    @property
    def read_cost(self) -> float:
        """Merge cost of its readers that a compaction would have spared them, in bytes."""
        if self.appended:
            copies = _OPEN * sum(self.readings)
        else:
            repeated = len(self.readings) - len(set(self.readings))
            shares = sum(min(each, self.count) for each in self.readings) / max(self.count, 1)
            copies = _JOIN * repeated + self._chain_ratio * shares
        return copies * self._copy

    @property
    def compaction_cost(self) -> float:
        """Cost of compacting it, in bytes."""
        return (_COMPACT_UPSERTS if self.upserts else 1.0 if self.appended else _COMPACT) * self._copy

    @property
    def _copy(self) -> int:
        """Bytes that a copy of the snapshot reads and writes."""
        return 2 * (self.base + self.deltas)

    @property
    def is_slow(self) -> bool:
        """Return whether a read of its snapshot costs more than it may."""
        return isinstance(self.policy, CostBased) and self.upserts and self.read_ratio > _LIMIT

    @property
    def score(self) -> float:
        """Score of compacting it; from 1 on it is compacted."""
        match self.policy:
            case CostBased(max_amplification=most):
                if not self.deltas:
                    return 0.0
                paid = self.read_cost / self.compaction_cost
                if self.appended:
                    return paid
                size = self.deltas + _FILE * self.count
                share = size / (_SHARE * max(self.base, _LITTLE)) if self.is_slow else 0.0
                return max(paid, share, self.deltas / max(most * self.base, _LITTLE))
            case MaxDeltas(deltas=deltas):
                return self.count / deltas
            case Manual():
                return 0.0
            case _:
                assert_never(self.policy)

    @property
    def merges(self) -> bool:
        """Return whether some of its deltas are to be merged, unless it is compacted."""
        if self.appended:
            return self.crowded and isinstance(self.policy, CostBased)
        return self.is_slow and self.merged < self.deltas


def select_for_compaction(stacks: Iterable[DeltaStack]) -> tuple[str, ...]:
    """Return the channels to compact, those with the highest score first.

    >>> rarely = DeltaStack(channel="a", appended=False, base=100, count=9, deltas=10, readings=(1, 2, 3))
    >>> often = DeltaStack(channel="b", appended=False, base=100, count=4, deltas=10, readings=(4,) * 8)
    >>> select_for_compaction([rarely, often])
    ('b',)
    """
    ranked = sorted(stacks, key=lambda each: (-each.score, each.channel))
    return tuple(each.channel for each in ranked if each.score >= 1)


def channels_to_merge(stacks: Iterable[DeltaStack]) -> tuple[str, ...]:
    """Return the channels some of whose deltas are to be merged: those that are not to be compacted as a whole."""
    return tuple(sorted(each.channel for each in stacks if each.merges and each.score < 1))


def mergeable_runs(
    deltas: Sequence[Block], cursors: Collection[int], *, few: bool, buckets: int = 0
) -> tuple[tuple[Block, ...], ...]:
    """Return chains of adjacent deltas, each to be merged into one delta.

    Args:
        deltas: deltas that lead from one point to the next, in order.
        cursors: the points up to which readers have read: no chain of appends crosses one, as its rows would be stored
            twice; of upserts, all are merged, because readers of snapshots would have to merge several chains.
        few: whether two appends, however small, are enough for a chain, instead of the usual minimum.
        buckets: number of buckets of the base that upserts are merged with: one that has others is a chain too.

    Returns:
        The chains, in order; no more than one run should merge.
    """
    stops = set(cursors)
    parts: list[list[Block]] = []
    before: Block | None = None
    for delta in deltas:
        appended = isinstance(delta.encoding, Append)
        if before is None or (appended and delta.start in stops) or not _alike(before, delta):
            parts.append([])
        parts[-1].append(delta)
        before = delta
    found: list[tuple[Block, ...]] = []
    for part in parts:
        for each in _ranges(part, few=few, buckets=buckets):
            if found and sum(map(len, found)) + len(each) > _AT_ONCE:
                return tuple(found)
            found.append(tuple(part[place] for place in each))
    return tuple(found)


def _ranges(part: Sequence[Block], *, few: bool, buckets: int) -> list[range]:
    """Return the ranges of adjacent deltas to merge, given deltas each two of which can be merged."""
    if isinstance(part[0].encoding, Append):
        return small(tuple(block.statistics.bytes for block in part), few=few)
    if not isinstance(part[0].encoding, Upsert) or part[0].external is not None:
        return []
    return [range(min(len(part), _AT_ONCE))] if len(part) > 1 or part[0].buckets != buckets else []


def _alike(one: Block, other: Block) -> bool:
    """Return whether two adjacent deltas can be merged, and neither is external."""
    return (
        isinstance(one.encoding, Append | Upsert)
        and one.encoding == other.encoding
        and (one.schema, one.columns) == (other.schema, other.columns)
        and one.external is None
        and other.external is None
    )


def small(sizes: Sequence[float], *, few: bool = False) -> list[range]:
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
