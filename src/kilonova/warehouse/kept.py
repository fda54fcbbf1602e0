"""The user's per-key functions as Spark's workers get them: by value, as the catalog keeps them.

Spark would send them by the name of their module where this process has imported it, and workers do not know
the user's modules.
"""

from __future__ import annotations

import functools
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilonova.warehouse.algebra import PerKey
    from kilonova.warehouse.cogroup import Rows


@functools.cache
def _loaded(pickled: bytes) -> Any:
    return pickle.loads(pickled)


@dataclass(frozen=True, slots=True)
class Kept:
    """Per-key functions without a diff."""

    pickled: bytes

    def merge(self, base: Rows, delta: Rows) -> Rows:
        """The rows of the key after the delta."""
        return _loaded(self.pickled).merge(base, delta)  # type: ignore[no-any-return]

    def chain(self, first: Rows, second: Rows) -> Rows:
        """One delta that does what two do."""
        return _loaded(self.pickled).chain(first, second)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class KeptWithDiff(Kept):
    """Per-key functions with a diff."""

    def diff(self, old: Rows, new: Rows) -> Rows:
        """The delta that leads from old to new."""
        return _loaded(self.pickled).diff(old, new)  # type: ignore[no-any-return]


def kept(pickled: bytes) -> PerKey:
    """The per-key functions that were kept by value."""
    found = KeptWithDiff(pickled) if hasattr(_loaded(pickled), "diff") else Kept(pickled)
    return found  # type: ignore[return-value]
