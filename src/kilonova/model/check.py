"""A check is what every row of a channel must satisfy, or all of its rows together.

A row violates a check only if the check is *false* of it: NULL passes, as in SQL's CHECK, except where null is what
the check is about. Of a channel with the check c, at every point since c is there: no row of the relation violates
c. Runs see to it by looking at what they add or replace; rows that go cannot violate anything.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import assert_never

from kilonova.errors import DeclarationError, closest
from kilonova.model.encoding import Encoding, Upsert


@dataclass(frozen=True, slots=True)
class NotNull:
    """A column is not null."""

    column: str


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows have the same values in these columns; rows with a null among them count as different."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A column has one of these values, which are written as texts and read as the column's type."""

    column: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a row, in Spark SQL, is not false."""

    text: str


RowCheck = NotNull | Accepted | Condition
"""Checks that each row satisfies, or does not, alone."""

Check = RowCheck | Unique


def described(check: Check) -> str:
    """The check in a few words.

    >>> described(Accepted("country", ("NL", "BE")))
    'accepted(country: NL, BE)'
    """
    match check:
        case NotNull(column):
            return f"not_null({column})"
        case Unique(columns):
            return f"unique({', '.join(columns)})"
        case Accepted(column, values):
            return f"accepted({column}: {', '.join(values)})"
        case Condition(text):
            return f"rows({text})"
        case _:
            assert_never(check)


def columns_of(check: Check) -> tuple[str, ...]:
    """The columns that a check names; those within a condition are known to SQL alone."""
    match check:
        case NotNull(column) | Accepted(column, _):
            return (column,)
        case Unique(columns):
            return columns
        case Condition():
            return ()
        case _:
            assert_never(check)


def refuse_unknown(check: Check, columns: Collection[str]) -> None:
    """Refuse a check that names a column which is not there.

    Raises:
        DeclarationError: it does.
    """
    for name in columns_of(check):
        if name not in columns:
            raise unknown(check, name, columns)


def unknown(check: Check, column: str, columns: Collection[str]) -> DeclarationError:
    """The error of a check that names a column which is not there."""
    return DeclarationError(
        "the check names a column that is not there",
        column=column,
        check=described(check),
        hint=closest(column, list(columns)),
    )


def of_rows(checks: tuple[Check, ...]) -> tuple[RowCheck, ...]:
    """The checks for which a row is looked at alone."""
    return tuple(check for check in checks if not isinstance(check, Unique))


def across_rows(checks: tuple[Check, ...], encoding: Encoding) -> tuple[Unique, ...]:
    """The checks for which rows are compared, but for what the encoding's key implies.

    >>> across_rows((Unique(("id", "day")), Unique(("code",))), Upsert(("id",)))
    (Unique(columns=('code',)),)
    """
    found = (check for check in checks if isinstance(check, Unique))
    return tuple(c for c in found if not (isinstance(encoding, Upsert) and set(encoding.key) <= set(c.columns)))
