"""Canonical form of scalar expressions: equal for expressions that only differ in how they are written.

Operands of commutative operators are sorted, those of AND and OR also flattened and each kept once; comparisons are
written with `<` or `<=`, BETWEEN as two of them; the values of IN are sorted; NOT is moved inward, through AND, OR and
comparisons; parentheses are added where an operand needs them and nowhere else. The expressions must be deterministic.

    canonical(e) = canonical(f)  ⇒  e and f have the same value and type for all values of their columns

The converse does not hold: `a + 0` is not `a`. As in Spark, it is undefined which operands are evaluated, and so which
errors occur.
"""

from __future__ import annotations

from kilonova.query.expression import Op, Scalar, and_, compose, delimited, interleave, or_

_MIRRORED = {" > ": " < ", " >= ": " <= "}
_NEGATED = {" = ": " <> ", " <> ": " = ", " < ": " >= ", " <= ": " > ", " > ": " <= ", " >= ": " < "}
_COMMUTATIVE = {" = ", " <> ", " + ", " * ", " IS NOT DISTINCT FROM "}
_STAR = compose("*", op=Op.STAR)


def canonical(expression: Scalar) -> Scalar:
    """Return the canonical form of an expression.

    >>> from kilonova.query.expression_syntax import parse
    >>> canonical(parse("NOT (`b` > 1 OR `a` BETWEEN 1 AND 2)")).sql
    '((2 < `a`) OR (`a` < 1)) AND (`b` <= 1)'
    >>> canonical(parse("2 * (`b` + `a`) IN (3, 1, 3)")).sql
    '((`a` + `b`) * 2) IN (1, 3)'
    """
    return _canonical(expression.bare, negated=False)


def conjuncts(conditions: tuple[Scalar, ...]) -> tuple[str, ...]:
    """Return the conjunction of conditions as canonical texts, sorted, each once."""
    return tuple(sorted({part.sql for each in conditions for part in canonical(each).conjuncts()}))


def _canonical(value: Scalar, *, negated: bool) -> Scalar:
    operator = value.texts[1] if len(value.operands) == 2 and value.texts[0] == value.texts[2] == "" else ""
    match value.op:
        case Op.NOT if value.texts == ("NOT ", ""):
            return _canonical(value.operands[0].bare, negated=not negated)
        case Op.AND | Op.OR if {*value.texts[1:-1]} == {f" {value.op.name} "}:
            return _connected((value.op is Op.AND) != negated, value.operands, negated)
        case Op.RANGE if value.texts == ("", " BETWEEN ", " AND ", ""):
            of, low, high = value.operands
            return _connected(not negated, (_compared(low, " <= ", of), _compared(of, " <= ", high)), negated)
        case Op.EQ | Op.COMPARISON if operator in _NEGATED:
            return _sorted(_compared(value.operands[0], _NEGATED[operator] if negated else operator, value.operands[1]))
    if negated:
        return compose("NOT {}", delimited(_canonical(value, negated=False)), op=Op.NOT)
    return _sorted(value)


def _compared(one: Scalar, operator: str, other: Scalar) -> Scalar:
    return interleave(Op.COMPARISON, ("", operator, ""), (one, other))


def _connected(both: bool, operands: tuple[Scalar, ...], negated: bool) -> Scalar:
    """Return the conjunction or disjunction of operands, each of which may be negated."""
    op, found = Op.AND if both else Op.OR, dict[str, Scalar]()
    for operand in operands:
        part = _canonical(operand.bare, negated=negated)
        parts = tuple(each.bare for each in part.operands) if part.op is op else (part,)
        found |= {each.sql: delimited(each) for each in parts}
    every = tuple(found[text] for text in sorted(found))
    if len(every) == 1:
        return every[0].bare
    joined = and_(every) if both else or_(every)
    assert joined is not None
    return joined


def _sorted(value: Scalar) -> Scalar:
    """Return an expression with canonical operands, sorted where their order has no effect."""
    if not value.operands or value.op is Op.COLUMN:
        return value
    operands = tuple(
        each if each.op in (Op.TYPE, Op.STAR) else delimited(_canonical(each.bare, negated=False))
        for each in value.operands
    )
    texts = value.texts
    if value.op is Op.COUNT and texts == ("COUNT(", ")") and operands[0].op in (Op.NUMBER, Op.STRING):
        return interleave(Op.COUNT, texts, (_STAR,))
    if value.op is Op.RANGE and len(texts) > 2 and texts[:2] == ("", " IN (") and {*texts[2:-1]} <= {", "}:
        values = tuple(dict(sorted((each.sql, each) for each in operands[1:])).values())
        return interleave(value.op, ("", " IN (", *[", "] * (len(values) - 1), ")"), (operands[0], *values))
    if len(operands) == 2 and texts[0] == texts[2] == "":
        if texts[1] in _MIRRORED:
            return interleave(value.op, ("", _MIRRORED[texts[1]], ""), operands[::-1])
        if texts[1] in _COMMUTATIVE:
            return interleave(value.op, texts, tuple(sorted(operands)))
    return interleave(value.op, texts, operands)
