"""Conversion of checks declared in Python or in front matter to values of the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from kilonova.errors import DeclarationError, QueryError, closest_name
from kilonova.model import check as model
from kilonova.model.check import AcceptedValues, Check, NotNull, RowCondition, Unique, describe_check

Given = Mapping[str, object] | Iterable[Check]
"""Checks as declared by users, or as values of the model."""

KINDS = ("not_null", "unique", "accepted_values", "expressions")


def checks_of(given: Given) -> tuple[Check, ...]:
    """Return checks from their declaration.

    Args:
        given: `not_null`: a column or several; `unique`: a column, the columns of one combination, or a list of
            such lists; `accepted_values`: the values of each column; `expressions`: conditions in Spark SQL. Values
            of the model are returned unchanged.

    Raises:
        DeclarationError: there is no such check, or its declaration is malformed.
        QueryError: a condition cannot be parsed, or is not a condition on a single row.

    >>> checks_of({"not_null": ["a", "b"], "unique": [["a"], ["b", "c"]]})[2:]
    (Unique(columns=('a',)), Unique(columns=('b', 'c')))
    """
    if not isinstance(given, Mapping):
        return tuple(given)
    found: list[Check] = []
    for kind, value in given.items():
        match kind:
            case "not_null":
                found += [NotNull(name) for name in _texts(kind, value)]
            case "unique":
                several = isinstance(value, list | tuple) and any(isinstance(item, list | tuple) for item in value)
                groups = value if several and isinstance(value, list | tuple) else [value]
                found += [Unique(_texts(kind, group)) for group in groups]
            case "accepted_values":
                if not isinstance(value, Mapping):
                    raise DeclarationError(
                        "accepted_values must be a mapping", hint="Write accepted_values: {column: [a, b]}"
                    )
                found += [AcceptedValues(str(name), _values(str(name), values)) for name, values in value.items()]
            case "expressions":
                found += [_condition(text) for text in _texts(kind, value)]
            case _:
                raise DeclarationError(f"there is no check {kind!r}", hint=closest_name(str(kind), list(KINDS)))
    return tuple(dict.fromkeys(found))


def _texts(kind: str, value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if isinstance(items, list | tuple) and items and all(isinstance(item, str) for item in items):
        return tuple(str(item) for item in items)
    raise DeclarationError(f"the check {kind} must be a string or a list of strings", hint=f"Write {kind}: [a, b]")


def _values(column: str, values: object) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not values:
        raise DeclarationError("accepted_values must be a list", column=column, hint=f"Write {column}: [a, b]")
    if any(value is None or isinstance(value, list | tuple | dict) for value in values):
        raise DeclarationError(
            "accepted_values must be scalars; null is always accepted", column=column, hint="List numbers and strings"
        )
    return tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in values)


def _condition(text: str) -> RowCondition:
    check = RowCondition(" ".join(text.split()) if "'" not in text and '"' not in text else text.strip())
    found = _parsed(check).find(exp.Query, exp.AggFunc, exp.Window)
    if found is not None:
        raise QueryError(
            f"a condition on a row cannot contain {found.sql('spark')}",
            check=describe_check(check),
            hint="Compute it in the query as a column, and check that column",
        )
    return check


def _parsed(check: RowCondition) -> exp.Expr:
    try:
        return sqlglot.parse_one(check.text, dialect="spark")
    except SqlglotError as error:
        why = str(error).splitlines()[0]
        raise QueryError(
            f"the condition cannot be parsed: {why}",
            check=describe_check(check),
            hint="Write a condition in Spark SQL, such as amount > 0",
        ) from None


def check_known_columns(checks: Iterable[Check], columns: Collection[str]) -> None:
    """Validate that the columns of checks exist.

    Raises:
        DeclarationError: a check names a column that does not exist.
    """
    there = {name.lower() for name in columns}
    for check in checks:
        model.check_columns_exist(check, columns)
        if isinstance(check, RowCondition):
            for name in (item.parts[0].name for item in _parsed(check).find_all(exp.Column)):
                if name.lower() not in there:
                    raise model.unknown(check, name, columns)
