"""Canonical form of a query: equal for trees that only differ in how the query is written.

    canonical_text(q, known) = canonical_text(r, known)  ⇒  q and r have the same rows, and the same column names and
                                                            types in the same order, whatever the channels contain

It disregards the names within a tree, the order of joined relations, conditions, groups and branches of a union,
whether a condition is in WHERE or ON, nesting in subqueries and CTEs, and all that `canonical_expression` disregards.
The converse does not hold: a condition on a group before and after the aggregation makes two forms, and so may a
relation that is joined with itself under a condition that is the same for both sides. A tree that is not deterministic
is compared as it is written.

Rows are described from the bottom up. Inner joins, semi-joins, anti-joins and filters on top of each other are one set
of *parts* with conditions; every other operator makes a part. The columns of a part have names that say what is in
them, and every expression above is an expression over these; so projections leave no trace of their own.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from kilonova.model.schema import quoted
from kilonova.query.canonical_expression import canonical, conjuncts
from kilonova.query.expression import Scalar, and_, column
from kilonova.query.properties import Known, is_deterministic, types
from kilonova.query.rendering import render
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
    names,
)


def canonical_text(tree: Node, known: Known) -> str:
    """Return a text that is equal for queries with the same rows, as far as that can be seen.

    Args:
        tree: the query.
        known: the channels that it reads.
    """
    if not is_deterministic(tree):
        return render(tree, lambda scan: quoted(scan.channel))
    found = _Reader(known).settled(tree)
    return _digest("query", found.text, *(f"{name} {canonical(found.values[name]).sql}" for name in names(tree)))


def canonical_names(tree: Node, known: Known) -> dict[str, str]:
    """Return names for the columns of a relation that follow from what they contain, not from how it is written.

    Args:
        tree: the relation's query.
        known: the channels that it reads.

    Returns:
        The canonical name of each column, in a canonical order: columns that are only passed on come first.
    """
    if not is_deterministic(tree):
        return {name: name for name in names(tree)}
    values = _Reader(known).settled(tree).values
    wanted = {name: (_name(values[name]), canonical(values[name]).sql) for name in names(tree)}
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(wanted, key=lambda each: (wanted[each][0].startswith("_"), *wanted[each])):
        base = wanted[name][0]
        numbered = (base if number == 1 else f"{base}_{number}" for number in itertools.count(1))
        found[name] = next(each for each in numbered if each.lower() not in taken)
        taken.add(found[name].lower())
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """Relation within a join.

    Attributes:
        text: its canonical text.
        branches: the texts and columns of its branches if it is a union whose branches have the same types.
    """

    text: str
    branches: tuple[tuple[str, Mapping[str, Scalar]], ...] = ()


@dataclass(frozen=True, slots=True)
class _Membership:
    """Semi-join or anti-join with a relation, under conditions over the columns of parts and, as `r.…`, of its own."""

    kind: Kind
    text: str
    conditions: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a subtree: the product of parts, restricted by conditions.

    Attributes:
        parts: the parts by number.
        values: the columns of the subtree, as expressions over the columns of the parts: `number.name`.
        conditions: the conditions over these.
        memberships: the semi-joins and anti-joins.
    """

    parts: Mapping[int, _Part]
    values: Mapping[str, Scalar]
    conditions: tuple[Scalar, ...] = ()
    memberships: tuple[_Membership, ...] = ()


@dataclass(frozen=True, slots=True)
class _Settled:
    """Rows of a subtree as a canonical text, and its columns as expressions over columns that the text implies."""

    text: str
    values: Mapping[str, Scalar]


