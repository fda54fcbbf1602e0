"""Which channels are worth compacting (Nova, sections 2.4 and 6).

Compaction is bought once; without it every reading pays for merging on the fly. What is to come is not known, so it is
bought when the readings since the newest base have paid as much as it costs, as one who rents until that has cost as
much as buying: no more than a few times is spent of what somebody would have spent who had known. Space is bounded too:
what deltas of a keyed or weighted channel take may be no more than its base, because a part of it replaces other rows.
A channel may have another policy (`kilonova.model.policy`).

All of it is reckoned in bytes read or written, which is what it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from kilonova.model.policy import AfterDeltas, Never, Policy, Weigh

_MERGE = 0.2
"""What merging n deltas adds to reading a snapshot is this share of it, times the root of n (measured: 10 and 50)."""

_OPEN = 0.01
"""What opening the files of a further delta adds to reading a snapshot that is only put together."""

_BUY = 2.0
"""What compacting costs: a reading and a writing of the snapshot."""

_LITTLE = 16 << 20
"""Up to how many bytes deltas may take in any case."""


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
    """

    channel: str
    appended: bool
    base: int
    count: int
    deltas: int
    readings: tuple[int, ...]
    policy: Policy = field(default_factory=Weigh)

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
