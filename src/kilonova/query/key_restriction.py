"""Semijoin reduction: restriction of a tree to some keys, pushed down as far as possible.

`restrict_to_keys(T, x, K)` has the rows of T whose x is in K; its inputs are restricted wherever a key determines it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kilonova.query.expression import Scalar, and_, column, eq, null_safe_eq
from kilonova.query.properties import equi_pairs
from kilonova.query.tree import (
    Aggregate,
    Explode,
    Filter,
    Join,
    Kind,
    Node,
    Projection,
    Scan,
    Side,
    Top,
    Union,
    Unit,
    Window,
    kept,
    names,
)


@dataclass(frozen=True, slots=True)
class KeySet:
    """Set of keys to restrict to.

    Attributes:
        node: their rows; its column names occur in no other tree.
        nulls: whether nulls are keys as well.
    """

    node: Node
    nulls: bool


Wanted = tuple[tuple[Scalar, str], ...]
"""Expressions over a tree's columns, each with the column of the keys that it must be in."""


def restrict_to_keys(node: Node, wanted: Wanted, to: KeySet) -> Node:
    """Return the rows of a tree that have one of the keys."""
    match node:
        case Filter():
            return replace(node, input=restrict_to_keys(node.input, wanted, to))
        case Projection():
            values = {item.name: item.value for item in node.items}
            below = tuple((expression.with_columns(values), key) for expression, key in wanted)
            if all(expression.steady for expression, _ in below):
                return replace(node, input=restrict_to_keys(node.input, below, to))
        case Union():
            parts = []
            for part in node.inputs:
                own = {name: column(source) for name, source in zip(node.columns, names(part), strict=True)}
                below = tuple((expression.with_columns(own), key) for expression, key in wanted)
                parts.append(restrict_to_keys(part, below, to))
            return Union(tuple(parts), node.columns)
        case Aggregate():
            values = {item.name: item.value for item in node.keys}
            if node.keys and all(expression.columns <= values.keys() for expression, _ in wanted):
                below = tuple((expression.with_columns(values), key) for expression, key in wanted)
                return replace(node, input=restrict_to_keys(node.input, below, to))
        case Window():
            if all(expression in node.partition for expression, _ in wanted):
                return replace(node, input=restrict_to_keys(node.input, wanted, to))
        case Explode():
            if all(expression.columns <= set(names(node.input)) for expression, _ in wanted):
                return replace(node, input=restrict_to_keys(node.input, wanted, to))
        case Join():
            return _joined(node, wanted, to)
        case Scan() | Unit() | Top():
            pass
    return _semi(node, wanted, to)


def _semi(node: Node, wanted: Wanted, to: KeySet) -> Node:
    compare = null_safe_eq if to.nulls else eq
    condition = and_(tuple(compare(expression, column(key)) for expression, key in wanted))
    return Join(node, Projection(to.node, kept(tuple(key for _, key in wanted))), Kind.SEMI, condition, Side.RIGHT)


def _joined(node: Join, wanted: Wanted, to: KeySet) -> Node:
    if node.kind is Kind.FULL:
        return _semi(node, wanted, to)
    left, right = frozenset(names(node.left)), frozenset(names(node.right))
    pairs = equi_pairs(node.condition, left, right)
    to_left = tuple(item for item in wanted if item[0].columns <= left)
    to_right = tuple((other, key) for one, other in pairs for expression, key in wanted if expression == one)
    if node.kind is Kind.INNER:
        to_right += tuple(item for item in wanted if item[0].columns <= right and item not in to_right)
        met = tuple((one, key) for one, other in pairs for expression, key in wanted if expression == other)
        to_left += tuple(item for item in met if item not in to_left)
    covered = [len({key for _, key in side}) == len(wanted) for side in (to_left, to_right)]
    exact = covered[0] or (covered[1] and node.kind is Kind.INNER)
    if not exact and node.kind is not Kind.INNER and not all(e.columns <= left for e, _ in wanted):
        return _semi(node, wanted, to)
    within = Join(
        restrict_to_keys(node.left, to_left, to) if to_left else node.left,
        restrict_to_keys(node.right, to_right, to) if to_right else node.right,
        node.kind,
        node.condition,
        node.few,
    )
    return within if exact else _semi(within, wanted, to)
