"""Comparison of the relations below an operator, as the rules for operators need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kilonova.query.expression import Scalar
from kilonova.query.migration.joint import Joint
from kilonova.query.properties import RelationFacts
from kilonova.query.tree import Item, Node, Scan


class Comparer(Protocol):
    """Comparison of the relations below; see `kilonova.query.migration.comparison`."""

    known: dict[str, RelationFacts]

    def of(self, old: Node, new: Node) -> Joint:
        """Return the joint relation of two queries."""

    def part(self, old: Node, new: Node) -> Joint:
        """Return the joint relation of two relations."""

    def has_same_rows(self, joint: Joint) -> bool:
        """Return whether both queries have the same rows, up to their columns."""

    def plain(self, joint: Joint) -> tuple[Node, Mapping[str, Scalar], Mapping[str, Scalar]]:
        """Return the rows of a joint relation as one relation whose columns are those of both queries."""

    def relation(self, joint: Joint) -> Node:
        """Return the rows of a joint relation as one relation: a pair if the queries have different rows."""

    def pair(
        self,
        branches: tuple[tuple[Joint, tuple[Item, ...]], ...],
        kinds: Mapping[str, str | None],
        key: tuple[tuple[str, ...], ...],
    ) -> Scan:
        """Return a scan of a new pair."""
