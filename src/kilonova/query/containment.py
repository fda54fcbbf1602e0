"""Containment of conditions: whether the rows of one are rows of another, and the rows that are not.

A condition selects the rows for which it is true, not those for which it is false or null. `implies` is sound: it says
yes only if no row can contradict it, whatever the values of the columns; where it is unsure, it says no.
`difference(wanted, had)` is exact: it is true for a row if and only if `wanted` is and `had` is not.

Both refute a conjunction by search: `premise` is true and `conclusion` is not. Conditions are read as formulas over
sets of values (`condition_reading`), in which null is a value, so that the search (`formula_search`) has two truth
values to look at. See section 2.7 of the paper, on changes to filter conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kilonova.query.condition_reading import ConditionReader
from kilonova.query.condition_rendering import Literals, write_condition
from kilonova.query.expression import Op, Scalar, and_, compose
from kilonova.query.formula_search import Search
from kilonova.query.formulas import FALSE, TRUE, And, Atom, Formula, Or, joined, negated, variables

Types = Mapping[str, str | None]
"""Types of columns by name, in Spark's notation; None if unknown."""

_ROUNDS = 4
"""Number of times that a condition is simplified; each time it may become simpler for what has become of its parts."""

_STEPS = 50_000
"""Number of atoms that searches look at for the simplification of a condition."""


def implies(premise: Scalar | None, conclusion: Scalar, types: Types) -> bool:
    """Return whether every row for which a condition is true makes another true; False if that is not certain.

    Args:
        premise: the condition; None for all rows.
        conclusion: the condition that has to be true.
        types: the types of the columns.
    """
    reader = _reader(types, premise, conclusion)
    if reader is None:
        return False
    return Search().is_refuted([*_conjuncts(reader, premise), negated(reader.true(conclusion))])


def is_unsatisfiable(condition: Scalar, types: Types) -> bool:
    """Return whether a condition is true for no row; False if that is not certain."""
    reader = _reader(types, condition)
    return reader is not None and Search().is_refuted(_conjuncts(reader, condition))


def is_constant(condition: Scalar, types: Types) -> bool:
    """Return whether a condition has the same result for a row in every session, and cannot fail; False if unsure."""
    kinds = [types.get(name) for name in condition.columns]
    if any(kind is None or not _OF_ALL_SESSIONS.fullmatch(kind) for kind in kinds):
        return False
    reader = _reader(types, condition)
    return reader is not None and _is_total(reader.true(condition))


_OF_ALL_SESSIONS = re.compile(r"boolean|tinyint|smallint|int|bigint|decimal\(\d+,\d+\)|float|double|string|date")
"""Types whose comparison does not depend on the time zone of the session."""


def difference(wanted: Scalar | None, had: Scalar | None, types: Types) -> Scalar | None:
    """Return a condition for the rows of one condition that are not rows of another.

    It keeps the conjuncts of `wanted` as they are written, where it does not imply them otherwise.

    Args:
        wanted: the condition whose rows are wanted; None for all rows.
        had: the condition whose rows are not; None for all rows.
        types: the types of the columns.

    Returns:
        A condition that is true exactly for the rows for which `wanted` is true and `had` is false or null, as far as
        both are deterministic; None if there are certainly no such rows.
    """
    if had is None:
        return None
    reader = _reader(types, wanted, had)
    if reader is None:
        lacking = compose("NOT COALESCE({}, FALSE)", had.bare, op=Op.NOT)
        return and_((*(wanted.conjuncts() if wanted is not None else ()), lacking))
    own, rest = _conjuncts(reader, wanted), negated(reader.true(had))
    if Search().is_refuted([*own, rest]):
        return None
    added = rest.parts if isinstance(rest, And) else (rest,)
    placed = [*enumerate(own), *((_place(own, part), part) for part in added)]
    parts = tuple(part for _, part in sorted(placed, key=lambda pair: pair[0]))
    simple = _Simplification(reader.terms.literals).of(And(parts))
    return None if simple == FALSE else write_condition(simple, reader.terms.literals)


def _reader(types: Types, *conditions: Scalar | None) -> ConditionReader | None:
    """Return a reader of conditions; None if one of them is not deterministic."""
    if all(one is None or one.steady for one in conditions):
        return ConditionReader(types, *conditions)
    return None


def _conjuncts(reader: ConditionReader, condition: Scalar | None) -> list[Formula]:
    return [] if condition is None else [reader.true(part) for part in condition.conjuncts()]


def _is_total(formula: Formula) -> bool:
    """Return whether the evaluation of a formula cannot fail."""
    return all(variable.total for variable in variables(formula))


def _place(parts: list[Formula], part: Formula) -> int:
    """Return after which conjunct to insert another: what it is about; the last if its evaluation could fail."""
    if not _is_total(part):
        return len(parts)
    own = variables(part)
    return next((n for n, one in enumerate(parts) if variables(one) & own), len(parts))


class _Simplification:
    """Simplification of conditions, in which each part is replaced by the simplest that is as good with the others.

    A part is seen together with those that are evaluated before it, and with later ones whose evaluation cannot fail:
    in `x > 0 AND 1 / x > 2`, which implies the first conjunct, this one is needed.
    """

    def __init__(self, literals: Literals) -> None:
        self._literals = literals
        self._search = Search(_STEPS)

    def of(self, formula: Formula) -> Formula:
        for _ in range(_ROUNDS):
            before, formula = formula, self._within(formula, ())
            if formula == before:
                break
        return formula

    def _within(self, formula: Formula, context: tuple[Formula, ...]) -> Formula:
        """Return a formula that is equivalent where some formulas are true."""
        if self._search.is_refuted([*context, formula]):
            return FALSE
        if self._search.is_refuted([*context, negated(formula)]):
            return TRUE
        match formula:
            case Atom():
                return self._atom(formula, context)
            case And():
                return self._parts(And, formula, context)
            case Or():
                return self._parts(Or, formula, context)

    def _parts(self, kind: type[And] | type[Or], formula: And | Or, context: tuple[Formula, ...]) -> Formula:
        parts = list(formula.parts)
        for n in (*(n for n, part in enumerate(parts) if part.source is None), *range(len(parts))):
            others = (*parts[:n], *_total(parts[n + 1 :]))
            parts[n] = self._within(parts[n], (*context, *(others if kind is And else map(negated, others))))
        if parts == list(formula.parts):
            return formula
        return joined(kind, parts)

    def _atom(self, atom: Atom, context: tuple[Formula, ...]) -> Formula:
        variable = atom.variable
        everything = variable.anything
        known = self._search.narrowed([*context, Atom(variable, everything)]).get(variable, everything)
        choices = [atom.values, atom.values & known, atom.values | ~known]
        choices += [] if known.null else [replace(values, null=False) for values in choices]
        found = (Atom(variable, one) for one in choices if not one.empty and not (~one).empty)
        return min((atom, *found), key=lambda one: len(write_condition(one, self._literals).sql))


def _total(parts: list[Formula]) -> Iterable[Formula]:
    """Yield parts up to the first whose evaluation could fail."""
    for part in parts:
        if not _is_total(part):
            return
        yield part
