"""Formulas written as conditions, as short as they can be, and so that comparisons with literals stay simple."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilonova.query.condition_terms import TRUTH
from kilonova.query.expression import Op, Scalar, and_, compose, delimited, interleave, or_
from kilonova.query.formulas import And, Atom, Formula, Or, Variable
from kilonova.query.value_sets import Cut, ValueSet, points

Literals = Mapping[tuple[Variable, Any], Scalar]
"""How the values of variables are written."""

_LONGEST = 20
"""Maximum number of neighbouring values that are written as a list instead of a range."""

_OPERATORS = {(-1,): "<", (0,): "=", (1,): ">", (-1, 0): "<=", (0, 1): ">=", (-1, 1): "<>"}


def write_condition(formula: Formula, literals: Literals) -> Scalar:
    """Return a condition that is true exactly if a formula is; otherwise it is false or null."""
    if formula.source is not None:
        return formula.source
    match formula:
        case Atom(variable, values):
            return _atom(variable, values, literals)
        case And(parts) | Or(parts) if not parts:
            return interleave(Op.BOOLEAN, ("TRUE" if isinstance(formula, And) else "FALSE",))
        case And(parts):
            conjuncts = tuple(one for part in parts for one in write_condition(part, literals).conjuncts())
            return and_(conjuncts) or conjuncts[0]
        case Or(parts):
            return or_(tuple(one for part in parts for one in _disjuncts(write_condition(part, literals))))


def _disjuncts(condition: Scalar) -> tuple[Scalar, ...]:
    if condition.bare.op is not Op.OR:
        return (condition,)
    return tuple(one for operand in condition.bare.operands for one in _disjuncts(operand))


def _atom(variable: Variable, values: ValueSet, literals: Literals) -> Scalar:
    if variable.domain == TRUTH:
        return _truth(variable.term, values)
    if not values.null:
        return _present(variable, values, literals)
    if variable.exact:
        nulls = _are_null(variable)
        return or_((*_disjuncts(_present(variable, values, literals)), *nulls)) if values.pairs else or_(nulls)
    if values.pairs:
        return _not(_default(_present(variable, ~values, literals), "FALSE"))
    return _is_null(_any_comparison(variable, literals))


def _truth(term: Scalar, values: ValueSet) -> Scalar:
    true, false = points(TRUTH, True) <= values, points(TRUTH, False) <= values
    if true and false:
        return _not(_is_null(term))
    if not true and not false:
        return _is_null(term)
    if not values.null:
        return term if true else _not(term)
    if term.op is Op.COLUMN:
        return or_((term if true else _not(term), _is_null(term)))
    return _default(term, "TRUE") if true else _not(_default(term, "FALSE"))


def _present(variable: Variable, values: ValueSet, literals: Literals) -> Scalar:
    """Return the condition that a variable has one of some values, none of which is null."""
    if values == variable.present:
        if not variable.exact:
            return _not(_is_null(_any_comparison(variable, literals)))
        return and_(tuple(map(_not, _are_null(variable)))) or variable.term
    if variable.other is not None:
        signs = tuple(sign for sign in (-1, 0, 1) if points(variable.domain, sign) <= values)
        return _compared(variable.term, _OPERATORS[signs], variable.other)
    written, hull = _alternatives(variable, values, literals), _hull(variable, values, literals)
    return hull if hull is not None and len(hull.sql) < len(written.sql) else written


def _alternatives(variable: Variable, values: ValueSet, literals: Literals) -> Scalar:
    """Return a disjunction of a list of values and of ranges."""
    lists = [_values(variable, low, high, literals) for low, high in values.pairs]
    single = tuple(value for found in lists for value in found)
    parts = [_among(variable, single, literals)] if single else []
    for (low, high), found in zip(values.pairs, lists, strict=True):
        bounds = () if found else _bounds(variable, low, high, literals)
        parts += [and_(bounds) or variable.term] if bounds else []
    return or_(tuple(parts))


def _hull(variable: Variable, values: ValueSet, literals: Literals) -> Scalar | None:
    """Return a conjunction of two bounds and of values left out; None if more is left out."""
    ends = zip((high for _, high in values.pairs), (low for low, _ in values.pairs[1:]), strict=False)
    gaps = [_values(variable, low, high, literals) for low, high in ends]
    if not all(gaps):
        return None
    bounds = _bounds(variable, values.pairs[0][0], values.pairs[-1][1], literals)
    gone = tuple(value for found in gaps for value in found)
    if len(gone) > 1:
        return and_((*bounds, _not(_among(variable, gone, literals))))
    return and_((*bounds, *(_compared(variable.term, "<>", literals[variable, value]) for value in gone)))


def _values(variable: Variable, low: Cut, high: Cut, literals: Literals) -> tuple[Any, ...]:
    """Return the values between two cuts, if they are few and can be written; otherwise none."""
    found = variable.domain.values(low, high, _LONGEST)
    return found if all((variable, value) in literals for value in found) else ()


def _bounds(variable: Variable, low: Cut, high: Cut, literals: Literals) -> tuple[Scalar, ...]:
    found = []
    if low != variable.domain.low:
        found.append(_compared(variable.term, ">" if low[2] else ">=", literals[variable, low[1]]))
    if high != variable.domain.high:
        found.append(_compared(variable.term, "<=" if high[2] else "<", literals[variable, high[1]]))
    return tuple(found)


def _among(variable: Variable, values: tuple[Any, ...], literals: Literals) -> Scalar:
    items = [literals[variable, value] for value in values]
    if len(items) == 1:
        return _compared(variable.term, "=", items[0])
    return compose(f"{{}} IN ({', '.join(['{}'] * len(items))})", delimited(variable.term), *items, op=Op.RANGE)


def _any_comparison(variable: Variable, literals: Literals) -> Scalar:
    """Return a comparison that is null exactly if a variable is."""
    other = variable.other or next(text for (one, _), text in literals.items() if one == variable)
    return _compared(variable.term, "=", other)


def _are_null(variable: Variable) -> tuple[Scalar, ...]:
    """Return the conditions one of which is true if a variable is null."""
    terms = [operand.term for operand in variable.operands] if variable.other is not None else [variable.term]
    return tuple(map(_is_null, terms))


def _compared(left: Scalar, operator: str, right: Scalar) -> Scalar:
    op = Op.EQ if operator == "=" else Op.COMPARISON
    return compose(f"{{}} {operator} {{}}", _operand(left), _operand(right), op=op)


def _operand(expression: Scalar) -> Scalar:
    """Return an expression as an operand of a comparison; arithmetic binds more closely."""
    return expression if expression.op in (Op.NEG, Op.ADD, Op.SUB, Op.MUL, Op.DIV) else delimited(expression)


def _is_null(term: Scalar) -> Scalar:
    return compose("{} IS {}", _operand(term), interleave(Op.NULL, ("NULL",)), op=Op.IS)


def _not(condition: Scalar) -> Scalar:
    inner = condition if condition.op not in (Op.AND, Op.OR) else delimited(condition)
    return compose("NOT {}", inner, op=Op.NOT)


def _default(condition: Scalar, value: str) -> Scalar:
    """Return a condition with a truth value instead of null."""
    return compose("COALESCE({}, {})", condition, interleave(Op.BOOLEAN, (value,)), op=Op.COALESCE)
