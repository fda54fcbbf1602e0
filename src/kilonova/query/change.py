"""How the rows of a tree change when those of its channels do.

`change(T)` is a tree with a weight beside each row such that, for every tree and every change of its channels,

    T(new) = T(old) + change(T)

as bags with weights. Linear operators pass changes on; joins take the two-term form; whatever works group by group
(outer joins, aggregates, windows) is computed before and after for the groups that the change touches. One row made of
others is replaced: the rows of a join of changes are as many as the product of theirs. Whether a row
comes and goes in one change is only known once weights are added up: see `consolidated`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from kilonova.query.comparing import compared
from kilonova.query.expression import Scalar, column, equal, parse
from kilonova.query.ordering import chained, flattened
from kilonova.query.properties import Known, equated, filled, single, unique
from kilonova.query.restricting import Keys, restricted
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
    Side,
    Top,
    Union,
    Unit,
    Window,
    at,
    channels,
    inputs,
    kept,
    names,
    with_inputs,
)
from kilonova.query.weights import together, weighed


def change(node: Node, moved: frozenset[str], known: Known) -> Node | None:
    """The change of a tree.

    Args:
        node: the tree.
        moved: the channels that have changed.
        known: the channels that it reads.

    Returns:
        Its columns and the weight; None if nothing changes.
    """
    if not moved & set(channels(node)):
        return None
    return _Changing(moved, known).of(node)


def touched(
    node: Node, values: tuple[Scalar, ...], moved: frozenset[str], known: Known
) -> tuple[Keys, tuple[tuple[Scalar, str], ...]]:
    """The values that some expressions have in rows that come or go."""
    changing = _Changing(moved, known)
    return changing.keys(((node, values),), nulls=changing.null(node, values))


class _Changing:
    """The rules, one per operator."""

    def __init__(self, moved: frozenset[str], known: Known) -> None:
        self._moved = moved
        self._known = known
        self._count = 0

    def _moves(self, node: Node) -> bool:
        return bool(self._moved & set(channels(node)))

    def _old(self, node: Node) -> Node:
        """A tree before the change; scans of channels that stay as they are read what is there."""
        if isinstance(node, Scan):
            return at(node, At.OLD) if node.channel in self._moved else node
        return with_inputs(node, tuple(self._old(below) for below in inputs(node)))

    def of(self, node: Node) -> Node:
        """The change of a tree of which some channel has changed."""
        match node:
            case Scan():
                return replace(node, at=At.CHANGE)
            case Project():
                return Project(self.of(node.input), (*node.items, *kept((WEIGHT,))))
            case Filter() | Explode():
                return replace(node, input=self.of(node.input))
            case Union():
                return self._union(node)
            case Join() if single(node, self._known):
                return self._replaced(node)
            case Join(kind=Kind.INNER):
                return self._inner(node)
            case Join(kind=Kind.FULL):
                return self._full(node)
            case Join():
                return self._sided(node)
            case Aggregate():
                return self._grouped(node, tuple(item.value for item in node.keys))
            case Window():
                return self._grouped(node, node.partition)
            case Top():
                return self._replaced(node)
            case Unit():
                raise AssertionError("no channel below")
            case _:
                assert_never(node)

    def keys(
        self, sources: tuple[tuple[Node, tuple[Scalar, ...]], ...], *, nulls: bool
    ) -> tuple[Keys, tuple[tuple[Scalar, str], ...]]:
        """The values of expressions in the changed rows of trees, and the first tree's expressions with them."""
        width = len(sources[0][1])
        columns = tuple(self._name() for _ in range(width))
        parts: list[Node] = []
        for source, wanted in sources:
            for node, values in self._touching(source, wanted):
                items = tuple(Item(name, value) for name, value in zip(columns, values, strict=True))
                parts.append(Project(self.of(node), items))
        rows = parts[0] if len(parts) == 1 else Union(tuple(parts), columns)
        return Keys(rows, nulls), tuple(zip(sources[0][1], columns, strict=True))

    def _touching(self, node: Node, values: tuple[Scalar, ...]) -> list[tuple[Node, tuple[Scalar, ...]]]:
        """Trees in whose changed rows expressions have all the values, or more, that others have in those of a tree.

        What changes in a join has the values by which rows meet, on whichever side it changes: nothing is joined, nor
        is what stays as it is.
        """
        if not self._moves(node):
            return []
        if isinstance(node, Project):
            items = {item.name: item.value for item in node.items}
            return self._touching(node.input, tuple(value.with_columns(items) for value in values))
        if isinstance(node, Join) and node.kind is not Kind.FULL:
            met = dict(equated(node.condition, frozenset(names(node.left)), frozenset(names(node.right))))
            if values and all(value in met for value in values):
                others = tuple(met[value] for value in values)
                return [*self._touching(node.left, values), *self._touching(node.right, others)]
            needed = frozenset(name for value in values for name in value.columns)
            if needed <= set(names(node.left)) and not self._moves(node.right):
                return self._touching(node.left, values)
            if node.kind is Kind.INNER and needed <= set(names(node.right)) and not self._moves(node.left):
                return self._touching(node.right, values)
        return [(node, values)]

    def null(self, node: Node, values: tuple[Scalar, ...]) -> bool:
        """Whether expressions may be null in a tree."""
        full = filled(node, self._known)
        return not all(value.name in full for value in values)

    def _name(self) -> str:
        self._count += 1
        return f"_k{self._count}"

    def _union(self, node: Union) -> Node:
        parts: list[Node] = []
        for part in node.inputs:
            if self._moves(part):
                pairs = zip(node.columns, names(part), strict=True)
                items = tuple(Item(name, column(source)) for name, source in pairs)
                parts.append(Project(self.of(part), (*items, *kept((WEIGHT,)))))
        return together(parts, node.columns)

    def _inner(self, node: Join) -> Node:
        """Δ(L ⋈ R) = ΔL ⋈ R + L₀ ⋈ ΔR, with R after and L₀ before the change."""
        own = node.condition.conjuncts() if node.condition is not None else ()
        parts: list[Node] = []
        for some, rest in ((node.left, node.right), (node.right, self._old(node.left))):
            if self._moves(some):
                others, conditions = flattened(rest)
                parts.append(chained(self.of(some), others, (*own, *conditions), Side.LEFT))
        return together(parts, names(node))

    def _sided(self, node: Join) -> Node:
        """Linear on the left; what changes on the right touches the rows of the left that can meet it.

        Where these meet one row of the right at most, the join is linear on the right as well.
        """
        pairs = equated(node.condition, frozenset(names(node.left)), frozenset(names(node.right)))
        ones, others = tuple(one for one, _ in pairs), tuple(other for _, other in pairs)
        once = self._met_once(node, others)
        if pairs and self._moves(node.right) and not once:
            keys, mine = self.keys(((node.left, ones), (node.right, others)), nulls=self.null(node.left, ones))
            if (found := self._compared(node, mine, others, keys)) is not None:
                return found
        parts: list[Node] = []
        if self._moves(node.left):
            met, few = node.right, None
            if pairs:
                keys, mine = self.keys(((node.left, ones),), nulls=False)
                met = restricted(met, tuple((other, key) for other, (_, key) in zip(others, mine, strict=True)), keys)
                few = Side.RIGHT
            parts.append(replace(node, left=self.of(node.left), right=met, few=few))
        if self._moves(node.right) and once:
            parts.append(self._meeting(node, pairs))
        elif self._moves(node.right):
            left = self._old(node.left)
            new, old, few = node.right, self._old(node.right), None
            if pairs:
                keys, theirs = self.keys(((node.right, others),), nulls=False)
                mine = tuple((one, key) for one, (_, key) in zip(ones, theirs, strict=True))
                left, few = restricted(left, mine, keys), Side.RIGHT
                new, old = restricted(new, theirs, keys), restricted(old, theirs, keys)
            parts.append(weighed(replace(node, left=left, right=new, few=few), 1))
            parts.append(weighed(replace(node, left=left, right=old, few=few), -1))
        return together(parts, names(node))

    def _met_once(self, node: Join, others: tuple[Scalar, ...]) -> bool:
        """Whether a row of the left meets one of the right at most, for what they have in common and nothing else."""
        met = {other.name for other in others}
        own = node.condition.conjuncts() if node.condition is not None else ()
        return len(own) == len(others) and any(set(key) <= met for key in unique(node.right, self._known))

    def _meeting(self, node: Join, pairs: tuple[tuple[Scalar, Scalar], ...]) -> Node:
        """What rows that come and go on the right change, where each row of the left meets one of them at most.

        With the row that a row of the left meets it gains or loses itself (⋉), is lost or gained (▷), or has that row
        in place of nulls (⟕): so this is linear on the right as well, and nothing else of the right is read.
        """
        weight = column(WEIGHT)
        rows: Node = self.of(node.right)
        met = tuple(Item(self._name(), other) for _, other in pairs)
        columns: tuple[Item, ...] = ()
        if node.kind is Kind.LEFT:
            name = self._name()
            padded = column(name)
            rows = Explode(rows, Scalar("EXPLODE(ARRAY(FALSE, TRUE))"), False, (name,))
            weight = parse(f"CASE WHEN {padded.sql} THEN -{weight.sql} ELSE {weight.sql} END")
            columns = tuple(
                Item(n, parse(f"CASE WHEN NOT {padded.sql} THEN {column(n).sql} END")) for n in names(node.right)
            )
        elif node.kind is Kind.ANTI:
            weight = parse(f"-{weight.sql}")
        rows = Project(rows, (*met, *columns, Item(WEIGHT, weight)))
        on = tuple(equal(one, column(item.name)) for (one, _), item in zip(pairs, met, strict=True))
        others, conditions = flattened(self._old(node.left))
        return Project(chained(rows, others, (*on, *conditions), Side.LEFT), kept((*names(node), WEIGHT)))

    def _compared(
        self, node: Join, mine: tuple[tuple[Scalar, str], ...], others: tuple[Scalar, ...], keys: Keys
    ) -> Node | None:
        """The change of a join found by comparing what is touched, if that takes one pass."""
        theirs = tuple((other, key) for other, (_, key) in zip(others, mine, strict=True))
        touched = replace(node, left=restricted(node.left, mine, keys), right=restricted(node.right, theirs, keys))
        return compared(touched, self._moved, keys)

    def _full(self, node: Join) -> Node:
        pairs = equated(node.condition, frozenset(names(node.left)), frozenset(names(node.right)))
        if not pairs:
            return self._replaced(node)
        ones, others = tuple(one for one, _ in pairs), tuple(other for _, other in pairs)
        nulls = self.null(node.left, ones) or self.null(node.right, others)
        keys, mine = self.keys(((node.left, ones), (node.right, others)), nulls=nulls)
        if (found := self._compared(node, mine, others, keys)) is not None:
            return found
        theirs = tuple((other, key) for other, (_, key) in zip(others, mine, strict=True))
        part = replace(node, left=restricted(node.left, mine, keys), right=restricted(node.right, theirs, keys))
        before = replace(
            node,
            left=restricted(self._old(node.left), mine, keys),
            right=restricted(self._old(node.right), theirs, keys),
        )
        return together([weighed(part, 1), weighed(before, -1)], names(node))

    def _grouped(self, node: Aggregate | Window, values: tuple[Scalar, ...]) -> Node:
        """Each group that the change touches, after it and before."""
        if not values:
            return self._replaced(node)
        keys, wanted = self.keys(((node.input, values),), nulls=self.null(node.input, values))
        new = replace(node, input=restricted(node.input, wanted, keys))
        old = replace(node, input=restricted(self._old(node.input), wanted, keys))
        return together([weighed(new, 1), weighed(old, -1)], names(node))

    def _replaced(self, node: Node) -> Node:
        """Everything after the change instead of everything before it."""
        return together([weighed(node, 1), weighed(self._old(node), -1)], names(node))
