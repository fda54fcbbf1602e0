"""Literals of conditions with their types and values."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from kilonova.query.decimals import LONGEST, digits
from kilonova.query.expression import Op, Scalar, interleave

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_STRING = re.compile(r"'((?:[^\\']|\\['\\])*)'", re.DOTALL)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?")
_INTERVAL = re.compile(r"INTERVAL '(\d{1,6})' (DAY|MONTH|YEAR)S?", re.IGNORECASE)
_SPECIAL = {"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


@dataclass(frozen=True, slots=True)
class Literal:
    """Literal.

    Attributes:
        kind: its type in Spark's notation.
        value: its value: an int or a Decimal (by its type), a float, str, bool, date or datetime; None for NULL.
        sql: how it is written.
    """

    kind: str
    value: Any
    sql: Scalar


def literal(expression: Scalar) -> Literal | None:
    """Return the literal that an expression is; None if it is none whose value is certain.

    >>> from kilonova.query.expression import compose
    >>> literal(compose("0.50", op=Op.NUMBER))
    Literal(kind='decimal(2,2)', value=Decimal('0.50'), sql=Scalar(sql='0.50'))
    """
    bare = expression.bare
    found: tuple[str, Any] | None = None
    match bare.op:
        case Op.NUMBER:
            found = _number(bare.sql)
        case Op.NEG if bare.operands[0].bare.op is Op.NUMBER:
            found = _number("-" + bare.operands[0].bare.sql)
        case Op.STRING if match := _STRING.fullmatch(bare.sql):
            found = "string", re.sub(r"\\(.)", r"\1", match[1])
        case Op.BOOLEAN:
            found = "boolean", bare.sql.upper() == "TRUE"
        case Op.NULL:
            found = "void", None
        case Op.CAST if (below := literal(bare.operands[0])) is not None:
            found = _cast(below, bare.operands[-1].sql.lower().replace(", ", ","))
        case Op.ADD | Op.SUB:
            found = _shifted(bare)
        case _:
            pass
    return None if found is None else Literal(*found, bare)


def string(value: str) -> Scalar:
    """Return a string as a literal."""
    text = value.replace("\\", "\\\\").replace("'", "\\'")
    return interleave(Op.STRING, (f"'{text}'",))


def integer_digits(kind: str) -> tuple[int, int] | None:
    """Return the digits of an exact numeric type before and after the point; None for other types."""
    if found := digits(kind):
        return found[0] - found[1], found[1]
    whole = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}.get(kind)
    return None if whole is None else (whole, 0)


def _number(text: str) -> tuple[str, Any] | None:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    if match[2]:
        return "double", float(text)
    value = Decimal(text)
    if "." not in text and -(1 << 63) <= value < 1 << 63:
        return "int" if -(1 << 31) <= value < 1 << 31 else "bigint", int(value)
    return _decimal(value)


def _decimal(value: Decimal) -> tuple[str, Decimal] | None:
    scale = max(0, -int(value.as_tuple().exponent))
    precision = max(len(value.as_tuple().digits), scale, 1)
    return (f"decimal({precision},{scale})", value) if precision <= LONGEST else None


def _cast(below: Literal, kind: str) -> tuple[str, Any] | None:
    """Return the type and value of a literal cast to a type, if the cast keeps its value."""
    value = below.value
    if below.kind == "string":
        match kind:
            case "date":
                return _moment(kind, value, _DATE)
            case "timestamp" | "timestamp_ntz":
                return _moment(kind, value, _TIMESTAMP)
            case "double" if value.lower() in _SPECIAL or _NUMBER.fullmatch(value):
                return kind, float(value)
            case _ if not _NUMBER.fullmatch(value):
                return None
    elif not isinstance(value, int | Decimal) or isinstance(value, bool):
        return None
    exact = Decimal(value)
    if kind == "double":
        return kind, float(value)
    if kind in _BITS:
        return (kind, int(exact)) if exact == int(exact) and abs(exact) < 1 << _BITS[kind] else None
    needed, room = _decimal(exact), integer_digits(kind)
    if needed is None or room is None:
        return None
    whole, scale = integer_digits(needed[0]) or (0, 0)
    return (kind, exact) if whole <= room[0] and scale <= room[1] else None


def _shifted(expression: Scalar) -> tuple[str, date] | None:
    """Return the date that an interval before or after a date is, as Spark adds months: to the last day at most."""
    start, interval = literal(expression.operands[0]), _INTERVAL.fullmatch(expression.operands[1].bare.sql)
    if start is None or start.kind != "date" or interval is None:
        return None
    number = int(interval[1]) if expression.op is Op.ADD else -int(interval[1])
    unit = interval[2].upper()
    try:
        if unit == "DAY":
            return "date", start.value + timedelta(number)
        months = start.value.year * 12 + start.value.month - 1 + number * (12 if unit == "YEAR" else 1)
        last = monthrange(months // 12, months % 12 + 1)[1]
        return "date", date(months // 12, months % 12 + 1, min(start.value.day, last))
    except (OverflowError, ValueError, IndexError):
        return None


def _moment(kind: str, text: str, pattern: re.Pattern[str]) -> tuple[str, Any] | None:
    if not pattern.fullmatch(text):
        return None
    try:
        return kind, date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text)
    except ValueError:
        return None
