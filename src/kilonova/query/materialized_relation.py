"""Relations that views store, and the groups in them: see `kilonova.query.materialization`."""

from __future__ import annotations

from dataclasses import dataclass

from kilonova.model.encoding import Encoding
from kilonova.model.schema import KEPT
from kilonova.query.properties import RelationFacts
from kilonova.query.tree import Aggregate, Node, Projection, channels, names

ROWS = f"{KEPT}rows"
"""Column with the number of rows of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedRelation:
    """Relation that a view stores.

    Attributes:
        channel: the channel that holds it.
        tree: its query.
        encoding: the encoding of its deltas.
        facts: its known properties.
        whole: why it can only be fully recomputed; None if its change can be derived.
    """

    channel: str
    tree: Node
    encoding: Encoding
    facts: RelationFacts
    whole: str | None = None

    @property
    def sums(self) -> bool:
        """Return whether the sums of its groups are stored with them."""
        return any(name.startswith(KEPT) for name in names(self.tree))

    @property
    def reads(self) -> tuple[str, ...]:
        """Channels that its query reads."""
        return channels(self.tree)


def grouping(tree: Node) -> tuple[Aggregate, tuple[Projection, ...]]:
    """Return the aggregate below projections, and the projections from the top."""
    above: list[Projection] = []
    while isinstance(tree, Projection):
        above.append(tree)
        tree = tree.input
    assert isinstance(tree, Aggregate)
    return tree, tuple(above)


def shown(name: str, above: tuple[Projection, ...]) -> tuple[str, ...]:
    """Return the top-level names of a column below projections, those that are part of the relation first."""
    found = {name}
    for project in reversed(above):
        found = {item.name for item in project.items if item.value.name in found}
    return tuple(sorted(found, key=lambda each: (each.startswith(KEPT), each)))
