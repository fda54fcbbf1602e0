"""Sets of the values that a term of a condition can have: ranges of an ordered domain, and null.

A range lies between two cuts. A cut is the bottom, the top, or just before or just after a value; so open and closed
bounds are the same kind of thing, and intersection, union and complement are exact. The values of a domain are Python
values with the order that Spark gives to those of the type. Where the values have a known distance (integers, dates),
a range with none of them is empty; where they are taken to be dense but are not (strings), a set may be taken to have a
value that it does not have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Cut = tuple[Any, ...]
"""BOTTOM, TOP, or (0, value, 0) before a value and (0, value, 1) after it; cuts are ordered as tuples."""

BOTTOM: Cut = (-1,)
TOP: Cut = (1,)


def before(value: Any) -> Cut:
    """Return the cut just before a value."""
    return (0, value, 0)


def after(value: Any) -> Cut:
    """Return the cut just after a value."""
    return (0, value, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Ordered set of possible values.

    Attributes:
        name: its name; domains of one name are equal.
        low: the cut before the least value.
        high: the cut after the greatest value.
        step: distance of neighbouring values, which are its multiples; None if there is none.
    """

    name: str
    low: Cut = BOTTOM
    high: Cut = TOP
    step: Fraction | None = None

    def is_empty(self, low: Cut, high: Cut) -> bool:
        """Return whether no value lies between two cuts."""
        if low >= high:
            return True
        return self.step is not None and low != BOTTOM and high != TOP and self._first(low, self.step) > high

    def values(self, low: Cut, high: Cut, most: int) -> tuple[Any, ...]:
        """Return the values between two cuts; none if there are infinitely many, or more than `most`."""
        if len(low) == len(high) == 3 and low[1] == high[1]:
            return (low[1],)
        if self.step is None or low == BOTTOM or high == TOP:
            return ()
        found: list[Any] = []
        while (end := self._first(low, self.step)) <= high:
            if len(found) == most:
                return ()
            low = end
            found.append(end[1])
        return tuple(found)

    def _first(self, low: Cut, step: Fraction) -> Cut:
        """Return the cut after the least value above a cut."""
        _, value, side = low
        count = value / step
        return after((math.floor(count) + 1 if side else math.ceil(count)) * step)


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Subset of a domain, with null or without; create it with `ranges` or `points`.

    Attributes:
        domain: the domain.
        pairs: its ranges as pairs of cuts, in order, none empty and no two of them adjacent.
        null: whether it contains null.
    """

    domain: Domain
    pairs: tuple[tuple[Cut, Cut], ...]
    null: bool = False

    @property
    def empty(self) -> bool:
        """Return whether it contains nothing, not even null."""
        return not self.pairs and not self.null

    def __and__(self, other: ValueSet) -> ValueSet:
        found: list[tuple[Cut, Cut]] = []
        one, more = 0, 0
        while one < len(self.pairs) and more < len(other.pairs):
            (low, high), (first, last) = self.pairs[one], other.pairs[more]
            start, end = max(low, first), min(high, last)
            if not self.domain.is_empty(start, end):
                found.append((start, end))
            if high <= last:
                one += 1
            else:
                more += 1
        return ValueSet(self.domain, tuple(found), self.null and other.null)

    def __or__(self, other: ValueSet) -> ValueSet:
        return ranges(self.domain, *self.pairs, *other.pairs, null=self.null or other.null)

    def __invert__(self) -> ValueSet:
        cuts = [self.domain.low, *(cut for pair in self.pairs for cut in pair), self.domain.high]
        return ranges(self.domain, *zip(cuts[::2], cuts[1::2], strict=True), null=not self.null)

    def __le__(self, other: ValueSet) -> bool:
        return (self & ~other).empty


def ranges(domain: Domain, *pairs: tuple[Cut, Cut], null: bool = False) -> ValueSet:
    """Return the set of the values between pairs of cuts.

    >>> whole = Domain(name="int", step=Fraction(1))
    >>> ranges(whole, (after(5), before(6))).empty
    True
    >>> ranges(whole, (BOTTOM, before(6))) <= ranges(whole, (BOTTOM, after(5)))
    True
    """
    found: list[tuple[Cut, Cut]] = []
    for first, last in sorted(pairs):
        low, high = max(first, domain.low), min(last, domain.high)
        if domain.is_empty(low, high):
            continue
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return ValueSet(domain, tuple(found), null)


def points(domain: Domain, *values: Any, null: bool = False) -> ValueSet:
    """Return the set of some values."""
    return ranges(domain, *((before(value), after(value)) for value in values), null=null)
