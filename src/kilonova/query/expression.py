"""Scalar expressions over named columns, as values.

They are written in Spark SQL with every column quoted; two expressions are equal if their text is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import sqlglot
from sqlglot import exp

Syntax = TypeVar("Syntax", bound=exp.Expr)

UNSTEADY = frozenset(
    """
    rand randn random uniform randstr uuid shuffle monotonically_increasing_id spark_partition_id
    input_file_name input_file_block_start input_file_block_length reflect java_method try_reflect
    current_timestamp current_date current_time now localtimestamp unix_timestamp curdate current_timezone
    user current_user session_user current_catalog current_database current_schema version
    """.split()  # noqa: SIM905
)
"""Nondeterministic functions, and those whose result depends on the session."""


@dataclass(frozen=True, slots=True, order=True)
class Scalar:
    """Scalar expression.

    Attributes:
        sql: its text; create it with `Scalar.of` or `column`, which normalize it.
    """

    sql: str

    @staticmethod
    def of(node: exp.Expr) -> Scalar:
        """Return the expression that a syntax tree represents."""
        return Scalar(node.sql("spark"))

    @property
    def node(self) -> exp.Expr:
        """Copy of its syntax tree, which the caller may modify."""
        return _parsed(self.sql).copy()

    @property
    def columns(self) -> frozenset[str]:
        """Columns that it refers to."""
        return _columns(self.sql)

    @property
    def name(self) -> str | None:
        """Name of the column if the expression is a plain column reference; otherwise None."""
        found = _parsed(self.sql)
        return found.name if isinstance(found, exp.Column) else None

    @property
    def steady(self) -> bool:
        """Return whether the expression is deterministic: the same result for the same columns each time."""
        return _steady(self.sql)

    def with_columns(self, instead: Mapping[str, Scalar]) -> Scalar:
        """Return the expression with some columns replaced by other expressions."""
        if not self.columns & instead.keys():
            return self

        def replaced(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and node.name in instead:
                value = instead[node.name].node
                return value if isinstance(value, exp.Column | exp.Literal | exp.Func) else exp.paren(value, copy=False)
            return node

        return Scalar.of(self.node.transform(replaced))

    def conjuncts(self) -> tuple[Scalar, ...]:
        """Return the conditions of which it is the conjunction."""
        return _conjuncts(self.sql)


@functools.lru_cache(maxsize=4096)
def column(name: str) -> Scalar:
    """Return a column by name.

    >>> column("a b").sql
    '`a b`'
    """
    return Scalar.of(exp.column(exp.to_identifier(name, quoted=True)))


def parse(text: str) -> Scalar:
    """Return an expression from Spark SQL whose columns are quoted."""
    return Scalar.of(_parsed(text))


def as_called(syntax: Syntax) -> Syntax:
    """Return a syntax tree in which functions stay calls that the parser, unlike Spark, writes without parentheses."""

    def called(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Localtimestamp | exp.CurrentCatalog):
            return exp.Anonymous(this=node.sql_name())
        return node

    return cast(Syntax, syntax.transform(called, copy=False))


def and_(conditions: tuple[Scalar, ...]) -> Scalar | None:
    """Return the conjunction of conditions; None for none."""
    if not conditions:
        return None
    return Scalar.of(exp.and_(*(condition.node for condition in conditions), copy=False))


def or_(conditions: tuple[Scalar, ...]) -> Scalar:
    """Return the disjunction of conditions; there must be at least one."""
    return Scalar.of(exp.or_(*(condition.node for condition in conditions), copy=False))


def null_safe_eq(one: Scalar, other: Scalar) -> Scalar:
    """Return the null-safe equality `one <=> other`: nulls are equal to each other."""
    return Scalar.of(exp.NullSafeEQ(this=_wrapped(one), expression=_wrapped(other)))


def eq(one: Scalar, other: Scalar) -> Scalar:
    """Return the SQL equality `one = other`, which is null if either side is."""
    return Scalar.of(exp.EQ(this=_wrapped(one), expression=_wrapped(other)))


def _wrapped(expression: Scalar) -> exp.Expr:
    node = expression.node
    return node if isinstance(node, exp.Column | exp.Literal | exp.Func) else exp.paren(node, copy=False)


@functools.lru_cache(maxsize=4096)
def _parsed(sql: str) -> exp.Expr:
    return as_called(sqlglot.parse_one(sql, dialect="spark"))


@functools.lru_cache(maxsize=4096)
def _columns(sql: str) -> frozenset[str]:
    return frozenset(column.name for column in _parsed(sql).find_all(exp.Column))


@functools.lru_cache(maxsize=4096)
def _conjuncts(sql: str) -> tuple[Scalar, ...]:
    found = _parsed(sql).unnest()
    return tuple(Scalar.of(part.unnest()) for part in found.flatten()) if isinstance(found, exp.And) else (Scalar(sql),)


@functools.lru_cache(maxsize=4096)
def _steady(sql: str) -> bool:
    return not any(
        name.lower() in UNSTEADY
        for call in _parsed(sql).find_all(exp.Func)
        for name in ([call.name] if isinstance(call, exp.Anonymous) else call.sql_names())
    )
