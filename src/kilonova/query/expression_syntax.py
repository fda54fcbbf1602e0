"""Reading of scalar expressions from SQL, and their syntax trees, for what happens before views are registered."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TypeVar, cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from kilonova.errors import BrokenInvariant, QueryError
from kilonova.query.expression import Op, Scalar, interleave

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

_OPERATORS: tuple[tuple[tuple[type[exp.Expr], ...], Op], ...] = (
    ((exp.Column,), Op.COLUMN),
    ((exp.Boolean,), Op.BOOLEAN),
    ((exp.Null,), Op.NULL),
    ((exp.Star,), Op.STAR),
    ((exp.DataType,), Op.TYPE),
    ((exp.Paren,), Op.PAREN),
    ((exp.Neg,), Op.NEG),
    ((exp.And,), Op.AND),
    ((exp.Or,), Op.OR),
    ((exp.Not,), Op.NOT),
    ((exp.EQ,), Op.EQ),
    ((exp.NullSafeEQ,), Op.NULL_SAFE_EQ),
    ((exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like), Op.COMPARISON),
    ((exp.Between, exp.In), Op.RANGE),
    ((exp.Is,), Op.IS),
    ((exp.Predicate, exp.Connector), Op.PREDICATE),
    ((exp.Add,), Op.ADD),
    ((exp.Sub,), Op.SUB),
    ((exp.Mul,), Op.MUL),
    ((exp.Div,), Op.DIV),
    ((exp.Abs,), Op.ABS),
    ((exp.Cast,), Op.CAST),
    ((exp.Count,), Op.COUNT),
    ((exp.Sum,), Op.SUM),
    ((exp.Avg,), Op.AVG),
    ((exp.Min, exp.Max), Op.MIN_MAX),
    ((exp.Coalesce,), Op.COALESCE),
    ((exp.Case,), Op.CASE),
    ((exp.Extract, exp.Year, exp.Month, exp.Day), Op.DATE_PART),
    ((exp.Substring, exp.Upper, exp.Lower, exp.Concat, exp.Trim), Op.TEXT),
    ((exp.Func,), Op.CALL),
)

_OPAQUE = frozenset({Op.PREDICATE, Op.DATE_PART, Op.TEXT, Op.CALL})
"""Operators of whose operands only the columns matter."""

_VALUES = (
    *(exp.Condition, exp.Filter, exp.Interval, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls),
    *(exp.Star, exp.Tuple),
)
"""Syntax that has a value; other syntax, such as a sort order, belongs to the text of what it is in."""


def scalar_of(node: exp.Expr) -> Scalar:
    """Return the expression that a syntax tree represents."""
    return parse(node.sql("spark"))


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Scalar:
    """Return an expression from Spark SQL whose columns are quoted."""
    return _converted(_parsed(_parsed(text).sql("spark")).copy())


def condition_of(text: str) -> Scalar:
    """Return a condition on a row from Spark SQL as a user writes it.

    Raises:
        QueryError: it cannot be parsed, is not about one row, or is not deterministic.

    >>> condition_of("quality>0.5  and site <> 'x'").sql
    "`quality` > 0.5 AND `site` <> 'x'"
    """
    try:
        syntax = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        raise QueryError(
            f"the condition cannot be parsed: {str(error).splitlines()[0]}",
            hint="Write a condition in Spark SQL, such as amount > 0",
        ) from None
    if (wrong := syntax.find(exp.Query, exp.AggFunc, exp.Window)) is not None:
        raise QueryError(
            f"a condition on a row cannot contain {wrong.sql('spark')}", hint="Compute it as a column of the rows"
        )
    for name in syntax.find_all(exp.Column):
        for part in name.parts:
            part.set("quoted", True)
    found = scalar_of(syntax)
    if not found.steady:
        raise QueryError(
            f"the condition {text} is not deterministic", hint="Compute what it depends on as a column of the rows"
        )
    return found


def node_of(expression: Scalar) -> exp.Expr:
    """Return the syntax tree of an expression, which the caller may modify."""
    return _parsed(expression.sql).copy()


def as_called(syntax: Syntax) -> Syntax:
    """Return a syntax tree in which functions stay calls that the parser, unlike Spark, writes without parentheses."""

    def called(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Localtimestamp | exp.CurrentCatalog):
            return exp.Anonymous(this=node.sql_name())
        return node

    return cast(Syntax, syntax.transform(called, copy=False))


@functools.lru_cache(maxsize=4096)
def _parsed(sql: str) -> exp.Expr:
    return as_called(sqlglot.parse_one(sql, dialect="spark")).transform(_field, copy=False)


def _field(node: exp.Expr) -> exp.Expr:
    """Return `a`.f as a field of the column a: columns of a tree are not qualified."""
    if not isinstance(node, exp.Column) or not node.table:
        return node
    first, *rest = node.parts
    return exp.Dot.build([exp.column(first) if first.args.get("quoted") else first, *rest])


def _converted(node: exp.Expr) -> Scalar:
    """Return the expression of a syntax tree, which is modified."""
    op, text = _operator(node), node.sql("spark")
    values = [] if op in (Op.COLUMN, Op.TYPE) else list(_values(node))
    whole = node.copy()
    found = _between(op, node, values)
    if found.sql == text:
        return found
    unsteady = any(map(_is_unsteady, whole.walk()))  # its text depends on its operands: only columns can be told apart
    op = Op.UNSTEADY if unsteady else op if op in _OPAQUE else Op.OTHER
    found = _between(op, whole, list(whole.find_all(exp.Column)))
    if found.sql != text:
        raise BrokenInvariant(f"the expression {text} was read as {found.sql}")
    return found


def _between(op: Op, node: exp.Expr, values: list[exp.Expr]) -> Scalar:
    """Return an expression whose operands are some of the values in a syntax tree, which is modified."""
    operands = []
    for place, value in enumerate(values):
        holder = exp.column(exp.to_identifier(f"operand {place}", quoted=True))
        value.replace(holder)
        operands.append(_converted(value))
    parts = re.split(r"`operand (\d+)`", node.sql("spark")) if values else [node.sql("spark")]
    return interleave(op, tuple(parts[::2]), tuple(operands[int(place)] for place in parts[1::2]))


def _values(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the operands of a syntax tree: the uppermost values in it."""
    for child in list(node.iter_expressions()):
        branch = isinstance(child, exp.If) and isinstance(node, exp.Case)
        if isinstance(child, exp.DataType):
            if isinstance(node, exp.Cast):
                yield child
        elif isinstance(child, _VALUES) and not branch:
            yield child
        else:
            yield from _values(child)


def _operator(node: exp.Expr) -> Op:
    if _is_unsteady(node):
        return Op.UNSTEADY
    if isinstance(node, exp.Literal):
        return Op.STRING if node.is_string else Op.NUMBER
    return next((op for kinds, op in _OPERATORS if isinstance(node, kinds)), Op.OTHER)


def _is_unsteady(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Func):
        return False
    names = [node.name] if isinstance(node, exp.Anonymous) else node.sql_names()
    return any(name.lower() in UNSTEADY for name in names)