class _Reader:
    """Translation of the operators of one tree."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._numbers = itertools.count()

    def settled(self, node: Node) -> _Settled:
        """Return the canonical form of the rows of a subtree."""
        return _settled(self._rows(node))

    def _rows(self, node: Node) -> _Rows:
        match node:
            case Scan():
                return self._part(
                    f"scan {quoted(node.channel)}", {name: column(source) for source, name in node.columns}
                )
            case Unit():
                return _Rows({}, {})
            case Projection():
                below = self._rows(node.input)
                return replace(below, values={each.name: each.value.with_columns(below.values) for each in node.items})
            case Filter():
                below = self._rows(node.input)
                return replace(below, conditions=(*below.conditions, node.condition.with_columns(below.values)))
            case Join():
                return self._joined(node)
            case Aggregate():
                return self._grouped(node)
            case Union():
                return self._united(node)
            case Window():
                return self._windowed(node)
            case Explode():
                each = self.settled(node.input)
                generator = canonical(node.generator.with_columns(each.values)).sql
                made = {name: column(f"element {place}.{name}") for place, name in enumerate(node.columns)}
                return self._part(_digest("explode", each.text, generator, str(node.outer)), {**each.values, **made})
            case Top():
                first = self.settled(node.input)
                order = [canonical(each.value.with_columns(first.values)).sql + each.direction for each in node.order]
                text = _digest("top", first.text, str(node.limit), str(node.offset), *order)
                return self._part(text, first.values)
            case _:
                assert_never(node)

    def _part(
        self,
        text: str,
        values: Mapping[str, Scalar],
        branches: tuple[tuple[str, Mapping[str, Scalar]], ...] = (),
    ) -> _Rows:
        """Return the rows of a part, whose columns are given without its number."""
        number = next(self._numbers)
        own = {name: _prefixed(value, str(number)) for name, value in values.items()}
        return _Rows({number: _Part(text, branches)}, own)

    def _joined(self, node: Join) -> _Rows:
        if node.kind is Kind.INNER:
            left, right = self._rows(node.left), self._rows(node.right)
            values = {**left.values, **right.values}
            own = () if node.condition is None else (node.condition.with_columns(values),)
            return _Rows(
                {**left.parts, **right.parts},
                values,
                (*left.conditions, *right.conditions, *own),
                (*left.memberships, *right.memberships),
            )
        on, right_node = _pushed(node)
        theirs = self.settled(right_node)
        if node.kind in (Kind.LEFT, Kind.FULL):
            sides = [(self.settled(node.left), theirs)]
            sides += [side[::-1] for side in sides if node.kind is Kind.FULL]
            outer = min((_outer_join(node.kind, on, *side) for side in sides), key=_order)
            return self._part(outer.text, outer.values)
        rows = self._rows(node.left)
        values = {**rows.values, **{name: _prefixed(value, "r") for name, value in theirs.values.items()}}
        met = _Membership(node.kind, theirs.text, tuple(each.with_columns(values) for each in on))
        return replace(rows, memberships=(*rows.memberships, met))

    def _grouped(self, node: Aggregate) -> _Rows:
        below = self.settled(node.input)
        keys = {each.name: canonical(each.value.with_columns(below.values)) for each in node.keys}
        calls = {each.name: canonical(each.value.with_columns(below.values)) for each in node.calls}
        text = _digest("aggregate", below.text, *sorted({value.sql for value in keys.values()}))
        made = {name: _named("key", value) for name, value in keys.items()}
        return self._part(text, {**made, **{name: _named("call", value) for name, value in calls.items()}})

    def _windowed(self, node: Window) -> _Rows:
        stacked: list[Window] = [node]
        while isinstance(lower := stacked[-1].input, Window):
            stacked.append(lower)
        below = self.settled(stacked[-1].input)
        values = dict(below.values)
        for each in reversed(stacked):
            made = {item.name: canonical(item.value.with_columns(values)) for item in each.items}
            values |= {name: _named("window", value) for name, value in made.items()}
        return self._part(_digest("window", below.text), values)

    def _united(self, node: Union) -> _Rows:
        branches: list[tuple[str, tuple[Scalar, ...]]] = []
        for branch in node.inputs:
            below = self._rows(branch)
            own = tuple(below.values[name] for name in names(branch))
            nested = next(iter(below.parts.items())) if len(below.parts) == 1 else None
            if nested and nested[1].branches and not below.conditions and not below.memberships:
                for text, columns in nested[1].branches:
                    inner = {f"{nested[0]}.{name}": value for name, value in columns.items()}
                    branches.append((text, tuple(canonical(value.with_columns(inner)) for value in own)))
            else:
                found = _settled(below)
                branches.append((found.text, tuple(canonical(found.values[name]) for name in names(branch))))
        branches.sort(key=lambda each: (each[0], sorted(each[1]), each[1]))
        slots = [
            f"{_digest('union', *(value.sql for value in values))}.{_name(values[0])}"
            for values in zip(*(values for _, values in branches), strict=True)
        ]
        uniform = all(types(node, self._known).values())
        return self._part(
            _digest("union", *(text for text, _ in branches)),
            {name: column(slot) for name, slot in zip(node.columns, slots, strict=True)},
            tuple((text, dict(zip(slots, values, strict=True))) for text, values in branches) if uniform else (),
        )


def _pushed(node: Join) -> tuple[tuple[Scalar, ...], Node]:
    """Return the conditions of a join, and its right side with those that only restrict that side before the join."""
    on = () if node.condition is None else node.condition.conjuncts()
    if node.kind is Kind.FULL:
        return on, node.right
    right = frozenset(names(node.right))
    alone = and_(tuple(each for each in on if each.columns and each.columns <= right))
    rest = tuple(each for each in on if not each.columns or not each.columns <= right)
    return rest, node.right if alone is None else Filter(node.right, alone)


def _outer_join(kind: Kind, on: tuple[Scalar, ...], left: _Settled, right: _Settled) -> _Settled:
    sides = {"l": left, "r": right}
    values = {name: _prefixed(value, prefix) for prefix, side in sides.items() for name, value in side.values.items()}
    conditions = conjuncts(tuple(each.with_columns(values) for each in on))
    for prefix in ("l", "r") if kind is Kind.FULL else ("r",):
        values |= _frozen(sides[prefix].values, prefix)
    return _Settled(_digest("outer join", kind.value, left.text, right.text, *conditions), values)


def _frozen(values: Mapping[str, Scalar], prefix: str) -> dict[str, Scalar]:
    """Return the columns of a side that an outer join may fill with nulls, where a computed value is null too."""
    found = {}
    for name, value in values.items():
        kept = value if value.name is not None else _named("computed", canonical(value))
        found[name] = _prefixed(kept, prefix)
    return found


def _prefixed(value: Scalar, prefix: str) -> Scalar:
    return value.with_columns({name: column(f"{prefix}.{name}") for name in value.columns})


def _named(what: str, value: Scalar) -> Scalar:
    """Return a column that contains an expression."""
    return column(f"{_digest(what, value.sql)}.{_name(value)}")


_WORD = re.compile(r"[A-Za-z]\w*")


def _name(value: Scalar) -> str:
    """Return a name for a value: that of its column, or of the function that computes it."""
    if value.name is not None and (name := value.name.rpartition(".")[2]):
        return name
    word = _WORD.match(value.bare.sql)
    return "_value" if word is None else f"_{word[0].lower()}"


def _settled(rows: _Rows) -> _Settled:
    arranged = [_arranged(rows, order) for order in _orders(rows)]
    return arranged[0] if len(arranged) == 1 else min(arranged, key=_order)


def _order(form: _Settled) -> tuple[str, list[str]]:
    """Return the sort key of forms that describe the same rows; the columns tell apart those that are symmetric."""
    return form.text, [canonical(value).sql for _, value in sorted(form.values.items())]


def _arranged(rows: _Rows, order: tuple[int, ...]) -> _Settled:
    """Return rows with the parts in some order."""
    places = {str(number): str(place) for place, number in enumerate(order)}
    conditions = conjuncts(tuple(_placed(each, places) for each in rows.conditions))
    memberships = {
        _digest(each.kind.value, each.text, *conjuncts(tuple(_placed(part, places) for part in each.conditions)))
        for each in rows.memberships
    }
    values = {name: _placed(value, places) for name, value in rows.values.items()}
    parts = [rows.parts[number].text for number in order]
    if len(parts) == 1 and not conditions and not memberships:
        return _Settled(parts[0], values)
    return _Settled(_digest("join", str(len(parts)), *parts, *conditions, "with", *sorted(memberships)), values)


def _placed(value: Scalar, places: Mapping[str, str]) -> Scalar:
    split = {name: name.partition(".") for name in value.columns}
    return value.with_columns(
        {name: column(f"{places[first]}.{rest}") for name, (first, _, rest) in split.items() if first in places}
    )


_MOST_ORDERS = 120
"""Orders of parts with the same text that are tried; with more, that in which they are written is taken."""


def _orders(rows: _Rows) -> Iterator[tuple[int, ...]]:
    """Yield the orders of parts to try: sorted, with all orders of those that have the same text and conditions."""
    alike: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    every = [part for each in rows.conditions for part in canonical(each).conjuncts()]
    for number, part in rows.parts.items():
        own = tuple(each for each in every if _numbers(each) == {str(number)})
        conditions = conjuncts(tuple(_placed(each, {str(number): "0"}) for each in own))
        alike.setdefault((part.text, conditions), []).append(number)
    groups = [alike[key] for key in sorted(alike)]
    if math.prod(math.factorial(len(group)) for group in groups) > _MOST_ORDERS:
        yield _flat(groups)
        return
    yield from map(_flat, itertools.product(*map(itertools.permutations, groups)))


def _numbers(value: Scalar) -> set[str]:
    return {name.partition(".")[0] for name in value.columns}


def _flat(groups: Iterable[Iterable[int]]) -> tuple[int, ...]:
    return tuple(itertools.chain.from_iterable(groups))


def _digest(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:32]
