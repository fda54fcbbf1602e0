"""Policies for automatic compaction of channels (Nova, section 6); see `kilonova.schedule.compaction`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from kilonova.errors import DeclarationError


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBased:
    """Policy to compact once accumulated merge cost equals compaction cost, or deltas take too much space or time.

    Attributes:
        max_amplification: maximum size of the deltas, as a multiple of the size of the base.
    """

    max_amplification: float = 1.0

    def __post_init__(self) -> None:
        if not self.max_amplification > 0:
            raise DeclarationError("the maximum space amplification must be positive", hint="Give a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxDeltas:
    """Policy to compact once there are this many deltas after the newest base, however seldom they are read."""

    deltas: int

    def __post_init__(self) -> None:
        if self.deltas < 1:
            raise DeclarationError("the number of deltas must be positive", hint="Give a number from 1")


@dataclass(frozen=True, slots=True)
class Manual:
    """Policy to compact only on request."""


Policy = CostBased | MaxDeltas | Manual


def describe_policy(policy: Policy) -> str:
    """Return a policy as text.

    >>> describe_policy(CostBased()), describe_policy(MaxDeltas(deltas=9)), describe_policy(Manual())
    ('by cost', 'after 9 deltas', 'only on request')
    """
    match policy:
        case CostBased(max_amplification=max_amplification):
            return (
                "by cost"
                if max_amplification == 1
                else f"by cost, with deltas of up to {max_amplification:g} times the base"
            )
        case MaxDeltas(deltas=deltas):
            return "after each delta" if deltas == 1 else f"after {deltas} deltas"
        case Manual():
            return "only on request"
        case _:
            assert_never(policy)
