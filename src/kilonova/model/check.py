"""A check is a condition that every row of a channel, or all of its rows together, must satisfy.

A row violates a check only if the check is *false* of it: NULL passes, as in SQL's CHECK, except where the check is
about null. Guarantee: at every point since a check was added to a channel, no row of the relation violates it. Runs
enforce this by checking the rows that they add or replace; removed rows cannot violate anything.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import assert_never

from kilonova.errors import DeclarationError, closest_name
from kilonova.model.encoding import Encoding, Upsert


@dataclass(frozen=True, slots=True)
class NotNull:
    """Check that a column is not null."""

    column: str


@dataclass(frozen=True, slots=True)
class Unique:
    """Check that no two rows have the same values in these columns; rows with a null among them count as different."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AcceptedValues:
    """Check that a column has one of these values, which are written as text and read as the column's type."""

    column: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowCondition:
    """Check that a condition on a row, in Spark SQL, is not false."""

    text: str


RowCheck = NotNull | AcceptedValues | RowCondition
"""Checks that are evaluated on each row alone."""

Check = RowCheck | Unique


def describe_check(check: Check) -> str:
    """Return the check as short text.

    >>> describe_check(AcceptedValues("country", ("NL", "BE")))
    'accepted_values(country: NL, BE)'
    """
    match check:
        case NotNull(column):
            return f"not_null({column})"
        case Unique(columns):
            return f"unique({', '.join(columns)})"
        case AcceptedValues(column, values):
            return f"accepted_values({column}: {', '.join(values)})"
        case RowCondition(text):
            return f"expression({text})"
        case _:
            assert_never(check)


def columns_of(check: Check) -> tuple[str, ...]:
    """Return the columns that a check names; those within a SQL condition are not known here."""
    match check:
        case NotNull(column) | AcceptedValues(column, _):
            return (column,)
        case Unique(columns):
            return columns
        case RowCondition():
            return ()
        case _:
            assert_never(check)


def check_columns_exist(check: Check, columns: Collection[str]) -> None:
    """Check that all columns that a check names exist.

    Raises:
        DeclarationError: one does not.
    """
    for name in columns_of(check):
        if name not in columns:
            raise unknown(check, name, columns)


def unknown(check: Check, column: str, columns: Collection[str]) -> DeclarationError:
    """Return the error for a check that names a column that does not exist."""
    return DeclarationError(
        "the check names a column that does not exist",
        column=column,
        check=describe_check(check),
        hint=closest_name(column, list(columns)),
    )


def of_rows(checks: tuple[Check, ...]) -> tuple[RowCheck, ...]:
    """Return the checks that are evaluated on each row alone."""
    return tuple(check for check in checks if not isinstance(check, Unique))


def across_rows(checks: tuple[Check, ...], encoding: Encoding) -> tuple[Unique, ...]:
    """Return the checks that compare rows, except those that the encoding's key implies.

    >>> across_rows((Unique(("id", "day")), Unique(("code",))), Upsert(("id",)))
    (Unique(columns=('code',)),)
    """
    found = (check for check in checks if isinstance(check, Unique))
    return tuple(c for c in found if not (isinstance(encoding, Upsert) and set(encoding.key) <= set(c.columns)))
