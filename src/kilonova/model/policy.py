"""A policy says when a channel is compacted by itself (Nova, section 6); see `kilonova.schedule.compacting`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from kilonova.errors import DeclarationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Weigh:
    """When it is worth it: readers have paid for merging what compacting costs, or deltas waste space.

    Attributes:
        waste: how many times the bytes of the base those of deltas may take.
    """

    waste: float = 1.0

    def __post_init__(self) -> None:
        if not self.waste > 0:
            raise DeclarationError("deltas must be let take some space", hint="Give a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterDeltas:
    """As soon as there are so many deltas after the newest base, however seldom they are read."""

    deltas: int

    def __post_init__(self) -> None:
        if self.deltas < 1:
            raise DeclarationError(
                "a channel is compacted after one delta at the earliest", hint="Give a number from 1"
            )


@dataclass(frozen=True, slots=True)
class Never:
    """Only when somebody asks for it."""


Policy = Weigh | AfterDeltas | Never


def described(policy: Policy) -> str:
    """A policy in words.

    >>> described(Weigh()), described(AfterDeltas(deltas=9)), described(Never())
    ('when it is worth it', 'after 9 deltas', 'never by itself')
    """
    match policy:
        case Weigh(waste=waste):
            return "when it is worth it" if waste == 1 else f"when it is worth it; deltas may take {waste:g} bases"
        case AfterDeltas(deltas=deltas):
            return "after each delta" if deltas == 1 else f"after {deltas} deltas"
        case Never():
            return "never by itself"
        case _:
            assert_never(policy)
