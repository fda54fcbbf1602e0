"""Group restriction: groups that a join needs for few of their keys, restricted to these by a semi-join below them.

In `L ⋈ σ(S) ⋈ γ(L)`, the usual form of a comparison with an average over the rows of the same key, few groups match
the rows of S that the condition keeps. The groups are `γ(L ⋉ σ(S))` then: no others are stored, and no others change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kilonova.query.expression import Scalar, column
from kilonova.query.join_ordering import flatten_joins, without_hints
from kilonova.query.key_restriction import KeySet, restrict_to_keys
from kilonova.query.properties import Known, equal_columns, types
from kilonova.query.selectivity import selectivity
from kilonova.query.tree import (
    Aggregate,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Projection,
    Scan,
    channels,
    inputs,
    names,
    with_inputs,
)

_FEW = 0.1
"""Share of the rows of a relation which its condition is expected to keep, at most."""

_Source = tuple[str, str]
"""Channel, and column of it."""


def restrict_groups(node: Node, known: Known) -> Node:
    """Return a tree with groups only for the keys that a filtered relation has, where a join needs no others.

    A new row of that relation needs groups that were not there, for which the rows below are read. So groups are
    restricted only where a new row reads them in any case: where they are joined with it by the same column.

    Args:
        node: the tree.
        known: the channels that it reads.
    """
    if not isinstance(node, Join):
        return with_inputs(node, tuple(restrict_groups(each, known) for each in inputs(node)))
    if node.kind is Kind.INNER:
        joined, conditions = flatten_joins(node)
        parts = tuple(restrict_groups(each, known) for each in joined)
        return _with_parts(node, (_restricted(each, parts, conditions, known) for each in parts))
    left, right = restrict_groups(node.left, known), restrict_groups(node.right, known)
    if node.kind is not Kind.FULL and node.condition is not None:
        parts, conditions = flatten_joins(left)
        right = _restricted(right, (*parts, right), (*conditions, *node.condition.conjuncts()), known)
    return replace(node, left=left, right=right)


def _with_parts(node: Node, parts: Iterator[Node]) -> Node:
    """Return a chain of inner joins with other relations in the places of those that it combines."""
    if not isinstance(node, Join) or node.kind is not Kind.INNER:
        return next(parts)
    return replace(node, left=_with_parts(node.left, parts), right=_with_parts(node.right, parts))


def _restricted(groups: Node, parts: Sequence[Node], conditions: tuple[Scalar, ...], known: Known) -> Node:
    """Return groups restricted to those that rows of the other relations can match; another tree as it is.

    Args:
        groups: the tree, which is one of the relations.
        parts: the relations whose rows are combined.
        conditions: the conditions by which they are.
        known: the channels that they read.
    """
    keys = {name: source for name in names(groups) if (source := _grouped_by(groups, name)) is not None}
    if not keys:
        return groups
    kinds = {name: kind for part in parts for name, kind in types(part, known).items()}
    sources = {name: _source(part, name) for part in parts if part is not groups for name in names(part)}
    there = set(channels(groups))  # a relation that is grouped changes as often as its groups
    small = [part for part in parts if _is_small(part) and there.isdisjoint(channels(part))]
    for equal in equal_columns(conditions, kinds):
        for name in sorted(equal & keys.keys()):
            few = next((each for each in small if not equal.isdisjoint(names(each))), None)
            if few is not None and any(sources.get(each) == keys[name] for each in equal):
                own = min(equal.intersection(names(few)))
                keep = Item(f"{name}__{own}", column(own))
                to = KeySet(Projection(few, (keep,)), nulls=False)
                groups = without_hints(restrict_to_keys(groups, ((column(name), keep.name),), to))
    return groups


def _is_small(node: Node) -> bool:
    """Return whether a tree has few of the rows of a channel, which can be evaluated more than once."""
    match node:
        case Filter(input=Scan()):
            return node.condition.steady and selectivity(node.condition) <= _FEW
        case _:
            return False


def _grouped_by(node: Node, name: str) -> _Source | None:
    """Return the column by whose values a tree of groups is grouped under some name; None if it is not."""
    match node:
        case Projection(items=items):
            below = next(item.value.name for item in items if item.name == name)
            return None if below is None else _grouped_by(node.input, below)
        case Filter():
            return _grouped_by(node.input, name)
        case Aggregate(keys=keys):
            below = next((item.value.name for item in keys if item.name == name), None)
            return None if below is None else _source(node.input, below)
        case _:
            return None


def _source(node: Node, name: str) -> _Source | None:
    """Return the column of a channel whose values a column of a tree has; None if it is computed."""
    match node:
        case Scan(columns=columns):
            return node.channel, next(source for source, own in columns if own == name)
        case Projection(items=items):
            below = next(item.value.name for item in items if item.name == name)
            return None if below is None else _source(node.input, below)
        case Filter():
            return _source(node.input, name)
        case Join():
            return _source(node.left if name in names(node.left) else node.right, name)
        case _:
            return None
