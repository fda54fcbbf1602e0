"""Scalar expressions over named columns, as values.

An expression is an operator between fixed texts and operands, and is written in Spark SQL with every column quoted.
So it can be written, taken apart and changed without a parser; `kilonova.query.expression_syntax` reads it from SQL.
Two expressions are equal if their text is.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from kilonova.model.schema import quoted


class Op(enum.Enum):
    """Operator of an expression, as far as its properties depend on it."""

    COLUMN = "column"
    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    NULL = "null"
    STAR = "star"
    TYPE = "type"
    PAREN = "paren"
    NEG = "neg"
    AND = "and"
    OR = "or"
    NOT = "not"
    EQ = "eq"
    NULL_SAFE_EQ = "null_safe_eq"
    COMPARISON = "comparison"
    RANGE = "range"
    IS = "is"
    PREDICATE = "predicate"
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    ABS = "abs"
    CAST = "cast"
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN_MAX = "min_max"
    COALESCE = "coalesce"
    CASE = "case"
    DATE_PART = "date_part"
    TEXT = "text"
    CALL = "call"
    OTHER = "other"
    UNSTEADY = "unsteady"


_DELIMITED = frozenset(
    {Op.COLUMN, Op.NUMBER, Op.STRING, Op.PAREN, Op.ABS, Op.CAST, Op.COUNT, Op.SUM, Op.AVG, Op.MIN_MAX, Op.COALESCE}
    | {Op.CASE, Op.DATE_PART, Op.TEXT, Op.CALL}
)
"""Operators whose expressions need no parentheses as operands."""


@dataclass(frozen=True, slots=True, order=True)
class Scalar:
    """Scalar expression; create it with `compose`, or one of the functions below.

    Attributes:
        sql: its text.
        op: its operator: COMPARISON and RANGE (`BETWEEN`, `IN`) are null if their first operand is, UNSTEADY is not
            deterministic, OTHER is none that matters.
        texts: the texts before, between and after the operands.
        operands: the operands, in the order of the text.
    """

    sql: str
    op: Op = field(compare=False, repr=False)
    texts: tuple[str, ...] = field(compare=False, repr=False)
    operands: tuple[Scalar, ...] = field(default=(), compare=False, repr=False)

    @property
    def columns(self) -> frozenset[str]:
        """Columns that it refers to."""
        return _columns(self)

    @property
    def name(self) -> str | None:
        """Name of the column if the expression is a plain column reference; otherwise None."""
        return self.sql[1:-1].replace("``", "`") if self.op is Op.COLUMN else None

    @property
    def steady(self) -> bool:
        """Return whether the expression is deterministic: the same result for the same columns each time."""
        return self.op is not Op.UNSTEADY and all(operand.steady for operand in self.operands)

    @property
    def bare(self) -> Scalar:
        """The expression without parentheses around it."""
        return self.operands[0].bare if self.op is Op.PAREN else self

    def with_columns(self, instead: Mapping[str, Scalar]) -> Scalar:
        """Return the expression with some columns replaced by other expressions."""
        if not self.columns & instead.keys():
            return self
        operands = tuple(
            delimited(instead[operand.name])
            if operand.name is not None and operand.name in instead
            else operand.with_columns(instead)
            for operand in self.operands
        )
        return instead[self.name] if self.name is not None else interleave(self.op, self.texts, operands)

    def conjuncts(self) -> tuple[Scalar, ...]:
        """Return the conditions of which it is the conjunction."""
        return _flat(self) if self.bare.op is Op.AND else (self,)


def interleave(op: Op, texts: tuple[str, ...], operands: tuple[Scalar, ...] = ()) -> Scalar:
    """Return an expression from its operator, its operands, and the texts before, between and after them."""
    parts = (operand.sql for operand in operands)
    return Scalar(
        "".join(part for pair in zip_longest(texts, parts, fillvalue="") for part in pair), op, texts, operands
    )


def compose(text: str, *operands: Scalar, op: Op = Op.OTHER) -> Scalar:
    """Return an expression from its text, with `{}` for each operand.

    >>> compose("{} > 0", column("a b")).sql
    '`a b` > 0'
    """
    return interleave(op, tuple(text.split("{}")), operands)


@functools.lru_cache(maxsize=4096)
def column(name: str) -> Scalar:
    """Return a column by name.

    >>> column("a b").sql
    '`a b`'
    """
    return compose(quoted(name), op=Op.COLUMN) if "{}" not in name else interleave(Op.COLUMN, (quoted(name),))


def delimited(expression: Scalar) -> Scalar:
    """Return an expression in parentheses, where it needs them as an operand."""
    return expression if expression.op in _DELIMITED else compose("({})", expression, op=Op.PAREN)


def and_(conditions: tuple[Scalar, ...]) -> Scalar | None:
    """Return the conjunction of conditions; None for none."""
    return _joined(Op.AND, conditions) if conditions else None


def or_(conditions: tuple[Scalar, ...]) -> Scalar:
    """Return the disjunction of conditions; there must be at least one."""
    return _joined(Op.OR, conditions)


def null_safe_eq(one: Scalar, other: Scalar) -> Scalar:
    """Return the null-safe equality of two expressions: nulls are equal to each other."""
    return compose("{} IS NOT DISTINCT FROM {}", delimited(one), delimited(other), op=Op.NULL_SAFE_EQ)


def eq(one: Scalar, other: Scalar) -> Scalar:
    """Return the SQL equality `one = other`, which is null if either side is."""
    return compose("{} = {}", delimited(one), delimited(other), op=Op.EQ)


def _joined(op: Op, conditions: tuple[Scalar, ...]) -> Scalar:
    if len(conditions) == 1:
        return conditions[0]
    parts = tuple(delimited(part) if part.op in (Op.AND, Op.OR) else part for part in conditions)
    return compose(f" {op.name} ".join(["{}"] * len(parts)), *parts, op=op)


def _flat(expression: Scalar) -> tuple[Scalar, ...]:
    if expression.bare.op is not Op.AND:
        return (expression.bare,)
    return tuple(part for operand in expression.bare.operands for part in _flat(operand))


@functools.lru_cache(maxsize=4096)
def _columns(expression: Scalar) -> frozenset[str]:
    own = frozenset() if expression.name is None else frozenset({expression.name})
    return own.union(*(operand.columns for operand in expression.operands))
