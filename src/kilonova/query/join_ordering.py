"""Join ordering: inner joins in the order that reads the fewest bytes for a change.

For a chain of inner joins R₁ ⋈ … ⋈ Rₙ, evaluated in this order,

    Δ(R₁ ⋈ … ⋈ Rₖ) = Δ(R₁ ⋈ … ⋈ Rₖ₋₁) ⋈ Rₖ + (R₁ ⋈ … ⋈ Rₖ₋₁)₀ ⋈ ΔRₖ

reads Rₖ once after the change, and once before it for each later relation that changes as well. So large relations
come late, unchanged relations come last, and a relation is joined only once it shares an equality with earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kilonova.query.expression import Scalar, and_, column, eq
from kilonova.query.properties import Known, equal_columns, equi_pairs, single, types
from kilonova.query.tree import Join, Kind, Node, Side, channels, inputs, names, with_inputs


def order_joins(node: Node, moved: frozenset[str], sizes: Mapping[str, int], known: Known) -> Node:
    """Return a tree with its inner joins in the best order.

    Args:
        node: the tree.
        moved: the channels that have changed.
        sizes: sizes of the channels, in bytes.
        known: the channels that it reads.
    """
    if not isinstance(node, Join) or node.kind is not Kind.INNER:
        return with_inputs(node, tuple(order_joins(below, moved, sizes, known) for below in inputs(node)))
    parts, conditions = flatten_joins(node)
    parts = tuple(order_joins(part, moved, sizes, known) for part in parts)
    if len(parts) == 2:
        return with_inputs(node, parts)
    parts, conditions = _one_row(parts, conditions, known)
    conditions = (*conditions, *_implied(conditions, types(node, known)))
    moving = [part for part in parts if moved & set(channels(part))]

    def weight(part: Node) -> int:
        return sum(sizes.get(channel, 0) for channel in channels(part))

    ranked = sorted(parts, key=lambda part: (part not in moving, weight(part)))

    def reading(order: tuple[Node, ...]) -> int:
        """Return the total number of bytes read, by the equation above."""
        places = [place for place, part in enumerate(order) if moved & set(channels(part))]
        return sum(
            weight(part) * (any(earlier < place for earlier in places) + sum(later > place for later in places))
            for place, part in enumerate(order)
        )

    each = (join_in_order(first, [p for p in ranked if p is not first], conditions) for first in moving or ranked[:1])
    return min(each, key=lambda chain: reading(flatten_joins(chain)[0]))


def _one_row(
    parts: tuple[Node, ...], conditions: tuple[Scalar, ...], known: Known
) -> tuple[tuple[Node, ...], tuple[Scalar, ...]]:
    """Join the single-row relations into one; return the relations, and the remaining conditions."""
    ones = tuple(part for part in parts if single(part, known))
    if len(ones) < 2:
        return parts, conditions
    columns = {name for part in ones for name in names(part)}
    here = tuple(condition for condition in conditions if condition.columns <= columns)
    rest = tuple(part for part in parts if part not in ones)
    return (*rest, join_in_order(ones[0], ones[1:], here)), tuple(each for each in conditions if each not in here)


def without_hints(node: Node) -> Node:
    """Return a tree without hints on which sides of its joins have few rows."""
    node = with_inputs(node, tuple(without_hints(below) for below in inputs(node)))
    return replace(node, few=None) if isinstance(node, Join) else node


def flatten_joins(node: Node) -> tuple[tuple[Node, ...], tuple[Scalar, ...]]:
    """Return the relations that a chain of inner joins combines, and its conditions."""
    if not isinstance(node, Join) or node.kind is not Kind.INNER:
        return (node,), ()
    left, on_left = flatten_joins(node.left)
    right, on_right = flatten_joins(node.right)
    own = node.condition.conjuncts() if node.condition is not None else ()
    return (*left, *right), (*on_left, *on_right, *own)


def join_in_order(first: Node, rest: Iterable[Node], conditions: tuple[Scalar, ...], few: Side | None = None) -> Node:
    """Join relations in order, starting with one and preferring the next that has an equality with those joined.

    Args:
        first: the relation to start with.
        rest: the others; earlier ones are preferred.
        conditions: all join conditions; each is applied where its columns are first available together.
        few: the side of each join that has few rows.
    """
    node, left, pending = first, list(rest), list(dict.fromkeys(conditions))
    while left:
        there = frozenset(names(node))
        meeting = (part for part in left if any(equi_pairs(each, there, frozenset(names(part))) for each in pending))
        part = next(meeting, left[0])
        left.remove(part)
        columns = there | set(names(part))
        here = tuple(condition for condition in pending if condition.columns <= columns)
        pending = [condition for condition in pending if condition not in here]
        node = Join(node, part, Kind.INNER, and_(here), few)
    return node


def _implied(conditions: tuple[Scalar, ...], kinds: Mapping[str, str | None]) -> tuple[Scalar, ...]:
    """Return implied equalities of columns; of one type only, because strings that equal a number may differ."""
    found = []
    for group in equal_columns(conditions, kinds):
        members = sorted(group)
        found += [eq(column(a), column(b)) for place, a in enumerate(members) for b in members[place + 1 :]]
    there = {frozenset(pair) for c in conditions for pair in equi_pairs(c, c.columns, c.columns)}
    return tuple(item for item in found if frozenset(*equi_pairs(item, item.columns, item.columns)) not in there)
