"""Conditions read as formulas: when they are true, and when they are false, which is not the same because of null.

A comparison of an expression with a literal becomes a set of values of the expression, if it is certain how Spark
compares them (`condition_terms`); otherwise the comparison itself is a variable: less, equal, or greater, or null.
Everything that is not analyzed is a variable that is true, false or null.
"""

from __future__ import annotations

import operator as operators
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kilonova.query.condition_terms import FLOATS, STRINGS, TRUTH, Terms
from kilonova.query.expression import Op, Scalar, compose, interleave
from kilonova.query.formulas import FALSE, TRUE, And, Atom, Formula, Or, joined, negated
from kilonova.query.literals import Literal, literal, string
from kilonova.query.properties import FLOATING
from kilonova.query.value_sets import BOTTOM, TOP, Domain, ValueSet, after, before, points, ranges

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_INVERTED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
_OPERATORS = {"<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge, "<>": operators.ne}
_SAFE_EQUAL = frozenset({"<=>", "IS NOT DISTINCT FROM"})
_NAN = compose("CAST({} AS {})", string("NaN"), interleave(Op.TYPE, ("DOUBLE",)), op=Op.CAST)
_LONGEST_LIST = 10
"""Number of literals in IN above which Spark looks them up by hash, which tells -0.0 from 0.0."""


class ConditionReader:
    """Reader of the conditions of one question.

    Attributes:
        terms: the variables of the expressions in them.
    """

    def __init__(self, types: Mapping[str, str | None], *conditions: Scalar | None) -> None:
        """Read conditions over columns of some types; all of them are needed to compare their timestamps."""
        self.terms = Terms(types, conditions)

    def true(self, condition: Scalar) -> Formula:
        """Return the formula that a condition is true."""
        return replace(self._read(condition, True), source=condition.bare)

    def _read(self, condition: Scalar, wanted: bool) -> Formula:
        """Return the formula that a condition is true, or that it is false."""
        bare = condition.bare
        operands = bare.operands
        match bare.op:
            case Op.AND | Op.OR:
                kind = And if (bare.op is Op.AND) == wanted else Or
                parts = [self.true(part) if wanted else self._read(part, wanted) for part in operands]
                return joined(kind, (_opened(part, kind) for part in parts))
            case Op.NOT:
                return self._read(operands[0], not wanted)
            case Op.BOOLEAN:
                return TRUE if (bare.sql.upper() == "TRUE") == wanted else FALSE
            case Op.NULL:
                return FALSE
            case Op.EQ | Op.COMPARISON | Op.NULL_SAFE_EQ | Op.PREDICATE if len(operands) == 2:
                found = self._compared(bare.texts[1].strip(), operands[0].bare, operands[1].bare, wanted)
            case Op.RANGE if bare.texts[1:] == (" BETWEEN ", " AND ", ""):
                term, low, high = (operand.bare for operand in operands)
                sides = self._compared(">=", term, low, wanted), self._compared("<=", term, high, wanted)
                found = None if None in sides else joined(And if wanted else Or, [side for side in sides if side])
            case Op.RANGE if bare.texts[1] == " IN (":
                found = self._listed(operands[0].bare, operands[1:], wanted)
            case Op.IS:
                found = self._is(operands[0].bare, operands[1], wanted)
            case Op.COALESCE if len(operands) == 2 and self.terms.is_condition(bare):
                default = (operands[1].sql.upper() == "TRUE") == wanted
                found = negated(self._read(operands[0], not wanted)) if default else self._read(operands[0], wanted)
            case Op.CASE if self.terms.is_condition(bare):
                found = self._cased(operands, wanted)
            case Op.CALL if len(operands) == 1:
                found = self._called(bare.texts[0], operands[0].bare, wanted)
            case _:
                found = None
        return found if found is not None else Atom(self.terms.truth(bare), points(TRUTH, wanted))

    def _compared(self, operator: str, left: Scalar, right: Scalar, wanted: bool) -> Formula | None:
        """Return the formula that a comparison is true, or false; None if the operator is no comparison."""
        if operator == "IS DISTINCT FROM":
            return self._compared("<=>", left, right, not wanted)
        if operator in ("LIKE", "NOT LIKE"):
            return self._like(left, right, wanted == (operator == "LIKE"))
        safe = operator in _SAFE_EQUAL
        if not safe and operator not in _MIRRORED:
            return None
        values = literal(left), literal(right)
        if values[0] is not None and values[1] is None:
            return self._compared(_MIRRORED.get(operator, operator), right, left, wanted)
        value = values[1]
        if self.terms.is_misjudged(left, right):
            return None
        if values[0] is not None and value is not None and values[0].kind == value.kind in ("int", "string"):
            held = _OPERATORS.get(operator, operators.eq)(values[0].value, value.value)
            return TRUE if held == wanted else FALSE
        if value is not None and value.kind == "void":
            return self._is_null(left, wanted) if safe else FALSE
        if value is not None and value.kind == "boolean" and operator not in ("<", "<=", ">", ">="):
            return self._as_truth(left, value.value == (operator != "<>"), safe, wanted)
        if safe:
            found = self._equal(left, right, value)
            return found if found is None or wanted else negated(found)
        operator = operator if wanted else _INVERTED[operator]
        return self._ordered(operator, left, right, value)

    def _ordered(self, operator: str, left: Scalar, right: Scalar, value: Literal | None) -> Atom:
        placed = None if value is None else self.terms.placed(left, value, "")
        if placed is not None:
            variable, key = placed
            return Atom(variable, _satisfying(variable.domain, operator, key))
        if value is None and left.sql > right.sql:
            left, right, operator = right, left, _MIRRORED[operator]
        variable = self.terms.sign(left, right)
        return Atom(variable, _satisfying(variable.domain, operator, 0))

    def _equal(self, left: Scalar, right: Scalar, value: Literal | None) -> Formula | None:
        """Return the formula that two expressions are equal or both null; None if it cannot be told."""
        equal = self._ordered("=", left, right, value)
        if not equal.variable.exact and equal.variable.other is not None:
            return None  # conversion to another type may make null of both
        if value is not None:
            return equal
        return joined(Or, [equal, joined(And, (Atom(one, ~one.present) for one in equal.variable.operands))])

    def _as_truth(self, term: Scalar, truth: bool, safe: bool, wanted: bool) -> Formula | None:
        """Return the formula of a comparison of a condition with a boolean literal; None if it may be no condition."""
        if not self.terms.is_condition(term):
            return None
        if safe:
            found = self._read(term, truth)
            return found if wanted else negated(found)
        return self._read(term, truth == wanted)

    def _listed(self, term: Scalar, items: tuple[Scalar, ...], wanted: bool) -> Formula | None:
        """Return the formula of `term IN (items)`; None if the items are no literals that it is compared with alike."""
        values = [literal(item) for item in items]
        known = [value for value in values if value is not None and value.kind != "void"]
        if not known and None not in values:
            return FALSE
        placed = [self.terms.placed(term, value, " in") for value in known]
        found = [pair for pair in placed if pair is not None]
        if None in values or len(found) < len(placed) or len({variable for variable, _ in found}) != 1:
            return None
        variable = found[0][0]
        floating = self.terms.kind(term) in FLOATING or any(value.kind == "double" for value in known)
        if floating and len(found) > _LONGEST_LIST and any(value.value == 0 for value in known):
            return None
        held = points(variable.domain, *(key for _, key in found))
        if wanted:
            return Atom(variable, held)
        return Atom(variable, variable.present & ~held) if len(known) == len(values) else FALSE

    def _is(self, term: Scalar, what: Scalar, wanted: bool) -> Formula | None:
        match what.op:
            case Op.NULL:
                return self._is_null(term, wanted)
            case Op.BOOLEAN:
                return self._as_truth(term, what.sql.upper() == "TRUE", True, wanted)
            case _:
                return None

    def _is_null(self, term: Scalar, wanted: bool) -> Formula:
        if self.terms.is_condition(term):
            known = joined(Or, [self._read(term, True), self._read(term, False)])
            return negated(known) if wanted else known
        variable = self.terms.primary(term)
        return Atom(variable, variable.present if not wanted else ~variable.present)

    def _cased(self, operands: tuple[Scalar, ...], wanted: bool) -> Formula:
        """Return the formula of a CASE whose results are conditions."""
        found: Formula = self._read(operands[-1], wanted) if len(operands) % 2 else FALSE
        for when, then in reversed(list(zip(operands[::2], operands[1::2], strict=False))):
            held = self._read(when, True)
            chosen = joined(And, [held, self._read(then, wanted)])
            found = joined(Or, [chosen, joined(And, [negated(held), found])])
        return found

    def _called(self, name: str, operand: Scalar, wanted: bool) -> Formula | None:
        match name:
            case "ISNULL(" | "ISNOTNULL(":
                return self._is_null(operand, wanted == (name == "ISNULL("))
            case "ISNAN(" if self.terms.kind(operand) in FLOATING:
                variable, key = self.terms.primary(operand), (True, 0.0)
                self.terms.literals.setdefault((variable, key), _NAN)
                found = points(FLOATS, key)
                return Atom(variable, found if wanted else ~found)
            case _:
                return None

    def _like(self, term: Scalar, pattern: Scalar, wanted: bool) -> Formula | None:
        """Return the formula that a string begins with a prefix, or that it does not; None for other patterns."""
        value = literal(pattern)
        if value is None or value.kind != "string" or self.terms.kind(term) != "string":
            return None
        prefix, rest = re.fullmatch(r"([^%_\\]*)(.*)", value.value, re.DOTALL).groups()  # type: ignore[union-attr]
        if rest.strip("%") or (prefix and not "\0" < prefix[-1] < "\x7f"):
            return None
        variable = self.terms.primary(term)
        if not rest:
            held = points(STRINGS, prefix)
        elif not prefix:
            held = variable.present
        else:
            following = prefix[:-1] + chr(ord(prefix[-1]) + 1)
            held = ranges(STRINGS, (before(prefix), before(following)))
            self.terms.literals.setdefault((variable, following), string(following))
        self.terms.literals.setdefault((variable, prefix), string(prefix))
        return Atom(variable, held if wanted else variable.present & ~held)


def _opened(part: Formula, kind: type[And] | type[Or]) -> Formula:
    """Return a conjunct of a conjunction, or a disjunct of a disjunction, in parts, each with its own source."""
    return replace(part, source=None) if isinstance(part, kind) and not isinstance(part, Atom) and part.parts else part


def _satisfying(domain: Domain, operator: str, key: Any) -> ValueSet:
    """Return the values of a domain that are in a relation with one."""
    match operator:
        case "<":
            return ranges(domain, (BOTTOM, before(key)))
        case "<=":
            return ranges(domain, (BOTTOM, after(key)))
        case ">":
            return ranges(domain, (after(key), TOP))
        case ">=":
            return ranges(domain, (before(key), TOP))
        case "=":
            return points(domain, key)
        case _:
            return ranges(domain, (BOTTOM, before(key)), (after(key), TOP))
