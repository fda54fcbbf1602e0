"""Encodings as users write them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IncrementOf:
    """The encoding increment, before its key is known."""

    measures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CustomOf:
    """The encoding custom, before its key is known."""

    functions: object
    delta: str | None = None


Encodes = str | IncrementOf | CustomOf | None


def increment(*measures: str) -> IncrementOf:
    """The encoding whose deltas hold amounts to add to these columns, per key."""
    return IncrementOf(measures)


def custom(functions: object, *, delta: str | None = None) -> CustomOf:
    """The encoding whose deltas the given object understands.

    Args:
        functions: has `merge(base, delta)`, `chain(first, second)` and, if it can, `diff(old, new)`, each on
            lists of row dictionaries of one key. A merge with the parameters `(base, *deltas)` and a chain with
            `(*deltas)` are given several deltas at once, in order.
        delta: the columns of a delta, the key among them, in SQL; by default those of the channel.
    """
    return CustomOf(functions, delta)
