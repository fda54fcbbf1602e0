"""Order in which the rows of a view are displayed: that of its query's ORDER BY, if it has a LIMIT.

A relation has no order; that of `ORDER BY … LIMIT` selects its rows, and readers expect to see them in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from kilonova.query.syntax import syntax_of


@dataclass(frozen=True, slots=True)
class SortKey:
    """Column to sort by; in ascending order nulls are first, in descending order last, as in Spark."""

    column: str
    descending: bool = False
    nulls_first: bool = True


def row_order(query: str, columns: Sequence[str]) -> tuple[SortKey, ...]:
    """Return the columns by which the rows of a query's result are ordered; none if it has no LIMIT.

    Args:
        query: the query.
        columns: the columns of its result.

    Returns:
        The leading sort keys that are columns of the result.

    Raises:
        QueryError: it cannot be parsed.

    >>> keys = row_order("SELECT a AS x, sum(b) FROM t GROUP BY a ORDER BY sum(b) DESC, a, c LIMIT 3", ["x", "sum(b)"])
    >>> [(key.column, key.descending, key.nulls_first) for key in keys]
    [('sum(b)', True, False), ('x', False, True)]
    >>> row_order("SELECT * FROM t ORDER BY a", ["a"])
    ()
    """
    syntax = syntax_of(query)
    order = syntax.args.get("order")
    if order is None or not (syntax.args.get("limit") or syntax.args.get("offset")):
        return ()
    found: list[SortKey] = []
    for item in order.expressions:
        column = _output(item.this, _selected(syntax), columns)
        if column is None:
            break
        descending = bool(item.args.get("desc"))
        nulls_first = item.args.get("nulls_first")
        found.append(SortKey(column, descending, not descending if nulls_first is None else bool(nulls_first)))
    return tuple(found)


def _selected(syntax: exp.Expr) -> list[exp.Expr]:
    """Return the expressions of a query's columns; none if it selects a star."""
    while isinstance(syntax, exp.SetOperation | exp.Subquery):
        syntax = syntax.this
    if not isinstance(syntax, exp.Select) or any(item.is_star for item in syntax.selects):
        return []
    return syntax.selects


def _output(value: exp.Expr, selected: list[exp.Expr], columns: Sequence[str]) -> str | None:
    """Return the column of the result that an expression in ORDER BY refers to, or is equal to."""
    if len(selected) == len(columns):
        if isinstance(value, exp.Literal) and value.is_int:
            position = int(value.name)
            return columns[position - 1] if 0 < position <= len(columns) else None
        for item, column in zip(selected, columns, strict=True):
            if value == item.unalias() or (isinstance(value, exp.Column) and _names(value, item)):
                return column
        return None
    named = {column.lower(): column for column in columns}
    return named.get(value.name.lower()) if isinstance(value, exp.Column) else None


def _names(value: exp.Column, item: exp.Expr) -> bool:
    """Return whether a column is what a query selects: by its alias, or by its name with or without the table."""
    if not value.table and value.name.lower() == item.alias_or_name.lower():
        return True
    inner = item.unalias()
    return isinstance(inner, exp.Column) and inner.name.lower() == value.name.lower()
