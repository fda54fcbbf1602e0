"""Decimals as Spark computes with them: the types of results, and averages made of sums.

A type is `decimal(p,s)`: p digits, s of them after the point, 38 at most. A result that would need more gives up digits
after the point, and is rounded half up. So the quotient of a sum and a count has other digits than `avg`, which Spark
divides by rules of its own: to four digits more than its argument has after the point, whatever the sum's type is.
"""

from __future__ import annotations

import re

from kilonova.query.expression import Scalar

LONGEST = 38
"""How many digits a decimal has at most."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_LEAST_SCALE = 6
"""The digits after the point that a quotient has at least, and that no result gives up."""


def digits(kind: str) -> tuple[int, int] | None:
    """The precision and the scale of a decimal type; None for other types.

    >>> digits("decimal(10,2)")
    (10, 2)
    """
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None


def bounded(precision: int, scale: int) -> str:
    """The type of a result that needs so many digits, which gives up digits after the point first.

    >>> bounded(41, 20), bounded(60, 8)
    ('decimal(38,17)', 'decimal(38,6)')
    """
    if precision <= LONGEST:
        return f"decimal({precision},{scale})"
    whole = precision - scale
    return f"decimal({LONGEST},{max(LONGEST - whole, min(scale, _LEAST_SCALE))})"


def averaged(total: Scalar, count: Scalar, kind: str) -> str | None:
    """What `avg` gives for a sum and a count, as an expression.

    The sum is divided as a decimal with as many digits after the point as the result has: the quotient then has these,
    and is rounded once. Where the result has fewer than any quotient, the sum is divided by a power of ten before, and
    the quotient multiplied by it.

    Args:
        total: the sum, in the type that Spark gives to sums.
        count: how many values it is made of; not 0.
        kind: the type of the values, a decimal.

    Returns:
        The expression; None where the sum can have too many digits before the point.
    """
    found = digits(kind)
    assert found is not None
    precision, scale = found
    own = min(LONGEST, scale + 4)
    if min(LONGEST, precision + 10) - scale > LONGEST - own:
        return None
    lacking = max(0, _LEAST_SCALE - own)
    dividend = total.sql if lacking == 0 else f"{total.sql} * {10**-lacking:.{lacking}f}"
    quotient = f"CAST({dividend} AS DECIMAL({LONGEST}, {own + lacking})) / CAST({count.sql} AS DECIMAL(20, 0))"
    if lacking:
        quotient = f"({quotient}) * {10**lacking}"
    return f"CAST({quotient} AS DECIMAL({min(LONGEST, precision + 4)}, {own}))"
