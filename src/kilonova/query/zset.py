"""Z-sets: rows with weights that say how many times each is added (positive) or removed (negative)."""

from __future__ import annotations

from kilonova.query.expression import Op, Scalar, column, compose
from kilonova.query.tree import WEIGHT, Aggregate, Explode, Filter, Item, Node, Projection, Union, kept, names


def consolidate(node: Node) -> Node:
    """Return a change with the weights of equal rows added up, and rows of weight zero removed."""
    columns = tuple(name for name in names(node) if name != WEIGHT)
    total = Aggregate(node, kept(columns), (Item(WEIGHT, compose("SUM({})", column(WEIGHT), op=Op.SUM)),))
    return Filter(total, compose("{} <> 0", column(WEIGHT)))


def with_weight(node: Node, weight: int) -> Node:
    """Return rows that are all added (weight 1) or all removed (weight -1)."""
    return Projection(node, (*kept(names(node)), Item(WEIGHT, _literal(weight))))


def weight_where(removed: Scalar) -> Item:
    """Return the weight of rows that are removed where a condition is true, and added elsewhere."""
    return Item(
        WEIGHT, compose(f"CASE WHEN {{}} THEN {_literal(-1).sql} ELSE {_literal(1).sql} END", removed, op=Op.CALL)
    )


def has_unit_weights(node: Node) -> bool:
    """Return whether all rows of a change are known to have the weight 1 or -1."""
    match node:
        case Projection():
            value = next(item.value for item in node.items if item.name == WEIGHT)
            if value == column(WEIGHT):
                return has_unit_weights(node.input)
            return value in (_literal(1), _literal(-1)) or value.texts == weight_where(value).value.texts
        case Filter():
            return has_unit_weights(node.input)
        case Union():
            return all(map(has_unit_weights, node.inputs))
        case _:
            return False


def _literal(weight: int) -> Scalar:
    return compose(f"CAST({weight} AS BIGINT)", op=Op.CALL)


def union_changes(parts: list[Node], columns: tuple[str, ...]) -> Node:
    """Return the union of several changes."""
    every = (*columns, WEIGHT)
    shaped = tuple(part if names(part) == every else Projection(part, kept(every)) for part in parts)
    return shaped[0] if len(shaped) == 1 else Union(shaped, every)


def repeat_rows(node: Node) -> Node:
    """Return a change with each row as often as the amount of its weight says."""
    times = compose("EXPLODE(SEQUENCE(1, CAST(ABS({}) AS INT)))", column(WEIGHT))
    return Explode(node, times, False, ("_each",))


def to_rows(node: Node, columns: tuple[str, ...]) -> Node:
    """Expand weighted rows to the rows that they add up to."""
    each = compose("EXPLODE(SEQUENCE(1, CAST({} AS INT)))", column(WEIGHT))
    return Projection(Explode(consolidate(node), each, False, ("_each",)), kept(columns))


def to_distinct_rows(node: Node, columns: tuple[str, ...]) -> Node:
    """Return the rows that weighted rows add up to, each once."""
    return Projection(consolidate(node), kept(columns))
