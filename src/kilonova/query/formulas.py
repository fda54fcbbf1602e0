"""Formulas over variables with sets of values.

A formula has two truth values; null is a value of a variable. Negation is pushed into the atoms, where it is the
complement of a set, so that a formula is built from atoms, conjunctions and disjunctions alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kilonova.query.expression import Scalar
from kilonova.query.value_sets import Domain, ValueSet, ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """Part of a condition that has one value per row.

    Attributes:
        sql: its text; variables of one text and domain are equal.
        domain: the values that it can have, besides null.
        term: the expression whose value it is; the first of the two whose comparison it is.
        other: the second of two expressions whose comparison it is: -1, 0 or 1.
        operands: variables that must not be null for this one not to be null.
        exact: whether it is null only if the term, or one of the operands, is null.
        total: whether it is a column, or a comparison of columns, whose evaluation cannot fail.
    """

    sql: str
    domain: Domain
    term: Scalar = field(compare=False)
    other: Scalar | None = field(default=None, compare=False)
    operands: tuple[Variable, ...] = field(default=(), compare=False)
    exact: bool = field(default=True, compare=False)
    total: bool = field(default=False, compare=False)

    @property
    def anything(self) -> ValueSet:
        """All its values, and null."""
        return ranges(self.domain, (self.domain.low, self.domain.high), null=True)

    @property
    def present(self) -> ValueSet:
        """All its values without null."""
        return ranges(self.domain, (self.domain.low, self.domain.high))


@dataclass(frozen=True, slots=True)
class Atom:
    """Formula that a variable has one of some values.

    Attributes:
        variable: the variable.
        values: the values, possibly with null.
        source: a condition that is true exactly if the formula is; None if it has to be written anew.
    """

    variable: Variable
    values: ValueSet
    source: Scalar | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of formulas; true if there are none."""

    parts: tuple[Formula, ...]
    source: Scalar | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of formulas; false if there are none."""

    parts: tuple[Formula, ...]
    source: Scalar | None = field(default=None, compare=False)


Formula = Atom | And | Or
TRUE = And(())
FALSE = Or(())


def negated(formula: Formula) -> Formula:
    """Return the negation of a formula."""
    match formula:
        case Atom(variable, values):
            return Atom(variable, ~values)
        case And(parts):
            return joined(Or, map(negated, parts))
        case Or(parts):
            return joined(And, map(negated, parts))


def joined(kind: type[And] | type[Or], parts: Iterable[Formula]) -> Formula:
    """Return the conjunction or disjunction of formulas; atoms of one variable without a source become one."""
    found: list[Formula] = []
    for part in _flat(kind, parts):
        place = next((n for n, one in enumerate(found) if _mergeable(one, part)), None)
        if place is None:
            found.append(part)
            continue
        one = found[place]
        assert isinstance(one, Atom)
        assert isinstance(part, Atom)
        found[place] = Atom(one.variable, one.values & part.values if kind is And else one.values | part.values)
    decided = FALSE if kind is And else TRUE
    if any(map(_is_true if kind is Or else _is_false, found)):
        return decided
    found = [part for part in found if not (_is_true(part) if kind is And else _is_false(part))]
    return found[0] if len(found) == 1 else kind(tuple(found))


def _flat(kind: type[And] | type[Or], parts: Iterable[Formula]) -> Iterable[Formula]:
    for part in parts:
        if isinstance(part, kind) and part.source is None:
            yield from _flat(kind, part.parts)
        else:
            yield part


def _mergeable(one: Formula, other: Formula) -> bool:
    return (
        isinstance(one, Atom)
        and isinstance(other, Atom)
        and one.variable == other.variable
        and one.source is None
        and other.source is None
    )


def _is_true(formula: Formula) -> bool:
    return formula == TRUE or (isinstance(formula, Atom) and (~formula.values).empty)


def _is_false(formula: Formula) -> bool:
    return formula == FALSE or (isinstance(formula, Atom) and formula.values.empty)


def variables(formula: Formula) -> frozenset[Variable]:
    """Return the variables of a formula."""
    if isinstance(formula, Atom):
        return frozenset({formula.variable})
    return frozenset().union(*map(variables, formula.parts))
