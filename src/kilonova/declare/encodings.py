"""Declaration of encodings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IncrementOf:
    """Declared encoding `increment`, before its key is known."""

    measures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CustomOf:
    """Declared encoding `custom`, before its key is known."""

    functions: object
    delta: str | None = None


Encodes = str | IncrementOf | CustomOf | None
"""Encoding: its name, `increment(…)`, `custom(…)`, or None for the default."""


def increment(*measures: str) -> IncrementOf:
    """Declare the encoding whose deltas hold amounts to add to columns, per key.

    Args:
        measures: the columns.
    """
    return IncrementOf(measures)


def custom(functions: object, *, delta: str | None = None) -> CustomOf:
    """Declare an encoding whose merge, chain and diff functions are given by an object.

    Args:
        functions: has `merge(base, delta)`, `chain(first, second)` and optionally `diff(old, new)`, each on
            lists of row dictionaries of one key. A merge with the parameters `(base, *deltas)` and a chain with
            `(*deltas)` receive several deltas at once, in order.
        delta: the columns of a delta, including the key, as DDL; by default those of the channel.
    """
    return CustomOf(functions, delta)
