"""Widening of types: a column gets a type that holds every value of its type before, exactly.

Blocks keep the types with which they were written; their values are cast where they are read. Left out are widenings
that may change a value (`bigint` to `double`) or depend on the time zone of a session (`date` to `timestamp`).
"""

from __future__ import annotations

import re

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Number of decimal digits of the integers, from the narrowest to the widest."""

_OTHERS = {
    "tinyint": ("float", "double"),
    "smallint": ("float", "double"),
    "int": ("double",),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def is_wider(new: str, old: str) -> bool:
    """Return whether a type is another one that holds all values of a type.

    >>> is_wider("bigint", "int"), is_wider("int", "bigint"), is_wider("int", "int")
    (True, False, False)
    >>> is_wider("decimal(12,2)", "int"), is_wider("decimal(11,2)", "int"), is_wider("decimal(12,2)", "decimal(9,1)")
    (True, False, True)
    """
    if new == old:
        return False
    if (wide := _DECIMAL.fullmatch(new)) is not None:
        precision, scale = int(wide[1]), int(wide[2])
        if (narrow := _DECIMAL.fullmatch(old)) is not None:
            before, places = int(narrow[1]), int(narrow[2])
            return scale >= places and precision - scale >= before - places
        return old in _DIGITS and precision - scale >= _DIGITS[old]
    integers = list(_DIGITS)
    if old in _DIGITS and new in _DIGITS:
        return integers.index(new) > integers.index(old)
    return new in _OTHERS.get(old, ())
