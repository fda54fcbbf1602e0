"""Z-sets: rows with weights that say how many times each is added (positive) or removed (negative)."""

from __future__ import annotations

from kilonova.query.expression import Op, column, compose
from kilonova.query.tree import WEIGHT, Aggregate, Explode, Filter, Item, Node, Projection, Union, kept, names


def consolidate(node: Node) -> Node:
    """Return a change with the weights of equal rows added up, and rows of weight zero removed."""
    columns = tuple(name for name in names(node) if name != WEIGHT)
    total = Aggregate(node, kept(columns), (Item(WEIGHT, compose("SUM({})", column(WEIGHT), op=Op.SUM)),))
    return Filter(total, compose("{} <> 0", column(WEIGHT)))


def with_weight(node: Node, weight: int) -> Node:
    """Return rows that are all added (weight 1) or all removed (weight -1)."""
    value = compose(f"CAST({weight} AS BIGINT)", op=Op.CALL)
    return Projection(node, (*kept(names(node)), Item(WEIGHT, value)))


def union_changes(parts: list[Node], columns: tuple[str, ...]) -> Node:
    """Return the union of several changes."""
    every = (*columns, WEIGHT)
    shaped = tuple(part if names(part) == every else Projection(part, kept(every)) for part in parts)
    return shaped[0] if len(shaped) == 1 else Union(shaped, every)


def to_rows(node: Node, columns: tuple[str, ...]) -> Node:
    """Expand weighted rows to the rows that they add up to."""
    each = compose("EXPLODE(SEQUENCE(1, CAST({} AS INT)))", column(WEIGHT))
    return Projection(Explode(consolidate(node), each, False, ("_each",)), kept(columns))
