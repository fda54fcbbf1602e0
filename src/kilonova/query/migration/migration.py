"""Migration of a stored relation, or why there is none; see `kilonova.query.migration.derivation`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kilonova.model.encoding import Changes, Columns
from kilonova.query.expression import Scalar
from kilonova.query.tree import Node, scans


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Query that turns the stored output of an old query into that of a new one.

    Attributes:
        delta: the query, over the channels (`At.NEW`) and the stored output (`At.OLD`); None if the output is
            right once the columns that the new query has not are dropped.
        encoding: the encoding of its rows; None if they are the whole output of the new query.
        description: what it does, to follow "the migration".
        then: the migration to apply next, to the output of this one; None if it is the last.
        tree: the query whose output there is after this migration.
        separate: whether no row that it removes is one that the query after it gives, for any rows of the channels.
        removal: the condition, on columns of the output, of the rows that it removes, if that is all it does, and the
            condition has the same result whenever it is evaluated.
        renamed: the names before of columns that it gives other names, by these; their values are not written.
        by_reference: the migration that does the same, and writes no values of columns that only have other names;
            None if there are no such columns.
    """

    delta: Node | None
    encoding: Changes | Columns | None
    description: str
    tree: Node
    separate: bool = False
    removal: Scalar | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    by_reference: Migration | None = None
    then: Migration | None = None

    @property
    def reads(self) -> dict[str, frozenset[str]]:
        """Columns that are read of each channel, and of the stored output."""
        found: dict[str, frozenset[str]] = {}
        for scan in () if self.delta is None else scans(self.delta):
            columns = frozenset(source for source, _ in scan.columns)
            found[scan.channel] = found.get(scan.channel, frozenset()) | columns
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMigration:
    """Outcome of a derivation that found no migration.

    Attributes:
        reason: why none was found.
    """

    reason: str
