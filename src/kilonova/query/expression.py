"""A scalar expression over named columns, as a value.

It is written in Spark SQL with every column quoted; two expressions are equal if they read the same.
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
"""Functions that give something else each time, or to each session."""


@dataclass(frozen=True, slots=True, order=True)
class Scalar:
    """An expression.

    Attributes:
        sql: its text; make it with `Scalar.of` or `column`, which give one text to one meaning.
    """

    sql: str

    @staticmethod
    def of(node: exp.Expr) -> Scalar:
        """The expression that a syntax tree stands for."""
        return Scalar(node.sql("spark"))

    @property
    def node(self) -> exp.Expr:
        """Its syntax tree, which belongs to the caller."""
        return _parsed(self.sql).copy()

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it refers to."""
        return _columns(self.sql)

    @property
    def name(self) -> str | None:
        """The column that it is, if it is nothing else."""
        found = _parsed(self.sql)
        return found.name if isinstance(found, exp.Column) else None

    @property
    def steady(self) -> bool:
        """Whether it gives the same for the same columns each time."""
        return _steady(self.sql)

    def with_columns(self, instead: Mapping[str, Scalar]) -> Scalar:
        """The expression with other expressions in place of some columns."""
        if not self.columns & instead.keys():
            return self

        def replaced(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and node.name in instead:
                value = instead[node.name].node
                return value if isinstance(value, exp.Column | exp.Literal | exp.Func) else exp.paren(value, copy=False)
            return node

        return Scalar.of(self.node.transform(replaced))

    def conjuncts(self) -> tuple[Scalar, ...]:
        """The conditions that it is the conjunction of."""
        return _conjuncts(self.sql)


@functools.lru_cache(maxsize=4096)
def column(name: str) -> Scalar:
    """A column by name.

    >>> column("a b").sql
    '`a b`'
    """
    return Scalar.of(exp.column(exp.to_identifier(name, quoted=True)))


def parse(text: str) -> Scalar:
    """An expression from Spark SQL whose columns are quoted."""
    return Scalar.of(_parsed(text))


def as_called(syntax: Syntax) -> Syntax:
    """A syntax tree in which functions stay calls that the parser would write without parentheses, unlike Spark."""

    def called(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Localtimestamp | exp.CurrentCatalog):
            return exp.Anonymous(this=node.sql_name())
        return node

    return cast(Syntax, syntax.transform(called, copy=False))


def both(conditions: tuple[Scalar, ...]) -> Scalar | None:
    """The conjunction; None for none."""
    if not conditions:
        return None
    return Scalar.of(exp.and_(*(condition.node for condition in conditions), copy=False))


def either(conditions: tuple[Scalar, ...]) -> Scalar:
    """The disjunction of conditions; there must be some."""
    return Scalar.of(exp.or_(*(condition.node for condition in conditions), copy=False))


def same(one: Scalar, other: Scalar) -> Scalar:
    """Equal, nulls to each other."""
    return Scalar.of(exp.NullSafeEQ(this=_wrapped(one), expression=_wrapped(other)))


def equal(one: Scalar, other: Scalar) -> Scalar:
    """Equal, as SQL has it."""
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
