"""A tree before and after a change in one pass, where the change touches few of its rows.

Every row stands for the time before the change or the time after it; what is computed of rows is computed of those of
one time, as if the time were part of every key. So a channel is read once: as it was, with its change beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from kilonova.query.expression import Scalar, both, column, equal, parse
from kilonova.query.restricting import Keys
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
    Project,
    Scan,
    Union,
    inputs,
    kept,
    names,
    with_inputs,
)
from kilonova.query.weights import settled, weighed


def compared(node: Node, moved: frozenset[str], to: Keys) -> Node | None:
    """What is different in a tree after a change.

    Args:
        node: the tree, restricted to what the change touches.
        moved: the channels that have changed.
        to: what it is restricted to.

    Returns:
        Its rows after the change with weight 1 and those before it with weight -1; None where it takes two passes.
    """
    try:
        made, after = _Comparing(moved, to).of(node)
    except _TwoPasses:
        return None
    weight = parse(f"CASE WHEN {column(after).sql} THEN CAST(1 AS BIGINT) ELSE CAST(-1 AS BIGINT) END")
    return Project(made, (*kept(names(node)), Item(WEIGHT, weight)))


class _TwoPasses(Exception):
    """The two times cannot stand side by side."""


_BOTH = Scalar("EXPLODE(ARRAY(TRUE, FALSE))")


class _Comparing:
    def __init__(self, moved: frozenset[str], to: Keys) -> None:
        self._moved = moved
        self._to = to
        self._after: Iterator[str] = (f"_after{number}_{names(to.node)[0]}" for number in count())

    def of(self, node: Node) -> tuple[Node, str]:
        """A tree with a column that says whether a row is from after the change or from before it; and its name."""
        if not self._moves(node):
            after = next(self._after)
            return Explode(node, _BOTH, False, (after,)), after
        if self._plain(node):
            return self._read(node)
        match node:
            case Filter() | Explode():
                below, after = self.of(node.input)
                return replace(node, input=below), after
            case Project():
                below, after = self.of(node.input)
                return Project(below, (*node.items, *kept((after,)))), after
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
        """What a node leaves only those rows of that the change touches; None if it does something else."""
        if isinstance(node, Join) and node.kind is Kind.SEMI and isinstance(node.right, Project):
            return node.left if node.right.input == self._to.node else None
        return None

    def _moves(self, node: Node) -> bool:
        if isinstance(node, Scan):
            return node.channel in self._moved
        rest = self._unrestricted(node)
        return any(map(self._moves, inputs(node) if rest is None else (rest,)))

    def _plain(self, node: Node) -> bool:
        """Whether a tree has rows of one channel, each by itself."""
        if isinstance(node, Scan):
            return True
        rest = self._unrestricted(node)
        if rest is None and isinstance(node, Project | Filter | Explode):
            rest = node.input
        return rest is not None and self._plain(rest)

    def _few(self, node: Node) -> bool:
        """Whether a plain tree is restricted."""
        return self._unrestricted(node) is not None or any(map(self._few, inputs(node)))

    def _read(self, node: Node) -> tuple[Node, str]:
        """Rows that are there before the change stand for both times, and for one if the change takes them away."""
        if not self._few(node):
            raise _TwoPasses
        after = next(self._after)
        columns = names(node)
        every = (*columns, after, WEIGHT)
        before = Project(Explode(weighed(self._at(node, At.OLD), 1), _BOTH, False, (after,)), kept(every))
        change = Project(self._at(node, At.CHANGE), (*kept(columns), Item(after, Scalar("TRUE")), *kept((WEIGHT,))))
        return settled(Union((before, change), every), (*columns, after)), after

    def _at(self, node: Node, when: At) -> Node:
        """A plain tree over other rows of its channel, with their weights if there are any."""
        match node:
            case Scan():
                return replace(node, at=when)
            case Project():
                below = self._at(node.input, when)
                weight = kept((WEIGHT,)) if WEIGHT in names(below) else ()
                return Project(below, (*node.items, *weight))
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
            parts.append(Project(made, (*items, Item(after, column(own)))))
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
        right, other = self.of(node.right)
        own = node.condition.conjuncts() if node.condition is not None else ()
        made = replace(node, left=left, right=right, condition=both((*own, equal(column(after), column(other)))))
        if node.kind is not Kind.FULL:
            return made, after
        either = Item(next(self._after), parse(f"COALESCE({column(after).sql}, {column(other).sql})"))
        return Project(made, (*kept(names(node)), either)), either.name
