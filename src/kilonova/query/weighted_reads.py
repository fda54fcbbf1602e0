"""Weighted reads: channels are read as weighted rows where possible, so that their deltas need no merge first.

The rows added and removed since a channel's base are read together with it; weights add up to the current rows.
Linear operators (filters, projections, inner joins) pass weights on, as they do those of a change. Other operators
need the rows themselves: where these are few, because a change touches few, their weights are added up in the query;
where they may be many, the merged rows are read.
"""

from __future__ import annotations

from dataclasses import replace

from kilonova.query.expression import Op, column, compose
from kilonova.query.tree import (
    WEIGHT,
    Aggregate,
    At,
    Explode,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Projection,
    Scan,
    Side,
    Union,
    inputs,
    kept,
    names,
    with_inputs,
)
from kilonova.query.zset import to_distinct_rows, to_rows


def read_with_weights(node: Node, layered: frozenset[str]) -> Node:
    """Return a change that reads weighted rows where possible.

    Args:
        node: the change of a tree.
        layered: the channels that have deltas after their base.
    """
    return _Weighing(layered).rows(node)


def splits_rows(node: Node) -> bool:
    """Return whether weighted rows of a channel reach the top of a change, where they may cancel each other.

    Args:
        node: the change, with weighted reads.
    """
    if WEIGHT not in names(node) or isinstance(node, Aggregate):
        return False
    return node.weighed if isinstance(node, Scan) else any(map(splits_rows, inputs(node)))


class _Weighing:
    def __init__(self, layered: frozenset[str]) -> None:
        self._layered = layered
        self._count = 0

    def rows(self, node: Node, *, once: bool = False) -> Node:
        """Return a tree with the same rows; if it already has weights, they may be spread over more rows.

        Args:
            node: the tree.
            once: whether it does not matter how often it has a row.
        """
        if WEIGHT in names(node):
            return self._linear(node)
        if _linear(node) and _restricted(node):
            made = self._linear(node)
            added_up = to_distinct_rows if once else to_rows
            return made if WEIGHT not in names(made) else added_up(made, names(node))
        return with_inputs(node, tuple(map(self.rows, inputs(node))))

    def _linear(self, node: Node) -> Node:
        """Return a linear tree over weighted reads, with a weight column if any of its inputs has one."""
        match node:
            case Scan() if node.at is not At.CHANGE and node.channel in self._layered:
                return replace(node, weighed=True)
            case Projection():
                return self._project(node)
            case Filter() if WEIGHT not in node.condition.columns:
                return replace(node, input=self._linear(node.input))
            case Explode() if WEIGHT not in node.generator.columns:
                return self._exploded(node)
            case Union():
                return self._union(node)
            case Join(kind=Kind.INNER):
                return self._inner(node)
            case Join(kind=Kind.SEMI | Kind.ANTI | Kind.LEFT):
                return self._sided(node)
            case _:
                return with_inputs(node, tuple(map(self.rows, inputs(node))))

    def _project(self, node: Projection) -> Node:
        below = self._linear(node.input)
        if WEIGHT not in names(below) or WEIGHT in names(node.input):
            return replace(node, input=below)
        own = next((item.value for item in node.items if item.name == WEIGHT), None)
        weight = column(WEIGHT) if own is None else compose("{} * ({})", column(WEIGHT), own, op=Op.MUL)
        return Projection(below, (*(item for item in node.items if item.name != WEIGHT), Item(WEIGHT, weight)))

    def _exploded(self, node: Explode) -> Node:
        made = replace(node, input=self._linear(node.input))
        columns = names(made)
        return Projection(made, kept((*(n for n in columns if n != WEIGHT), WEIGHT))) if WEIGHT in columns else made

    def _union(self, node: Union) -> Node:
        parts = tuple(map(self._linear, node.inputs))
        if WEIGHT in node.columns or not any(WEIGHT in names(part) for part in parts):
            return replace(node, inputs=tuple(map(_last, parts)))
        return Union(tuple(_last(_counted(part)) for part in parts), (*node.columns, WEIGHT))

    def _inner(self, node: Join) -> Node:
        left, right = self._linear(node.left), self._linear(node.right)
        if WEIGHT not in names(left) or WEIGHT not in names(right):
            return _last(replace(node, left=left, right=right))
        self._count += 1
        other = f"_w{self._count}"
        renamed = Projection(right, tuple(Item(other if n == WEIGHT else n, column(n)) for n in names(right)))
        product = Item(WEIGHT, compose("{} * {}", column(WEIGHT), column(other), op=Op.MUL))
        columns = tuple(name for name in (*names(left), *names(right)) if name != WEIGHT)
        return Projection(replace(node, left=left, right=renamed), (*kept(columns), product))

    def _sided(self, node: Join) -> Node:
        once = node.kind is not Kind.LEFT
        return _last(replace(node, left=self._linear(node.left), right=self.rows(node.right, once=once)))


def _linear(node: Node) -> bool:
    return isinstance(node, Scan | Projection | Filter | Explode | Union | Join) and not (
        isinstance(node, Join) and node.kind is Kind.FULL
    )


def _restricted(node: Node) -> bool:
    """Return whether a linear tree has few rows: those that match few others."""
    if isinstance(node, Union):
        return all(map(_restricted, node.inputs))
    if isinstance(node, Join) and node.kind is Kind.INNER:
        return node.few is not None or _restricted(node.left) or _restricted(node.right)
    if isinstance(node, Join) and node.kind is Kind.SEMI:
        return node.few is Side.RIGHT or _restricted(node.left)
    return not isinstance(node, Scan) and _linear(node) and _restricted(inputs(node)[0])


def _counted(node: Node) -> Node:
    if WEIGHT in names(node):
        return node
    return Projection(node, (*kept(names(node)), Item(WEIGHT, compose("CAST(1 AS BIGINT)", op=Op.CALL))))


def _last(node: Node) -> Node:
    """Return a tree with the weight, if it has one, as its last column."""
    columns = names(node)
    if WEIGHT not in columns or columns[-1] == WEIGHT:
        return node
    return Projection(node, kept((*(name for name in columns if name != WEIGHT), WEIGHT)))
