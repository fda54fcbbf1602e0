"""Evaluation of a tree before and after a change in one pass, where the change touches few of its rows.

Every row is tagged as belonging to the state before the change or to the state after it; the tag acts as part of every
key, so that operators only combine rows of one state. A channel is read once: its old rows together with its change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from kilonova.query.expression import Op, and_, column, compose, eq
from kilonova.query.key_restriction import KeySet
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
    Union,
    inputs,
    kept,
    names,
    with_inputs,
)
from kilonova.query.zset import to_distinct_rows, to_rows, with_weight


def diff_by_key(node: Node, moved: frozenset[str], to: KeySet) -> Node | None:
    """Return the difference of a tree before and after a change.

    Args:
        node: the tree, restricted to the keys that the change touches.
        moved: the channels that have changed.
        to: the keys to which it is restricted.

    Returns:
        Its rows after the change with weight 1 and those before it with weight -1; None where two passes are needed.
    """
    try:
        made, after = _Comparing(moved, to).of(node)
    except _TwoPasses:
        return None
    weight = compose("CASE WHEN {} THEN CAST(1 AS BIGINT) ELSE CAST(-1 AS BIGINT) END", column(after), op=Op.CALL)
    return Projection(made, (*kept(names(node)), Item(WEIGHT, weight)))


class _TwoPasses(Exception):
    """Signal that the states before and after cannot be computed in one pass."""


_TRUE = compose("TRUE", op=Op.BOOLEAN)
_BOTH = compose("EXPLODE(ARRAY(TRUE, FALSE))")


class _Comparing:
    def __init__(self, moved: frozenset[str], to: KeySet) -> None:
        self._moved = moved
        self._to = to
        self._after: Iterator[str] = (f"_after{number}_{names(to.node)[0]}" for number in count())

    def of(self, node: Node, *, once: bool = False) -> tuple[Node, str]:
        """Return the tree with a Boolean column that is true for rows after the change, and that column's name.

        Args:
            node: the tree.
            once: whether it does not matter how often it has a row.
        """
        if not self._moves(node):
            after = next(self._after)
            return Explode(node, _BOTH, False, (after,)), after
        if self._plain(node):
            return self._read(node, once)
        match node:
            case Filter() | Explode():
                below, after = self.of(node.input)
                return replace(node, input=below), after
            case Projection():
                below, after = self.of(node.input)
                return Projection(below, (*node.items, *kept((after,)))), after
            case Aggregate() if node.keys:
                below, after = self.of(node.input)
                return replace(node, input=below, keys=(*node.keys, *kept((after,)))), after
            case Union():
                return self._union(node)
            case Join():
                return self._join(node)
            case _:
                raise _TwoPasses

    def _unrestricted(self, node: Node) -> Node | None:
        """Return the input of a semi-join with the touched keys; None if the node is something else."""
        if isinstance(node, Join) and node.kind is Kind.SEMI and isinstance(node.right, Projection):
            return node.left if node.right.input == self._to.node else None
        return None

    def _moves(self, node: Node) -> bool:
        if isinstance(node, Scan):
            return node.channel in self._moved
        rest = self._unrestricted(node)
        return any(map(self._moves, inputs(node) if rest is None else (rest,)))

    def _plain(self, node: Node) -> bool:
        """Return whether a tree computes each of its rows from one row of one channel."""
        if isinstance(node, Scan):
            return True
        rest = self._unrestricted(node)
        if rest is None and isinstance(node, Projection | Filter | Explode):
            rest = node.input
        return rest is not None and self._plain(rest)

    def _few(self, node: Node) -> bool:
        """Return whether a plain tree is restricted to the touched keys."""
        return self._unrestricted(node) is not None or any(map(self._few, inputs(node)))

    def _read(self, node: Node, once: bool) -> tuple[Node, str]:
        """Read a channel once: old rows count for both states, unless the change removes them."""
        if not self._few(node):
            raise _TwoPasses
        after = next(self._after)
        columns = names(node)
        every = (*columns, after, WEIGHT)
        before = Projection(Explode(with_weight(self._at(node, At.OLD), 1), _BOTH, False, (after,)), kept(every))
        change = Projection(self._at(node, At.CHANGE), (*kept(columns), Item(after, _TRUE), *kept((WEIGHT,))))
        added_up = to_distinct_rows if once else to_rows
        return added_up(Union((before, change), every), (*columns, after)), after

    def _at(self, node: Node, when: At) -> Node:
        """Return a plain tree over other rows of its channel, with their weights if they have any."""
        match node:
            case Scan():
                return replace(node, at=when)
            case Projection():
                below = self._at(node.input, when)
                weight = kept((WEIGHT,)) if WEIGHT in names(below) else ()
                return Projection(below, (*node.items, *weight))
            case Join():
                return replace(node, left=self._at(node.left, when))
            case _:
                return with_inputs(node, tuple(self._at(below, when) for below in inputs(node)))

    def _union(self, node: Union) -> tuple[Node, str]:
        after = next(self._after)
        parts = []
        for part in node.inputs:
            made, own = self.of(part)
            pairs = zip(node.columns, names(part), strict=True)
            items = tuple(Item(name, column(source)) for name, source in pairs)
            parts.append(Projection(made, (*items, Item(after, column(own)))))
        return Union(tuple(parts), (*node.columns, after)), after

    def _join(self, node: Join) -> tuple[Node, str]:
        if (rest := self._unrestricted(node)) is not None:
            left, after = self.of(rest)
            return replace(node, left=left), after
        if node.kind is Kind.INNER and not (self._moves(node.left) and self._moves(node.right)):
            if self._moves(node.right):
                right, after = self.of(node.right)
                return replace(node, right=right), after
            left, after = self.of(node.left)
            return replace(node, left=left), after
        left, after = self.of(node.left)
        if node.kind is not Kind.FULL and not self._moves(node.right):
            return replace(node, left=left), after
        right, other = self.of(node.right, once=node.kind in (Kind.SEMI, Kind.ANTI))
        own = node.condition.conjuncts() if node.condition is not None else ()
        made = replace(node, left=left, right=right, condition=and_((*own, eq(column(after), column(other)))))
        if node.kind is not Kind.FULL:
            return made, after
        either = Item(next(self._after), compose("COALESCE({}, {})", column(after), column(other), op=Op.COALESCE))
        return Projection(made, (*kept(names(node)), either)), either.name
