"""Only the columns that are needed: a change of a column that a query does not read is no change to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kilonova.query.expression import Scalar
from kilonova.query.tree import (
    Aggregate,
    Explode,
    Filter,
    Join,
    Kind,
    Node,
    Project,
    Scan,
    Top,
    Union,
    Unit,
    Window,
    kept,
    names,
)


def pruned(node: Node) -> Node:
    """A tree with the same columns, in which nothing below is read that is not needed."""
    return _needing(node, frozenset(names(node)))


def _columns(expressions: Iterable[Scalar]) -> frozenset[str]:
    return frozenset(name for expression in expressions for name in expression.columns)


def _needing(node: Node, needed: frozenset[str]) -> Node:
    match node:
        case Scan():
            return replace(node, columns=tuple(pair for pair in node.columns if pair[1] in needed))
        case Unit():
            return node
        case Project():
            items = tuple(item for item in node.items if item.name in needed)
            return Project(_needing(node.input, _columns(item.value for item in items)), items)
        case Filter():
            return replace(node, input=_needing(node.input, needed | node.condition.columns))
        case Join():
            wanted = needed | (node.condition.columns if node.condition is not None else frozenset())
            right = wanted if node.kind not in (Kind.SEMI, Kind.ANTI) else wanted & frozenset(names(node.right))
            return replace(node, left=_needing(node.left, wanted), right=_needing(node.right, right))
        case Aggregate():
            calls = tuple(item for item in node.calls if item.name in needed)
            values = _columns(item.value for item in (*node.keys, *calls))
            return replace(node, input=_needing(node.input, values), calls=calls)
        case Union():
            places = [place for place, name in enumerate(node.columns) if name in needed]
            below = []
            for part in node.inputs:
                own = names(part)
                shape = tuple(own[place] for place in places)
                below.append(_shaped(_needing(part, frozenset(shape)), shape))
            return Union(tuple(below), tuple(node.columns[place] for place in places))
        case Window():
            items = tuple(item for item in node.items if item.name in needed)
            if not items:
                return _needing(node.input, needed)
            read = _columns((*node.partition, *(item.value for item in items)))
            made = frozenset(item.name for item in items)
            return replace(node, input=_needing(node.input, (needed - made) | read), items=items)
        case Explode():
            above = (needed - frozenset(node.columns)) | node.generator.columns
            return replace(node, input=_needing(node.input, above))
        case Top():
            return replace(node, input=_needing(node.input, needed | _columns(item.value for item in node.order)))


def _shaped(node: Node, columns: tuple[str, ...]) -> Node:
    return node if names(node) == columns else Project(node, kept(columns))
