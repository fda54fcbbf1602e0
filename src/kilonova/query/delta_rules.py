"""Delta rules: derivation of the change of a tree from the changes of its channels.

The change `Δ(T)` is a tree with a weight on each row such that, for every tree and every change of its channels,

    T(new) = T(old) + Δ(T)

as weighted bags. Linear operators pass changes on; joins take the two-term form; operators that work by group
(outer joins, aggregates, windows) are computed before and after for the groups that the change touches. A join with
at most one row is replaced, because a join of changes has as many rows as the product of theirs. Whether a row is
both added and removed in one change is only known once weights are added up: see `consolidate`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from kilonova.query.before_after import diff_by_key
from kilonova.query.expression import Op, Scalar, column, compose, eq
from kilonova.query.join_ordering import flatten_joins, join_in_order
from kilonova.query.key_restriction import KeySet, restrict_to_keys
from kilonova.query.properties import Known, equi_pairs, non_null, single, unique
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
from kilonova.query.zset import union_changes, with_weight


def delta_of_tree(node: Node, moved: frozenset[str], known: Known) -> Node | None:
    """Return the change of a tree.

    Args:
        node: the tree.
        moved: the channels that have changed.
        known: the channels that it reads.

    Returns:
        A tree with its columns and the weight; None if nothing changes.
    """
    if not moved & set(channels(node)):
        return None
    return _DeltaRules(moved, known).of(node)


def touched(
    node: Node, values: tuple[Scalar, ...], moved: frozenset[str], known: Known
) -> tuple[KeySet, tuple[tuple[Scalar, str], ...]]:
    """Return the values that some expressions have in rows that are added or removed."""
    changing = _DeltaRules(moved, known)
    return changing.keys(((node, values),), nulls=changing.null(node, values))


class _DeltaRules:
    """Delta rules, one per operator."""

    def __init__(self, moved: frozenset[str], known: Known) -> None:
        self._moved = moved
        self._known = known
        self._count = 0

    def _moves(self, node: Node) -> bool:
        return bool(self._moved & set(channels(node)))

    def _old(self, node: Node) -> Node:
        """Return a tree before the change; scans of unchanged channels read the current rows."""
        if isinstance(node, Scan):
            return at(node, At.OLD) if node.channel in self._moved else node
        return with_inputs(node, tuple(self._old(below) for below in inputs(node)))

    def of(self, node: Node) -> Node:
        """Return the change of a tree that reads at least one changed channel."""
        match node:
            case Scan():
                return replace(node, at=At.CHANGE)
            case Projection():
                return Projection(self.of(node.input), (*node.items, *kept((WEIGHT,))))
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
    ) -> tuple[KeySet, tuple[tuple[Scalar, str], ...]]:
        """Return the values of expressions in changed rows of trees, and the first tree's with their key columns."""
        width = len(sources[0][1])
        columns = tuple(self._name() for _ in range(width))
        parts: list[Node] = []
        for source, wanted in sources:
            for node, values in self._touching(source, wanted):
                items = tuple(Item(name, value) for name, value in zip(columns, values, strict=True))
                parts.append(Projection(self.of(node), items))
        rows = parts[0] if len(parts) == 1 else Union(tuple(parts), columns)
        return KeySet(rows, nulls), tuple(zip(sources[0][1], columns, strict=True))

    def _touching(self, node: Node, values: tuple[Scalar, ...]) -> list[tuple[Node, tuple[Scalar, ...]]]:
        """Return simpler trees and expressions whose changed rows cover all values of the given ones.

        Changed rows of a join contain the values of its equality condition, on whichever side they change: so the join
        is not computed, and the unchanged side is not read.
        """
        if not self._moves(node):
            return []
        if isinstance(node, Projection):
            items = {item.name: item.value for item in node.items}
            return self._touching(node.input, tuple(value.with_columns(items) for value in values))
        if isinstance(node, Join) and node.kind is not Kind.FULL:
            met = dict(equi_pairs(node.condition, frozenset(names(node.left)), frozenset(names(node.right))))
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
        """Return whether any of some expressions may be null in a tree."""
        full = non_null(node, self._known)
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
                parts.append(Projection(self.of(part), (*items, *kept((WEIGHT,)))))
        return union_changes(parts, node.columns)

    def _inner(self, node: Join) -> Node:
        """Δ(L ⋈ R) = ΔL ⋈ R + L₀ ⋈ ΔR, with R after and L₀ before the change."""
        own = node.condition.conjuncts() if node.condition is not None else ()
        parts: list[Node] = []
        for some, rest in ((node.left, node.right), (node.right, self._old(node.left))):
            if self._moves(some):
                others, conditions = flatten_joins(rest)
                parts.append(join_in_order(self.of(some), others, (*own, *conditions), Side.LEFT))
        return union_changes(parts, names(node))

    def _sided(self, node: Join) -> Node:
        """Return the change of a left, semi- or anti-join.

        It is linear on the left; changes on the right touch the rows of the left that they can match. Where a row of
        the left matches at most one row of the right, the join is linear on the right as well.
        """
        pairs = equi_pairs(node.condition, frozenset(names(node.left)), frozenset(names(node.right)))
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
                met = restrict_to_keys(
                    met, tuple((other, key) for other, (_, key) in zip(others, mine, strict=True)), keys
                )
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
                left, few = restrict_to_keys(left, mine, keys), Side.RIGHT
                new, old = restrict_to_keys(new, theirs, keys), restrict_to_keys(old, theirs, keys)
            parts.append(with_weight(replace(node, left=left, right=new, few=few), 1))
            parts.append(with_weight(replace(node, left=left, right=old, few=few), -1))
        return union_changes(parts, names(node))

    def _met_once(self, node: Join, others: tuple[Scalar, ...]) -> bool:
        """Return whether a row of the left matches at most one of the right, and by equalities only."""
        met = {other.name for other in others}
        own = node.condition.conjuncts() if node.condition is not None else ()
        return len(own) == len(others) and any(set(key) <= met for key in unique(node.right, self._known))

    def _meeting(self, node: Join, pairs: tuple[tuple[Scalar, Scalar], ...]) -> Node:
        """Return the effect of changes on the right, where each row of the left matches at most one row of the right.

        When its match is added or removed, a row of the left is added or removed (⋉), removed or added (▷), or has
        that row in place of nulls (⟕): so this is linear on the right as well, and nothing else of the right is read.
        """
        weight = column(WEIGHT)
        rows: Node = self.of(node.right)
        met = tuple(Item(self._name(), other) for _, other in pairs)
        columns: tuple[Item, ...] = ()
        if node.kind is Kind.LEFT:
            name = self._name()
            padded = column(name)
            rows = Explode(rows, compose("EXPLODE(ARRAY(FALSE, TRUE))"), False, (name,))
            weight = compose("CASE WHEN {} THEN -{} ELSE {} END", padded, weight, weight, op=Op.CALL)
            columns = tuple(
                Item(n, compose("CASE WHEN NOT {} THEN {} END", padded, column(n), op=Op.CALL))
                for n in names(node.right)
            )
        elif node.kind is Kind.ANTI:
            weight = compose("-{}", weight, op=Op.NEG)
        rows = Projection(rows, (*met, *columns, Item(WEIGHT, weight)))
        on = tuple(eq(one, column(item.name)) for (one, _), item in zip(pairs, met, strict=True))
        others, conditions = flatten_joins(self._old(node.left))
        return Projection(join_in_order(rows, others, (*on, *conditions), Side.LEFT), kept((*names(node), WEIGHT)))

    def _compared(
        self, node: Join, mine: tuple[tuple[Scalar, str], ...], others: tuple[Scalar, ...], keys: KeySet
    ) -> Node | None:
        """Return the change of a join by comparing the touched rows before and after; None if that takes two passes."""
        theirs = tuple((other, key) for other, (_, key) in zip(others, mine, strict=True))
        touched = replace(
            node, left=restrict_to_keys(node.left, mine, keys), right=restrict_to_keys(node.right, theirs, keys)
        )
        return diff_by_key(touched, self._moved, keys)

    def _full(self, node: Join) -> Node:
        pairs = equi_pairs(node.condition, frozenset(names(node.left)), frozenset(names(node.right)))
        if not pairs:
            return self._replaced(node)
        ones, others = tuple(one for one, _ in pairs), tuple(other for _, other in pairs)
        nulls = self.null(node.left, ones) or self.null(node.right, others)
        keys, mine = self.keys(((node.left, ones), (node.right, others)), nulls=nulls)
        if (found := self._compared(node, mine, others, keys)) is not None:
            return found
        theirs = tuple((other, key) for other, (_, key) in zip(others, mine, strict=True))
        part = replace(
            node, left=restrict_to_keys(node.left, mine, keys), right=restrict_to_keys(node.right, theirs, keys)
        )
        before = replace(
            node,
            left=restrict_to_keys(self._old(node.left), mine, keys),
            right=restrict_to_keys(self._old(node.right), theirs, keys),
        )
        return union_changes([with_weight(part, 1), with_weight(before, -1)], names(node))

    def _grouped(self, node: Aggregate | Window, values: tuple[Scalar, ...]) -> Node:
        """Return the touched groups after the change with weight 1, and before it with weight -1."""
        if not values:
            return self._replaced(node)
        keys, wanted = self.keys(((node.input, values),), nulls=self.null(node.input, values))
        new = replace(node, input=restrict_to_keys(node.input, wanted, keys))
        old = replace(node, input=restrict_to_keys(self._old(node.input), wanted, keys))
        return union_changes([with_weight(new, 1), with_weight(old, -1)], names(node))

    def _replaced(self, node: Node) -> Node:
        """Return all rows after the change with weight 1, and all rows before it with weight -1."""
        return union_changes([with_weight(node, 1), with_weight(self._old(node), -1)], names(node))
