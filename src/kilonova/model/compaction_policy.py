"""Policies for automatic compaction of channels (Nova, section 6); see `kilonova.schedule.compaction`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from kilonova.errors import DeclarationError


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBased:
    """Policy to compact once accumulated merge cost equals compaction cost, or deltas take too much space.

    Attributes:
        max_amplification: maximum size of the deltas, as a multiple of the size of the base.
    """

    max_amplification: float = 1.0

    def __post_init__(self) -> None:
        if not self.max_amplification > 0:
            raise DeclarationError("deltas must be let take some space", hint="Give a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxDeltas:
    """Policy to compact once there are this many deltas after the newest base, however seldom they are read."""

    deltas: int

    def __post_init__(self) -> None:
        if self.deltas < 1:
            raise DeclarationError(
                "a channel is compacted after one delta at the earliest", hint="Give a number from 1"
            )


@dataclass(frozen=True, slots=True)
class Manual:
    """Policy to compact only on request."""


Policy = CostBased | MaxDeltas | Manual


def describe_policy(policy: Policy) -> str:
    """Return a policy as text.

    >>> describe_policy(CostBased()), describe_policy(MaxDeltas(deltas=9)), describe_policy(Manual())
    ('when it is worth it', 'after 9 deltas', 'only on request')
    """
    match policy:
        case CostBased(max_amplification=max_amplification):
            return (
                "when it is worth it"
                if max_amplification == 1
                else f"when it is worth it; deltas may take {max_amplification:g} bases"
            )
        case MaxDeltas(deltas=deltas):
            return "after each delta" if deltas == 1 else f"after {deltas} deltas"
        case Manual():
            return "only on request"
        case _:
            assert_never(policy)
