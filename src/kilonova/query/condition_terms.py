"""Variables of the expressions that conditions compare, and the values that literals have for them.

Literals are values of a variable if the order in which Spark compares them with the expression is certain: numbers of
exact types with exact literals, floating-point numbers (NaN above all others), strings by code points, dates,
timestamps. Spark compares a decimal with a floating-point literal as floating-point numbers: such comparisons are about
a variable of their own. So are those of an expression of unknown type with the literals of one type, because Spark
converts it in the same way for all of them. (A decimal with more than 30 digits after the point may then be too small
for a literal; it has to have a known type.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from kilonova.query.decimals import digits
from kilonova.query.expression import Op, Scalar
from kilonova.query.formulas import Variable
from kilonova.query.literals import Literal, integer_digits, literal
from kilonova.query.properties import FLOATING, type_of
from kilonova.query.value_sets import Domain, after, before

TRUTH = Domain(name="truth", low=before(False), high=after(True), step=Fraction(1))
SIGN = Domain(name="sign", low=before(-1), high=after(1), step=Fraction(1))
_SAME = Domain(name="equal", low=before(0), high=after(0), step=Fraction(1))
FLOATS = Domain(name="floating", low=before((False, -math.inf)), high=after((True, 0.0)))
STRINGS = Domain(name="string", low=before(""))
_DATE = Domain(name="date", step=Fraction(1))
_TIMESTAMP = Domain(name="timestamp")
_ANY = Domain(name="any")

_RESULTS = {"LENGTH": "int", "YEAR": "int", "MONTH": "int", "DAY": "int"}
_RESULTS |= {"UPPER": "string", "LOWER": "string", "TRIM": "string", "TO_DATE": "date"}
_RESULTS |= dict.fromkeys(("ISNULL", "ISNOTNULL", "ISNAN"), "boolean")
"""Types of functions that always have one."""

_CONDITIONS = frozenset({Op.AND, Op.OR, Op.NOT, Op.EQ, Op.NULL_SAFE_EQ, Op.COMPARISON, Op.RANGE, Op.IS, Op.PREDICATE})
_UNSURE = frozenset({Op.TEXT, Op.DATE_PART, Op.MIN_MAX, Op.COALESCE, Op.CASE, Op.AVG})
"""Operators whose type depends on more than `type_of` looks at."""

_EXACT_IN_FLOAT = 1 << 24
_EXACT_AS_DOUBLE = frozenset({"tinyint", "smallint", "int"})
_EXACT_DIGITS = 15
"""What floating-point numbers hold exactly: whole numbers in single precision, types, and digits of decimals."""

_DAY = timedelta(days=1)
_WITHOUT_SKIPPED_DAYS = datetime(2012, 1, 1)


class Terms:
    """Variables of the expressions in the conditions of one question.

    Attributes:
        literals: how the values of variables are written.
    """

    def __init__(self, types: Mapping[str, str | None], conditions: Iterable[Scalar | None]) -> None:
        """Compare columns of some types in some conditions."""
        self._types = types
        self.literals: dict[tuple[Variable, Any], Scalar] = {}
        moments = {moment for one in conditions if one is not None for moment in _moments(one)}
        self._moments_ordered = _far_apart(moments)

    def placed(self, term: Scalar, value: Literal, among: str) -> tuple[Variable, Any] | None:
        """Return the variable of a term that a literal is compared with, and its value; None if that is not certain.

        Args:
            term: the term.
            value: the literal.
            among: how they are compared, if not by an operator.
        """
        if literal(term) is not None or self.is_misjudged(term, value.sql):
            return None
        kind, own = self.kind(term), value.value
        variable = self.primary(term)
        key: Any = None
        if kind is None:
            return self._unknown(variable, value, among)
        if kind in FLOATING:
            key = _floating(value, single=kind == "float")
        elif integer_digits(kind) is not None:
            if value.kind == "double" and kind in _EXACT_AS_DOUBLE and math.isfinite(own):
                key = Fraction(own)
            elif value.kind == "double":
                key = _floating(value, single=False)
                variable = self._converted(variable, "as floating", exact=True)
            elif _fits(kind, value.kind):
                key = Fraction(own)
        elif kind == "string":
            key = own if value.kind == "string" else None
        elif kind == "date":
            own = own if value.kind == "date" else _read_date(own) if value.kind == "string" else None
            key = None if own is None else Fraction(own.toordinal())
        elif kind in ("timestamp", "timestamp_ntz"):
            key = own if value.kind == kind and (kind == "timestamp_ntz" or self._moments_ordered) else None
        if key is None:
            return None
        self.literals.setdefault((variable, key), value.sql)
        return variable, key

    def _unknown(self, variable: Variable, value: Literal, among: str) -> tuple[Variable, Any] | None:
        """Return the variable of a term of unknown type for literals of one type.

        Whatever the type, literals of one type are compared with the same conversion of the term.
        """
        own = value.value
        exact = abs(own) <= _EXACT_IN_FLOAT if value.kind == "int" else isinstance(own, Decimal) and _short(value.kind)
        if not exact:
            return None
        variable, key = self._converted(variable, value.kind + among, exact=False), Fraction(own)
        self.literals.setdefault((variable, key), value.sql)
        return variable, key

    def _converted(self, variable: Variable, name: str, *, exact: bool) -> Variable:
        domain = replace(FLOATS, name=name) if name == "as floating" else Domain(name=name)
        total = variable.total and exact
        return replace(variable, domain=domain, operands=(variable,), exact=exact, total=total)

    def primary(self, term: Scalar) -> Variable:
        """Return the variable of an expression."""
        kind = self.kind(term)
        if term.op in _CONDITIONS or kind == "boolean":
            return self.truth(term)
        return Variable(sql=term.sql, domain=_domain(kind), term=term, total=term.op is Op.COLUMN)

    def truth(self, term: Scalar) -> Variable:
        """Return the variable of a condition that is not analyzed."""
        strict = term.op in (Op.RANGE, Op.COMPARISON, Op.EQ) and not any(map(_is_beyond_long, term.operands))
        operands = tuple(
            self.primary(operand.bare)
            for operand in term.operands[: 1 if term.op is Op.RANGE else 2]
            if strict and literal(operand) is None
        )
        total = term.op is Op.COLUMN and self.kind(term) == "boolean"
        return Variable(sql=term.sql, domain=TRUTH, term=term, operands=operands, exact=not strict, total=total)

    def sign(self, left: Scalar, right: Scalar) -> Variable:
        """Return the variable of the comparison of two expressions."""
        kinds = self.kind(left), self.kind(right)
        operands = tuple(dict.fromkeys(self.primary(side) for side in (left, right) if literal(side) is None))
        alike = kinds[0] is not None and kinds[0] == kinds[1]
        total = alike and left.op is right.op is Op.COLUMN
        domain = _SAME if left == right else SIGN
        sql = f"{left.sql} ? {right.sql}"
        return Variable(sql=sql, domain=domain, term=left, other=right, operands=operands, exact=alike, total=total)

    def is_misjudged(self, term: Scalar, value: Scalar) -> bool:
        """Return whether Spark may find a comparison with a literal true where the term is null.

        It does so where it compares whole numbers with a decimal that is less or greater than all of them.
        """
        kind = self.kind(term)
        return _is_beyond_long(value) and kind not in FLOATING and (kind is None or digits(kind) is None)

    def is_condition(self, term: Scalar) -> bool:
        """Return whether an expression is certainly a condition."""
        if term.op is Op.CASE and term.texts[0] == "CASE WHEN ":
            last = term.operands[-1:] if len(term.operands) % 2 else ()
            results = [one.bare for one in (*term.operands[1::2], *last) if one.bare.op is not Op.NULL]
            return all(one.op is Op.BOOLEAN or self.is_condition(one) for one in results)
        if term.op is Op.COALESCE:
            return term.operands[-1].op is Op.BOOLEAN and self.is_condition(term.operands[0].bare)
        return term.op in _CONDITIONS or self.kind(term) == "boolean"

    def kind(self, term: Scalar) -> str | None:
        """Return the type of an expression; None if it is not certain."""
        if term.op in (Op.CALL, Op.TEXT, Op.DATE_PART, Op.CAST):
            name = term.texts[0].partition("(")[0].upper()
            if name != "CAST":
                return _RESULTS.get(name)
        return None if term.op in _UNSURE else type_of(term, self._types)


def _domain(kind: str | None) -> Domain:
    if kind is None:
        return _ANY
    if kind in FLOATING:
        return FLOATS
    if (room := integer_digits(kind)) is not None:
        return Domain(name=kind, step=Fraction(1, 10 ** room[1]))
    known = {"string": STRINGS, "date": _DATE, "timestamp": _TIMESTAMP, "timestamp_ntz": _TIMESTAMP}
    return known.get(kind, _ANY)


def _floating(value: Literal, *, single: bool) -> tuple[bool, float] | None:
    """Return a literal as Spark compares it with a floating-point column: NaN above all others."""
    own = value.value
    if not isinstance(own, float):
        if integer_digits(value.kind) is None or (single and isinstance(own, int) and abs(own) > _EXACT_IN_FLOAT):
            return None
        own = float(own)
    return (True, 0.0) if math.isnan(own) else (False, own)


def _fits(kind: str, other: str) -> bool:
    """Return whether Spark compares two exact numeric types without losing digits, together with others that fit."""
    own, given = integer_digits(kind), integer_digits(other)
    if own is None or given is None:
        return False
    scale = min(max(own[1], 18), 38 - own[0])
    return given[1] <= scale and given[0] <= 38 - scale


def _is_beyond_long(expression: Scalar) -> bool:
    value = literal(expression)
    return value is not None and value.kind.startswith("decimal") and abs(value.value) >= 1 << 63


def _short(kind: str) -> bool:
    room = integer_digits(kind)
    return room is not None and sum(room) <= _EXACT_DIGITS


def _read_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else None
    except ValueError:
        return None


def _moments(condition: Scalar) -> Iterator[datetime]:
    """Yield the timestamps in a condition that depend on the session's time zone."""
    if condition.op is Op.CAST and (value := literal(condition)) is not None and value.kind == "timestamp":
        yield value.value
    for operand in condition.operands:
        yield from _moments(operand)


def _far_apart(moments: set[datetime]) -> bool:
    """Return whether local times have the same order in every time zone.

    A clock that is put forward shifts times that it skips behind later ones, by a day at most; the last day that was
    skipped as a whole was in 2011.
    """
    ordered = sorted(moments)
    return all(
        later - one > _DAY or (later - one == _DAY and one >= _WITHOUT_SKIPPED_DAYS) for one, later in pairwise(ordered)
    )
