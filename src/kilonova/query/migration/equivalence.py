"""Equality of expressions up to parentheses and commuted operands, and expressions in terms of others."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from itertools import zip_longest

from kilonova.query.expression import Op, Scalar, and_, column, compose, delimited, interleave

_COMMUTATIVE = frozenset({Op.AND, Op.OR, Op.EQ, Op.NULL_SAFE_EQ, Op.ADD, Op.MUL})
_MIRRORED = {" > ": " < ", " >= ": " <= "}


@functools.lru_cache(maxsize=8192)
def canonical(expression: Scalar) -> str:
    """Return a text that is the same for expressions that differ only in parentheses or commuted operands.

    >>> from kilonova.query.expression import compose
    >>> one = compose("{} > {}", column("a"), column("b"), op=Op.COMPARISON)
    >>> other = compose("({} < {})", column("b"), column("a"), op=Op.COMPARISON)
    >>> canonical(one)
    '(`b` < `a`)'
    """
    bare = expression.bare
    if not bare.operands:
        return bare.sql
    parts = [canonical(operand) for operand in _flat(bare, bare.op)]
    if bare.op in _COMMUTATIVE:
        return f"({f' {bare.op.name} '.join(sorted(parts))})"
    texts = bare.texts
    if bare.op is Op.COMPARISON and len(texts) > 1 and texts[1] in _MIRRORED:
        texts, parts = (texts[0], _MIRRORED[texts[1]], *texts[2:]), parts[::-1]
    return f"({''.join(part for pair in zip_longest(texts, parts, fillvalue='') for part in pair)})"


def _flat(expression: Scalar, op: Op) -> tuple[Scalar, ...]:
    """Return the operands of an expression, those of nested conjunctions and disjunctions included."""
    if op not in (Op.AND, Op.OR) or expression.op is not op:
        return expression.operands
    found: tuple[Scalar, ...] = ()
    for operand in expression.operands:
        bare = operand.bare
        found += _flat(bare, op) if bare.op is op else (bare,)
    return found


def expressed(expression: Scalar, visible: Mapping[str, Scalar]) -> Scalar | None:
    """Return an expression in terms of others; None if it needs a column that they do not give.

    Args:
        expression: the expression.
        visible: what there is instead of expressions, by their canonical texts.
    """
    if (found := visible.get(canonical(expression))) is not None:
        return found
    if expression.name is not None:
        return None
    operands = []
    for operand in expression.operands:
        made = expressed(operand, visible)
        if made is None:
            return None
        operands.append(made if made == operand else delimited(made))
    return interleave(expression.op, expression.texts, tuple(operands)) if operands else expression


def all_expressed(expressions: Iterable[Scalar], visible: Mapping[str, Scalar]) -> tuple[Scalar, ...] | None:
    """Return expressions in terms of others; None if one of them cannot be expressed."""
    made = [expressed(each, visible) for each in expressions]
    found = tuple(each for each in made if each is not None)
    return found if len(found) == len(made) else None


def without(conditions: Iterable[Scalar], others: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """Return the conditions that are none of some others, each once."""
    known = {canonical(each) for each in others}
    by_text = {canonical(each): each for each in conditions}
    return tuple(each for text, each in by_text.items() if text not in known)


def is_null(name: str) -> Scalar:
    """Return the condition that a column is null."""
    return compose("{} IS NULL", column(name), op=Op.IS)


def is_met(name: str) -> Scalar:
    """Return the condition that a column is not null."""
    return compose("NOT {}", is_null(name), op=Op.NOT)


def not_true(conditions: tuple[Scalar, ...]) -> Scalar:
    """Return the condition that some conditions are not all true: one is false, or null.

    >>> not_true((is_met("k"),)).sql, not_true((compose("{} > 1", column("a"), op=Op.COMPARISON),)).sql
    ('`k` IS NULL', 'NOT COALESCE(`a` > 1, FALSE)')
    """
    condition = and_(conditions)
    assert condition is not None
    bare = condition.bare
    if bare.op is Op.IS:
        return compose("NOT {}", bare, op=Op.NOT)
    if bare.op is Op.NOT and bare.operands[0].bare.op is Op.IS:
        return bare.operands[0].bare
    return compose("NOT {}", compose("COALESCE({}, FALSE)", condition, op=Op.COALESCE), op=Op.NOT)
