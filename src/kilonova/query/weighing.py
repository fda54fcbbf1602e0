"""Channels read as rows with weights where that will do: then nobody has to merge their deltas first.

What has come and gone since a channel's base stands beside it; weights add up to the rows that are there. Whatever is
linear (filters, projections, inner joins) passes weights on, as it does those of a change. What is not linear needs
the rows themselves: where these are few, because a change touches few, their weights are added up right there; where
they may be many, the merged rows are read.
"""

from __future__ import annotations

from dataclasses import replace

from kilonova.query.expression import Scalar, column, parse
from kilonova.query.tree import (
    WEIGHT,
    At,
    Explode,
    Filter,
    Item,
    Join,
    Kind,
    Node,
    Project,
    Scan,
    Side,
    Union,
    inputs,
    kept,
    names,
    with_inputs,
)
from kilonova.query.weights import settled


def weighing(node: Node, layered: frozenset[str]) -> Node:
    """A change that reads rows with weights where it can.

    Args:
        node: the change of a tree.
        layered: the channels that have deltas after their base.
    """
    return _Weighing(layered).rows(node)


class _Weighing:
    def __init__(self, layered: frozenset[str]) -> None:
        self._layered = layered
        self._count = 0

    def rows(self, node: Node) -> Node:
        """A tree with the same rows; if it has weights already, they may be spread over more rows."""
        if WEIGHT in names(node):
            return self._linear(node)
        if _linear(node) and _restricted(node):
            made = self._linear(node)
            return made if WEIGHT not in names(made) else settled(made, names(node))
        return with_inputs(node, tuple(map(self.rows, inputs(node))))

    def _linear(self, node: Node) -> Node:
        """A tree with its columns and, if there is more to read than rows that count once, their weight."""
        match node:
            case Scan() if node.at is not At.CHANGE and node.channel in self._layered:
                return replace(node, weighed=True)
            case Project():
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

    def _project(self, node: Project) -> Node:
        below = self._linear(node.input)
        if WEIGHT not in names(below) or WEIGHT in names(node.input):
            return replace(node, input=below)
        own = next((item.value for item in node.items if item.name == WEIGHT), None)
        weight = column(WEIGHT) if own is None else parse(f"{column(WEIGHT).sql} * ({own.sql})")
        return Project(below, (*(item for item in node.items if item.name != WEIGHT), Item(WEIGHT, weight)))

    def _exploded(self, node: Explode) -> Node:
        made = replace(node, input=self._linear(node.input))
        columns = names(made)
        return Project(made, kept((*(n for n in columns if n != WEIGHT), WEIGHT))) if WEIGHT in columns else made

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
        renamed = Project(right, tuple(Item(other if n == WEIGHT else n, column(n)) for n in names(right)))
        product = Item(WEIGHT, Scalar(f"{column(WEIGHT).sql} * {column(other).sql}"))
        columns = tuple(name for name in (*names(left), *names(right)) if name != WEIGHT)
        return Project(replace(node, left=left, right=renamed), (*kept(columns), product))

    def _sided(self, node: Join) -> Node:
        return _last(replace(node, left=self._linear(node.left), right=self.rows(node.right)))


def _linear(node: Node) -> bool:
    return isinstance(node, Scan | Project | Filter | Explode | Union | Join) and not (
        isinstance(node, Join) and node.kind is Kind.FULL
    )


def _restricted(node: Node) -> bool:
    """Whether the rows of a linear tree are few: those that meet few others."""
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
    return Project(node, (*kept(names(node)), Item(WEIGHT, Scalar("CAST(1 AS BIGINT)"))))


def _last(node: Node) -> Node:
    """A tree with the weight, if it has one, as its last column."""
    columns = names(node)
    if WEIGHT not in columns or columns[-1] == WEIGHT:
        return node
    return Project(node, kept((*(name for name in columns if name != WEIGHT), WEIGHT)))
