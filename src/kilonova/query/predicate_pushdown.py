"""Predicate pushdown: conditions of a filter moved into the joins below it.

Results do not change; afterwards a join written with commas and WHERE equals one written with ON.
"""

from __future__ import annotations

from kilonova.query.expression import Scalar, and_
from kilonova.query.tree import Filter, Join, Kind, Node, inputs, names, with_inputs


def push_predicates(node: Node) -> Node:
    """Return a tree with every filter pushed down as far as inner joins and other filters allow."""
    if isinstance(node, Filter):
        return _filtered(node.input, node.condition.conjuncts())
    return with_inputs(node, tuple(push_predicates(below) for below in inputs(node)))


def _filtered(node: Node, conditions: tuple[Scalar, ...]) -> Node:
    if isinstance(node, Filter):
        return _filtered(node.input, (*node.condition.conjuncts(), *conditions))
    steady = tuple(condition for condition in conditions if condition.steady)
    if isinstance(node, Join) and len(steady) == len(conditions):
        left, right = set(names(node.left)), set(names(node.right))
        to_left = tuple(condition for condition in conditions if condition.columns <= left)
        if node.kind is not Kind.INNER:
            if node.kind is Kind.FULL:
                return _above(node, conditions)
            rest = tuple(condition for condition in conditions if condition not in to_left)
            pushed_left = _filtered(node.left, to_left)
            return _above(Join(pushed_left, push_predicates(node.right), node.kind, node.condition), rest, below=True)
        own = node.condition.conjuncts() if node.condition is not None else ()
        every = (*own, *conditions)
        to_left = tuple(condition for condition in every if condition.columns and condition.columns <= left)
        to_right = tuple(condition for condition in every if condition.columns and condition.columns <= right)
        here = tuple(condition for condition in every if condition not in (*to_left, *to_right))
        return Join(_filtered(node.left, to_left), _filtered(node.right, to_right), Kind.INNER, and_(here))
    return _above(node, conditions)


def _above(node: Node, conditions: tuple[Scalar, ...], *, below: bool = False) -> Node:
    inner = node if below else with_inputs(node, tuple(push_predicates(item) for item in inputs(node)))
    condition = and_(tuple(dict.fromkeys(conditions)))
    return inner if condition is None else Filter(inner, condition)
