"""Formatting of numbers for people, the same on the page and in the terminal, and of values for programs."""

from __future__ import annotations

import dataclasses
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from kilonova.model.row_count import RowCount


def short(count: float) -> str:
    """Format a count in few characters.

    >>> short(999), short(12_430), short(3_500_000)
    ('999', '12.4 k', '3.5 M')
    """
    for unit in ("", " k", " M", " G"):
        if abs(count) < 1000:
            return f"{count:.0f}{unit}" if unit == "" or count >= 100 else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.0f} T"


def size(count: float | None) -> str:
    """Format a number of bytes, with units of 1000.

    >>> size(3_500_000), size(12), size(None)
    ('3.5 MB', '12 B', '–')
    """
    if count is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def seconds(count: float | None) -> str:
    """Format a duration in seconds.

    >>> seconds(0), seconds(0.034), seconds(3.21), seconds(75), seconds(3 * 3600 + 60)
    ('0 s', '34 ms', '3.2 s', '1 min 15 s', '3 h 1 min')
    """
    if count is None:
        return "–"
    if not count:
        return "0 s"
    if count < 0.0995:
        return f"{count * 1000:.0f} ms"
    if count < 59.95:
        return f"{count:.1f} s"
    whole = round(count)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def row_count(rows: RowCount) -> str:
    """Format a number of rows, or its upper bound if the number is not known.

    >>> row_count(RowCount(1_234, 1_234)), row_count(RowCount(None, 7)), row_count(RowCount(None, None))
    ('1,234', 'at most 7', 'unknown')
    """
    if rows.most is None:
        return "unknown"
    return f"{rows.most:,}" if rows.exact is not None else f"at most {rows.most:,}"


def holding(rows: RowCount) -> str:
    """Describe a channel's content in a few characters.

    >>> holding(RowCount(12_430, 12_430)), holding(RowCount(0, 0)), holding(RowCount(None, 7))
    ('12.4 k rows', 'no rows', '≤ 7 rows')
    """
    if rows.most is None:
        return "? rows"
    if not rows.most:
        return "no rows"
    return f"{'' if rows.exact is not None else '≤ '}{short(rows.most)} row{'' if rows.most == 1 else 's'}"


def plain(value: Any) -> Any:
    """Convert a value to one that JSON can represent."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Enum():
            return value.value
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes() | bytearray():
            return bytes(value).hex()
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            fields = getattr(value, "asDict", None)
            return plain(fields()) if fields else [plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value):
            return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
        case _:
            return str(value)
