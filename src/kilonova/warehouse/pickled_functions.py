"""Per-key user functions as sent to Spark's workers: pickled by value, as in the catalog.

Spark would pickle them by reference if this process has imported their module, and workers do not have the user's
modules.
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
class PickledFunctions:
    """Per-key functions without a diff."""

    pickled: bytes

    def merge(self, base: Rows, delta: Rows) -> Rows:
        """Return the key's rows after the delta."""
        return _loaded(self.pickled).merge(base, delta)  # type: ignore[no-any-return]

    def chain(self, first: Rows, second: Rows) -> Rows:
        """Return one delta equivalent to the two."""
        return _loaded(self.pickled).chain(first, second)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class PickledFunctionsWithDiff(PickledFunctions):
    """Per-key functions with a diff."""

    def diff(self, old: Rows, new: Rows) -> Rows:
        """Return the delta that leads from old to new."""
        return _loaded(self.pickled).diff(old, new)  # type: ignore[no-any-return]


def pickled_functions(pickled: bytes) -> PerKey:
    """Return the per-key functions that were pickled by value."""
    found = PickledFunctionsWithDiff(pickled) if hasattr(_loaded(pickled), "diff") else PickledFunctions(pickled)
    return found  # type: ignore[return-value]
