"""The pruning passes of the search, each of which can be left out (asynchronous scheduling, 6.2 and 6.3)."""

from __future__ import annotations

import enum


class Pruning(enum.Enum):
    """A pruning pass."""

    OLD_BLOCKS = "old blocks"
    DELTA_CHAINS = "compulsory delta chains"
    UPSTREAM_LIMITS = "limits propagated upstream"
    OVERKILL = "overkill blocks"
    LONG_TERM = "long-term provision"


ALL_PASSES = frozenset(Pruning)
NO_PASSES: frozenset[Pruning] = frozenset()
