"""Which channels are worth compacting (Nova, sections 2.4 and 6).

Compaction is bought once; without it every reading pays for merging on the fly. What is to come is not known, so it is
bought when the readings since the newest base have paid as much as it costs, as one who rents until that has cost as
much as buying: no more than a few times is spent of what somebody would have spent who had known. Space is bounded too:
what deltas of a keyed or weighted channel take may be no more than its base, because a part of it replaces other rows.
A channel may have another policy (`kilonova.model.policy`).

All of it is reckoned in bytes read or written, which is what it is made of.

Deltas of a channel that only grows may be read by cursor alone, so that nobody pays for merging them and no base
replaces them. Small neighbours are put together there, so that their number stays bounded: always so many that the
rows of each are written anew a few times in all.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from kilonova.model.block import Block
from kilonova.model.encoding import Append
from kilonova.model.policy import AfterDeltas, Never, Policy, Weigh

_MERGE = 0.2
"""What merging n deltas adds to reading a snapshot is this share of it, times the root of n (measured: 10 and 50)."""

_OPEN = 0.01
"""What opening the files of a further delta adds to reading a snapshot that is only put together."""

_BUY = 2.0
"""What compacting costs: a reading and a writing of the snapshot."""

_LITTLE = 16 << 20
"""Up to how many bytes deltas may take in any case."""

_NEIGHBOURS = 16
"""How many neighbouring deltas are worth putting together."""

_TOGETHER = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
"""Up to how many bytes deltas have that are put together: small ones become larger ones, and those larger ones yet."""

_AT_ONCE = 1000
"""How many deltas one run puts together at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The newest base of a channel and what came after it.

    Attributes:
        channel: the channel.
        appended: whether its deltas only add rows, so that there is nothing to merge.
        base: the bytes of the base; 0 if there is none.
        count: how many deltas are after it.
        deltas: their bytes.
        readings: how many deltas each reading of a snapshot has merged since the base is there.
        policy: when the channel is compacted by itself.
        crowded: whether so many neighbouring deltas are small that they are worth putting together.
    """

    channel: str
    appended: bool
    base: int
    count: int
    deltas: int
    readings: tuple[int, ...]
    policy: Policy = field(default_factory=Weigh)
    crowded: bool = False

    @property
    def paid(self) -> float:
        """What its readers have paid for merging, in bytes."""
        share = sum(_OPEN * count if self.appended else _MERGE * math.sqrt(count) for count in self.readings)
        return share * (self.base + self.deltas)

    @property
    def price(self) -> float:
        """What compacting it costs, in bytes."""
        return _BUY * (self.base + self.deltas)

    @property
    def worth(self) -> float:
        """How far it is from being compacted; from 1 on it is to be done."""
        match self.policy:
            case Weigh(waste=waste):
                if not self.deltas:
                    return 0.0
                wasted = 0.0 if self.appended else self.deltas / max(waste * self.base, _LITTLE)
                return max(self.paid / self.price, wasted)
            case AfterDeltas(deltas=deltas):
                return self.count / deltas
            case Never():
                return 0.0
            case _:
                assert_never(self.policy)


def worthwhile(stretches: Iterable[Stretch]) -> tuple[str, ...]:
    """The channels that are to be compacted, the most worthwhile first.

    >>> rarely = Stretch(channel="a", appended=False, base=100, count=9, deltas=10, readings=(1, 2, 3))
    >>> often = Stretch(channel="b", appended=False, base=100, count=4, deltas=10, readings=(4, 4, 4, 4, 4, 4))
    >>> worthwhile([rarely, often])
    ('b',)
    """
    ranked = sorted(stretches, key=lambda each: (-each.worth, each.channel))
    return tuple(each.channel for each in ranked if each.worth >= 1)


def crowded(stretches: Iterable[Stretch]) -> tuple[str, ...]:
    """The channels of which small deltas are to be put together: those that are not worth compacting whole."""
    weighed = (each for each in stretches if isinstance(each.policy, Weigh))
    return tuple(sorted(each.channel for each in weighed if each.crowded and each.worth < 1))


def mergeable(deltas: Sequence[Block], cursors: Collection[int], *, few: bool) -> tuple[tuple[Block, ...], ...]:
    """Chains of neighbouring deltas that are to become one delta each.

    Args:
        deltas: deltas that lead from one point to the next, in order.
        cursors: up to which points readers have read: nothing is put together across one, as it would be kept twice.
        few: two are enough for a chain, however small, and not only as many as are worth it.

    Returns:
        The chains, in order; no more than one run should put together.
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
    """Whether two neighbours can be put together, and only they say what is in them."""
    return (
        isinstance(one.encoding, Append)
        and one.encoding == other.encoding
        and (one.schema, one.columns) == (other.schema, other.columns)
        and one.external is None
        and other.external is None
    )


def small(sizes: Sequence[int], *, few: bool = False) -> list[range]:
    """Which neighbours are so small, and so many, that they are worth putting together.

    What becomes of them is so large that it is not put together again with others as small as they are.

    Args:
        sizes: their bytes, in order.
        few: two are enough, however small.

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
