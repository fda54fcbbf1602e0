"""Eager aggregation: aggregates computed earlier where the result is the same, so that fewer rows change above.

Results do not change. The inner aggregate is materialized as a separate relation, to whose sums a change is added.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from kilonova.query.expression import Scalar, and_, column, eq
from kilonova.query.expression_syntax import node_of, parse, scalar_of
from kilonova.query.properties import Known, equi_pairs, unique
from kilonova.query.tree import Aggregate, Filter, Item, Join, Kind, Node, Projection, inputs, names


def aggregate_early(node: Aggregate, known: Known) -> Node:
    """Return an equivalent two-level aggregate, or a join with an aggregate, where possible; else the node itself."""
    return _below_join(node, known) or _distinct_first(node)


def _distinct_first(node: Aggregate) -> Aggregate:
    """Rewrite `count(DISTINCT x)`, if it is the only aggregate, as `count(x)` over groups with x among their keys."""
    values = {_distinct_argument(call.value) for call in node.calls}
    if len(values) != 1 or None in values:
        return node
    (argument,) = values
    assert argument is not None
    inner = f"{node.calls[0].name}__each"
    below = Aggregate(node.input, (*node.keys, Item(inner, argument)), ())
    keys_ = tuple(Item(key.name, column(key.name)) for key in node.keys)
    return Aggregate(below, keys_, tuple(Item(c.name, parse(f"COUNT({column(inner).sql})")) for c in node.calls))


def _distinct_argument(value: Scalar) -> Scalar | None:
    node = node_of(value)
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct) and len(node.this.expressions) == 1:
        return scalar_of(node.this.expressions[0])
    return None


def _below_join(node: Aggregate, known: Known) -> Node | None:
    """Rewrite γ(L ⟕ R) as L ⟕ γ(R), where each row of L is one group, and R is grouped by its join columns."""
    if isinstance(node.input, Projection):
        values = {item.name: item.value for item in node.input.items}
        node = Aggregate(
            node.input.input,
            tuple(Item(item.name, item.value.with_columns(values)) for item in node.keys),
            tuple(Item(item.name, item.value.with_columns(values)) for item in node.calls),
        )
    join = node.input
    if not isinstance(join, Join) or join.kind is not Kind.LEFT or join.condition is None or not node.calls:
        return None
    left, right = frozenset(names(join.left)), frozenset(names(join.right))
    pairs = equi_pairs(join.condition, left, right)
    own = frozenset(item.value.name for item in node.keys)
    if not pairs or not any(set(key) <= own for key in unique(join.left, known)):
        return None
    if not all(item.value.columns <= left for item in node.keys) or not {one for one, _ in pairs} <= {
        item.value for item in node.keys
    }:
        return None
    rest = tuple(part for part in join.condition.conjuncts() if not equi_pairs(part, left, right))
    made = tuple(_padded(call) for call in node.calls)
    if not all(part.columns <= right for part in rest) or not all(call.value.columns <= right for call in node.calls):
        return None
    values_ = tuple(item for item in made if item is not None)
    if len(values_) < len(made):
        return None
    met = tuple(Item(f"{node.calls[0].name}__met{place}", other) for place, (_, other) in enumerate(pairs))
    meeting = and_((*rest, *(_not_null(other) for _, other in pairs)))
    assert meeting is not None
    groups = Aggregate(Filter(join.right, meeting), met, node.calls)
    on = and_(tuple(eq(one, column(item.name)) for (one, _), item in zip(pairs, met, strict=True)))
    return Projection(replace(join, right=groups, condition=on), (*node.keys, *values_))


_STRICT = (exp.Column, exp.Identifier, exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Paren)
"""Strict expressions: null if one of their columns is."""


def met_early(node: Join, known: Known) -> Join:
    """Deduplicate the right side of a semi- or anti-join by its join columns, where that side contains a join.

    Occurrences of each value are counted, so that a change of the join below changes few values above.
    """
    if node.kind not in (Kind.SEMI, Kind.ANTI) or node.condition is None or not _joins(node.right):
        return node
    pairs = equi_pairs(node.condition, frozenset(names(node.left)), frozenset(names(node.right)))
    met = {other.name for _, other in pairs}
    if len(pairs) < len(node.condition.conjuncts()) or any(set(key) <= met for key in unique(node.right, known)):
        return node
    found = and_(tuple(_not_null(other) for _, other in pairs))
    assert found is not None
    values = tuple(Item(f"{names(node.right)[0]}__met{place}", other) for place, (_, other) in enumerate(pairs))
    on = and_(tuple(eq(one, column(item.name)) for (one, _), item in zip(pairs, values, strict=True)))
    return replace(node, right=Aggregate(Filter(node.right, found), values, ()), condition=on)


def _joins(node: Node) -> bool:
    return isinstance(node, Join) or any(map(_joins, inputs(node)))


def _not_null(value: Scalar) -> Scalar:
    return parse(f"NOT {value.sql if value.name else f'({value.sql})'} IS NULL")


def _padded(call: Item) -> Item | None:
    """Return an aggregate over early groups, valid also for a left row without match; None if that is impossible."""
    node = node_of(call.value)
    if not call.value.columns or not all(isinstance(each, _STRICT) for each in node.this.walk()):
        return None
    if isinstance(node, exp.Count) and not node.expressions:
        return Item(call.name, parse(f"COALESCE({column(call.name).sql}, 0L)"))
    return Item(call.name, column(call.name)) if isinstance(node, exp.Sum | exp.Avg | exp.Min | exp.Max) else None
