"""Joint relation of an old and a new query: one relation that has the rows of both.

A joint relation J of the queries O and N has two conditions and two lists of expressions over its columns, with

    O = the old expressions of the rows of J for which `was` is true
    N = the new expressions of the rows of J for which `now` is true

as bags. So the rows that a migration removes, adds or changes are those for which only `was`, only `now`, or both are
true. Lookups are joined to the rows only where their columns are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kilonova.query.column_pruning import prune_columns
from kilonova.query.expression import Op, Scalar, and_
from kilonova.query.migration.equivalence import canonical
from kilonova.query.predicate_pushdown import push_predicates
from kilonova.query.tree import Aggregate, Filter, Item, Join, Kind, Node, Projection, inputs, names, with_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Relation of which at most one row matches each row of the joint one.

    Attributes:
        rows: the relation.
        condition: the join condition: equalities, and conditions on the relation.
        marker: a column that is null exactly where no row matches.
    """

    rows: Node
    condition: Scalar
    marker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """Joint relation of an old and a new query; for its meaning see the module.

    Attributes:
        tree: its rows, without the lookups.
        old: the columns of the old query as expressions over the columns of the tree and the lookups.
        new: the columns of the new query likewise.
        was: the conditions under which a row is one of the old query.
        now: the conditions under which a row is one of the new query.
        lookups: the lookups; the condition of each may use the columns of earlier ones.
        holds: conditions that are true for all rows.
    """

    tree: Node
    old: Mapping[str, Scalar]
    new: Mapping[str, Scalar]
    was: tuple[Scalar, ...] = ()
    now: tuple[Scalar, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    holds: tuple[Scalar, ...] = field(default=())

    @property
    def steady(self) -> bool:
        """Return whether both queries have the same rows, up to their columns."""
        return {canonical(each) for each in self.was} == {canonical(each) for each in self.now}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the tree and the lookups."""
        return (*names(self.tree), *(name for lookup in self.lookups for name in names(lookup.rows)))

    def select(self, conditions: Iterable[Scalar], items: tuple[Item, ...]) -> Node:
        """Return expressions over the rows for which some conditions are true."""
        return prune_columns(Projection(self.filtered(conditions, (item.value for item in items)), items))

    def filtered(self, conditions: Iterable[Scalar], read: Iterable[Scalar]) -> Node:
        """Return the rows for which some conditions are true, with at least the columns of some expressions."""
        pending = {canonical(each): each for each in conditions}
        needed = {name for each in read for name in each.columns}
        used: list[Lookup] = []
        for lookup in reversed(self.lookups):
            asked = needed.union(*(each.columns for each in (*pending.values(), *(each.condition for each in used))))
            if asked & set(names(lookup.rows)):
                used.insert(0, lookup)
        node = _kept(self.tree, [each for each in pending.values() if each.columns <= set(names(self.tree))])
        for lookup in used:
            node = _looked_up(node, lookup, pending, needed)
        rest = [each for each in pending.values() if not each.columns <= set(names(self.tree))]
        return _safe_first(push_predicates(_kept(node, rest)))


def marked(condition: Scalar, lookup: Lookup) -> bool | None:
    """Return whether a condition says that a row of a lookup matches (true) or that none does; None if neither."""
    bare, positive = condition.bare, False
    if bare.op is Op.NOT:
        bare, positive = bare.operands[0].bare, True
    if bare.op is not Op.IS:
        return None
    value, what = bare.operands if len(bare.operands) == 2 else (bare.operands[0], None)
    if value.bare.name != lookup.marker or (what is not None and what.op is not Op.NULL):
        return None
    return positive


_FAILING = frozenset({Op.DIV, Op.CAST, Op.CALL, Op.OTHER})
"""Operators whose evaluation may fail for some values."""


def _safe_first(node: Node) -> Node:
    """Return a tree whose filters evaluate conditions that cannot fail first.

    The conditions of a query that protect others (`x <> 0 AND 1 / x > 2`) may be among those that differ.
    """
    node = with_inputs(node, tuple(map(_safe_first, inputs(node))))
    return _kept(node.input, list(safe_first(node.condition.conjuncts()))) if isinstance(node, Filter) else node


def safe_first(conditions: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """Return conditions in an order that evaluates those first that cannot fail."""
    return tuple(sorted(conditions, key=_may_fail))


def _may_fail(expression: Scalar) -> bool:
    failing = expression.op in _FAILING and bool(expression.columns)
    return failing or any(map(_may_fail, expression.operands))


def _kept(node: Node, conditions: list[Scalar]) -> Node:
    condition = and_(tuple(conditions))
    return node if condition is None else Filter(node, condition)


def _looked_up(node: Node, lookup: Lookup, pending: dict[str, Scalar], needed: set[str]) -> Node:
    """Join a lookup; conditions on its marker determine the kind of the join, and are done with."""
    own = set(names(lookup.rows))
    marks = {text: is_met for text, each in pending.items() if (is_met := marked(each, lookup)) is not None}
    others = needed.union(*(each.columns for text, each in pending.items() if text not in marks))
    kind = Kind.LEFT
    if set(marks.values()) == {True}:
        kind = Kind.INNER if others & own else Kind.SEMI
    elif set(marks.values()) == {False} and not others & own:
        kind = Kind.ANTI
    if kind is not Kind.LEFT:
        for text in marks:
            del pending[text]
    rows = lookup.rows
    if kind in (Kind.SEMI, Kind.ANTI) and isinstance(rows, Aggregate) and not rows.calls:  # need not be distinct
        rows = Projection(rows.input, rows.keys)
    return Join(node, rows, kind, lookup.condition)
