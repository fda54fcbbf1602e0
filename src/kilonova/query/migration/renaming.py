"""Renaming of all columns of a tree, so that it can be combined with another one."""

from __future__ import annotations

from collections.abc import Mapping

from kilonova.query.expression import Scalar, column
from kilonova.query.tree import (
    Aggregate,
    Explode,
    Filter,
    Item,
    Join,
    Node,
    Order,
    Projection,
    Scan,
    Top,
    Union,
    Unit,
    Window,
    inputs,
    names,
)


def with_suffix(node: Node, suffix: str) -> Node:
    """Return a tree in which the name of every column ends in a suffix."""
    return _renamed(node, {name: name + suffix for name in every_name(node)})


def every_name(node: Node) -> frozenset[str]:
    """Return the names of all columns in a tree."""
    return frozenset(names(node)).union(*map(every_name, inputs(node)))


def _renamed(node: Node, to: Mapping[str, str]) -> Node:
    values = {name: column(new) for name, new in to.items()}

    def of(expression: Scalar) -> Scalar:
        return expression.with_columns(values)

    def items(given: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(Item(to[item.name], of(item.value)) for item in given)

    below = tuple(_renamed(each, to) for each in inputs(node))
    match node:
        case Scan():
            columns = tuple((source, to[name]) for source, name in node.columns)
            return Scan(node.channel, columns, node.at, node.weighed)
        case Unit():
            return node
        case Projection():
            return Projection(below[0], items(node.items))
        case Filter():
            return Filter(below[0], of(node.condition))
        case Join():
            return Join(below[0], below[1], node.kind, None if node.condition is None else of(node.condition), node.few)
        case Aggregate():
            return Aggregate(below[0], items(node.keys), items(node.calls))
        case Union():
            return Union(below, tuple(to[name] for name in node.columns))
        case Window():
            return Window(below[0], tuple(map(of, node.partition)), items(node.items))
        case Explode():
            return Explode(below[0], of(node.generator), node.outer, tuple(to[name] for name in node.columns))
        case Top():
            order = tuple(Order(of(item.value), item.direction) for item in node.order)
            return Top(below[0], order, node.limit, node.offset)
