"""Comparison of two queries in the normal form of `kilonova.query.migration.query_block`.

Parts and operators that both have are in the joint relation once. What only one of them has is a lookup if each row
matches at most one row of it: then it filters rows (inner, semi- and anti-join), or adds columns (left join).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kilonova.query.expression import Scalar, and_, column, eq
from kilonova.query.migration.comparer import Comparer
from kilonova.query.migration.equivalence import canonical, is_met, is_null, without
from kilonova.query.migration.joint import Joint, Lookup
from kilonova.query.migration.part_matching import Matches, match_parts
from kilonova.query.migration.query_block import QueryBlock, Step, assemble, read_by
from kilonova.query.migration.unpaired import Unpaired, described
from kilonova.query.properties import Known, equi_pairs, unique
from kilonova.query.tree import Aggregate, Explode, Filter, Item, Join, Kind, Node, Unit, names


@dataclass(slots=True)
class _Query:
    """One of the two queries: what of it is not yet part of the joint relation.

    Attributes:
        conditions: its conditions.
        parts: its remaining parts.
        steps: its remaining operators.
        columns: its columns, as far as they have another name in the joint relation.
    """

    conditions: list[Scalar]
    parts: list[Node]
    steps: list[Step]
    columns: dict[str, Scalar] = field(default_factory=dict)

    def rename(self) -> None:
        """Write the conditions over the joint relation."""
        self.conditions = [each.with_columns(self.columns) for each in self.conditions]


def compare_blocks(comparison: Comparer, old: QueryBlock, new: QueryBlock) -> Joint:
    """Return the joint relation of two queries.

    Raises:
        Unpaired: none was found.
    """
    pairs = match_parts(comparison, old, new)
    while True:
        try:
            return _Joining(comparison, old, new, pairs).joint()
        except _Disconnected as error:
            pairs = {one: other for one, other in pairs.items() if one not in error.parts}


class _Disconnected(Exception):
    """Signal that some parts share no condition with the others, so that their product would be computed."""

    def __init__(self, parts: frozenset[int]) -> None:
        super().__init__()
        self.parts = parts


class _Joining:
    """Joint relation of two queries some of whose parts are matched."""

    def __init__(self, comparison: Comparer, old: QueryBlock, new: QueryBlock, matches: Matches) -> None:
        self._comparison = comparison
        self._blocks = (old, new)
        self._matches = matches
        self._known: Known = comparison.known
        places = {other for other, _ in matches.values()}
        self._old = _Query(
            list(old.conditions), [each for n, each in enumerate(old.parts) if n not in matches], list(old.steps)
        )
        self._new = _Query(
            list(new.conditions), [each for n, each in enumerate(new.parts) if n not in places], list(new.steps)
        )
        self._lookups: list[Lookup] = []
        self._required: set[str] = set()
        for _, joint in matches.values():
            self._old.columns.update(joint.old)
            self._new.columns.update(joint.new)
            self._lookups += joint.lookups
        self._parts = [joint.tree for _, joint in matches.values()]
        self._steps: list[Step] = []
        self._there = {name for part in self._parts for name in names(part)}

    def joint(self) -> Joint:
        old, new = self._old, self._new
        old.rename()
        new.rename()
        self._check_connected()
        for query in (old, new):
            self._look_up_parts(query)
        self._match_steps()
        for query in (old, new):
            for step in query.steps:
                self._look_up_step(query, step)
            query.rename()
        was, now = [*without(old.conditions, ())], [*without(new.conditions, ())]
        for _, joint in self._matches.values():
            was += joint.was
            now += joint.now
        common = [each for each in was if not without((each,), now) and each.columns <= self._there]
        holds = tuple(each for _, joint in self._matches.values() for each in joint.holds)
        return Joint(
            tree=assemble(self._parts, self._steps, common),
            old={name: value.with_columns(old.columns) for name, value in self._blocks[0].columns.items()},
            new={name: value.with_columns(new.columns) for name, value in self._blocks[1].columns.items()},
            was=without(was, common),
            now=without(now, common),
            lookups=tuple(self._lookups),
            holds=(*holds, *common),
        )

    def _check_connected(self) -> None:
        """Check that the parts are joined by conditions that both queries have, if both join them all by equalities.

        Raises:
            _Disconnected: some are not.
        """
        common = [each for each in self._old.conditions if not without((each,), self._new.conditions)]
        groups = self._groups(common)
        if len(groups) == 1:
            return
        most = max(len(self._groups(self._equalities(query), query.parts)) for query in (self._old, self._new))
        if len(groups) <= most:  # one of the queries computes that product as well
            return
        largest = max(groups, key=len)
        places = list(self._matches)
        raise _Disconnected(frozenset(places[n] for group in groups if group is not largest for n in group))

    def _equalities(self, query: _Query) -> list[Scalar]:
        """Return the conditions of a query by which its parts can be joined without computing their product."""
        return [each for each in query.conditions if equi_pairs(each, each.columns, each.columns)]

    def _groups(self, conditions: list[Scalar], further: list[Node] | None = None) -> list[frozenset[int]]:
        """Return the parts, by number, that are connected by conditions."""
        parts = [*self._parts, *(further or [])]
        groups = [frozenset({n}) for n in range(len(parts))]
        for condition in conditions:
            met = {n for n, part in enumerate(parts) if condition.columns & set(names(part))}
            touching = [group for group in groups if group & met]
            if len(touching) > 1:
                groups = [group for group in groups if group not in touching] + [frozenset().union(*touching)]
        own = frozenset(range(len(self._parts)))
        return [group & own for group in groups if group & own]

    def _available(self) -> frozenset[str]:
        return frozenset(self._there).union(*(names(lookup.rows) for lookup in self._lookups))

    def _look_up_parts(self, query: _Query) -> None:
        """Make the remaining parts of a query lookups.

        Raises:
            Unpaired: a row may match several of their rows.
        """
        left = query.parts
        while left:
            done = next((part for part in left if self._look_up_part(query, part)), None)
            if done is None:
                verb = "removed from" if query is self._old else "added to"
                raise Unpaired(f"{described(left[0])} was {verb} a join, in which a row may match several of its rows")
            left.remove(done)

    def _look_up_part(self, query: _Query, part: Node) -> bool:
        columns = frozenset(names(part))
        own = tuple(each for each in query.conditions if each.columns and each.columns <= columns)
        equal = [(each, pair) for each in query.conditions for pair in equi_pairs(each, self._available(), columns)]
        if not self._is_unique(part, [pair for _, pair in equal]):
            return False
        condition, kept = and_(tuple(each for each, _ in equal)), and_(own)
        marker = next(other.name for _, (_, other) in equal if other.name is not None)
        assert condition is not None
        used = [*own, *(each for each, _ in equal)]
        query.conditions = [each for each in query.conditions if each not in used]
        rows = part if kept is None else Filter(part, kept)
        self._require(query, Lookup(rows=rows, condition=condition, marker=marker))
        return True

    def _is_unique(self, rows: Node, pairs: list[tuple[Scalar, Scalar]]) -> bool:
        met = {other.name for _, other in pairs if other.name is not None}
        return bool(met) and any(met.issuperset(key) for key in unique(rows, self._known))

    def _look_up_step(self, query: _Query, step: Step) -> None:
        """Make a remaining operator of a query a lookup.

        Raises:
            Unpaired: it may change how many rows there are otherwise than by conditions.
        """
        if not isinstance(step, Explode):
            condition = None if step.condition is None else step.condition.with_columns(query.columns)
            own = frozenset(names(step.right))
            conditions = () if condition is None else condition.conjuncts()
            pairs = [pair for each in conditions for pair in equi_pairs(each, self._available(), own)]
            known = condition is not None and condition.columns <= self._available() | own
            if step.kind is Kind.LEFT and condition is not None and known and self._is_unique(step.right, pairs):
                marker = next(other.name for _, other in pairs if other.name is not None)
                self._add(query, Lookup(rows=step.right, condition=condition, marker=marker), required=False)
                return
            if step.kind is not Kind.LEFT and pairs and len(pairs) == len(conditions):
                self._look_up_keys(query, step, pairs)
                return
        verb = "removed" if query is self._old else "added"
        what = "a generator" if isinstance(step, Explode) else f"a join with {described(step.right)}"
        raise Unpaired(f"{what} was {verb}, which may change the number of rows")

    def _look_up_keys(self, query: _Query, step: Join, pairs: list[tuple[Scalar, Scalar]]) -> None:
        """Make a semi- or anti-join a lookup of its distinct keys."""
        marker = next((other.name for _, other in pairs if other.name is not None), None)
        if step.kind is Kind.SEMI and step.condition is not None and marker and self._is_unique(step.right, pairs):
            condition = step.condition.with_columns(query.columns)
            self._require(query, Lookup(rows=step.right, condition=condition, marker=marker))
            return
        stem = names(step.right)[0]
        items = tuple(Item(f"{stem}__met{n}", other) for n, (_, other) in enumerate(pairs, 1))
        equal = and_(tuple(eq(one, column(item.name)) for (one, _), item in zip(pairs, items, strict=True)))
        assert equal is not None
        lookup = Lookup(rows=Aggregate(step.right, items, ()), condition=equal, marker=items[0].name)
        if step.kind is Kind.SEMI:
            self._require(query, lookup)
        else:
            marker = self._add(query, lookup, required=False)
            query.conditions.append(is_null(marker))

    def _require(self, query: _Query, lookup: Lookup) -> None:
        """Add a lookup of which a row must match."""
        marker = self._add(query, lookup, required=True)
        query.conditions.append(is_met(marker))

    def _add(self, query: _Query, lookup: Lookup, *, required: bool) -> str:
        """Add a lookup, unless the other query has it; return its marker."""
        if query is self._new:
            for place, other in enumerate(self._lookups):
                found = self._same(other, lookup, filtered=required and other.marker in self._required)
                if found is not None:
                    joint, marker = found
                    self._lookups[place] = replace(other, rows=joint.tree)
                    self._old.conditions += joint.was
                    query.conditions += joint.now
                    query.columns.update(joint.new)
                    query.rename()
                    return marker
        elif required:
            self._required.add(lookup.marker)
        self._lookups.append(lookup)
        return lookup.marker

    def _same(self, one: Lookup, other: Lookup, *, filtered: bool) -> tuple[Joint, str] | None:
        """Return the joint relation of two lookups, and the marker in it; None if they have different rows.

        Args:
            one: a lookup of the old query.
            other: a lookup of the new one.
            filtered: whether their conditions may differ, because a row of each must match.
        """
        try:
            joint = self._comparison.of(one.rows, other.rows)
        except Unpaired:
            return None
        if joint.lookups or not self._comparison.has_same_rows(replace(joint, was=(), now=())):
            return None
        columns = frozenset(names(joint.tree))
        pairs = equi_pairs(one.condition, one.condition.columns - columns, columns)
        differ = joint.was or joint.now
        if differ and not (filtered and self._is_unique(joint.tree, list(pairs))):
            return None
        if any(value.name != name for name, value in joint.old.items()):
            return None
        if canonical(other.condition.with_columns(joint.new)) != canonical(one.condition):
            return None
        marker = joint.new[other.marker].name
        return None if marker is None else (joint, marker)

    def _match_steps(self) -> None:
        """Move the operators that both queries have into the joint relation."""
        old, new = self._old, self._new
        for one in tuple(old.steps):
            for other in new.steps:
                if self._match_step(one, other):
                    old.steps.remove(one)
                    new.steps.remove(other)
                    break

    def _match_step(self, one: Step, other: Step) -> bool:
        match one, other:
            case Explode(), Explode():
                made = one.generator.with_columns(self._old.columns)
                same = canonical(made) == canonical(other.generator.with_columns(self._new.columns))
                if not same or one.outer is not other.outer or not made.columns <= self._there:
                    return False
                self._new.columns.update(zip(other.columns, map(column, one.columns), strict=True))
                self._place(replace(one, generator=made), one.columns)
                return True
            case Join(), Join() if one.kind is other.kind:
                return self._match_join(one, other)
            case _:
                return False

    def _match_join(self, one: Join, other: Join) -> bool:
        try:
            joint = self._comparison.of(one.right, other.right)
        except Unpaired:
            return False
        if not self._comparison.has_same_rows(joint) and self._is_lookup(one) and self._is_lookup(other):
            return False
        right, was, now = self._comparison.plain(joint)
        conditions = [
            None if each.condition is None else each.condition.with_columns({**query.columns, **columns})
            for each, query, columns in ((one, self._old, was), (other, self._new, now))
        ]
        texts = [None if each is None else canonical(each) for each in conditions]
        step = Join(Unit(), right, one.kind, conditions[0])
        if texts[0] != texts[1] or not read_by(step) <= self._there:
            return False
        if one.kind is Kind.LEFT:
            self._old.columns.update(was)
            self._new.columns.update(now)
        self._place(step, names(right) if one.kind is Kind.LEFT else ())
        return True

    def _place(self, step: Step, columns: tuple[str, ...]) -> None:
        self._steps.append(step)
        self._there.update(columns)

    def _is_lookup(self, step: Join) -> bool:
        """Return whether a join can be a lookup."""
        own = frozenset(names(step.right))
        conditions = () if step.condition is None else step.condition.conjuncts()
        pairs = [pair for each in conditions for pair in equi_pairs(each, each.columns - own, own)]
        if step.kind is Kind.LEFT:
            return self._is_unique(step.right, pairs)
        return bool(pairs) and len(pairs) == len(conditions)
