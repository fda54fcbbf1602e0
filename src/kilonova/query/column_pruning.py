"""Column pruning: a change of a column that a query does not read is then no change of its input."""

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
    Projection,
    Scan,
    Top,
    Union,
    Unit,
    Window,
    kept,
    names,
)


def prune_columns(node: Node) -> Node:
    """Return a tree with the same columns that reads only the columns it needs."""
    return _Pruning(narrow=False).needing(node, frozenset(names(node)))


def narrow_to(node: Node) -> Node:
    """Return a pruned tree that drops columns used only by a filter on a channel right after that filter."""
    return _Pruning(narrow=True).needing(node, frozenset(names(node)))


def _columns(expressions: Iterable[Scalar]) -> frozenset[str]:
    return frozenset(name for expression in expressions for name in expression.columns)


class _Pruning:
    def __init__(self, *, narrow: bool) -> None:
        self._narrow = narrow

    def needing(self, node: Node, needed: frozenset[str]) -> Node:
        match node:
            case Scan():
                return replace(node, columns=tuple(pair for pair in node.columns if pair[1] in needed))
            case Unit():
                return node
            case Projection():
                items = tuple(item for item in node.items if item.name in needed)
                return Projection(self.needing(node.input, _columns(item.value for item in items)), items)
            case Filter():
                whole = replace(node, input=self.needing(node.input, needed | node.condition.columns))
                if not self._narrow or not _plain(whole):
                    return whole
                return _shaped(whole, tuple(name for name in names(whole) if name in needed))
            case Join():
                wanted = needed | (node.condition.columns if node.condition is not None else frozenset())
                right = wanted if node.kind not in (Kind.SEMI, Kind.ANTI) else wanted & frozenset(names(node.right))
                return replace(node, left=self.needing(node.left, wanted), right=self.needing(node.right, right))
            case Aggregate():
                calls = tuple(item for item in node.calls if item.name in needed)
                values = _columns(item.value for item in (*node.keys, *calls))
                return replace(node, input=self.needing(node.input, values), calls=calls)
            case Union():
                places = [place for place, name in enumerate(node.columns) if name in needed]
                below = []
                for part in node.inputs:
                    own = names(part)
                    shape = tuple(own[place] for place in places)
                    below.append(_shaped(self.needing(part, frozenset(shape)), shape))
                return Union(tuple(below), tuple(node.columns[place] for place in places))
            case Window():
                items = tuple(item for item in node.items if item.name in needed)
                if not items:
                    return self.needing(node.input, needed)
                read = _columns((*node.partition, *(item.value for item in items)))
                made = frozenset(item.name for item in items)
                return replace(node, input=self.needing(node.input, (needed - made) | read), items=items)
            case Explode():
                above = (needed - frozenset(node.columns)) | node.generator.columns
                return replace(node, input=self.needing(node.input, above))
            case Top():
                return replace(
                    node, input=self.needing(node.input, needed | _columns(item.value for item in node.order))
                )


def _plain(node: Node) -> bool:
    """Return whether a tree computes each of its rows from one row of one channel."""
    while isinstance(node, Projection | Filter):
        node = node.input
    return isinstance(node, Scan)


def _shaped(node: Node, columns: tuple[str, ...]) -> Node:
    return node if names(node) == columns else Projection(node, kept(columns))
