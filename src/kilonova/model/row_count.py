"""Number of rows of a relation, as far as the statistics of its blocks show it.

The rows of a base, and the net numbers of rows that the deltas after it add, are summed. A delta that was not compared
with the relation before it does not record its net number: the sum is then at most as large as if it only added rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kilonova.model.block import Base, Block
from kilonova.model.encoding import adds_at_most_its_rows


@dataclass(frozen=True, slots=True)
class RowCount:
    """Number of rows of a relation.

    Attributes:
        exact: the number; None if it is not known.
        most: an upper bound, equal to the number where that is known; None if there is no bound.
    """

    exact: int | None
    most: int | None

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> RowCount:
        """Return the number of rows of a snapshot, from its blocks."""
        exact: int | None = 0
        most: int | None = 0
        for block in blocks:
            seen = block.statistics
            net = seen.rows if isinstance(block.kind, Base) else seen.net_rows
            bound = seen.rows if net is None and adds_at_most_its_rows(block.encoding) else net
            exact = None if exact is None or net is None else exact + net
            most = None if most is None or bound is None else most + bound
        return cls(exact, most)
