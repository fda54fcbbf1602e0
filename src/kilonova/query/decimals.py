"""Spark's decimal arithmetic: the types of results, and averages computed from sums.

A type is `decimal(p,s)`: p digits, s of them after the point, 38 at most. A result that would need more loses digits
after the point, and is rounded half up. So the quotient of a sum and a count differs in digits from `avg`, for which
Spark has separate rules: four more digits after the point than the argument has, whatever the sum's type is.
"""

from __future__ import annotations

import re

from kilonova.query.expression import Scalar

LONGEST = 38
"""Maximum number of digits of a decimal."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_LEAST_SCALE = 6
"""Minimum number of digits after the point of a quotient, which bounding a result preserves."""


def digits(kind: str) -> tuple[int, int] | None:
    """Return the precision and the scale of a decimal type; None for other types.

    >>> digits("decimal(10,2)")
    (10, 2)
    """
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None


def bounded(precision: int, scale: int) -> str:
    """Return the type of a result that needs so many digits; digits after the point are given up first.

    >>> bounded(41, 20), bounded(60, 8)
    ('decimal(38,17)', 'decimal(38,6)')
    """
    if precision <= LONGEST:
        return f"decimal({precision},{scale})"
    whole = precision - scale
    return f"decimal({LONGEST},{max(LONGEST - whole, min(scale, _LEAST_SCALE))})"


def averaged(total: Scalar, count: Scalar, kind: str) -> str | None:
    """Return an expression that gives the same as `avg`, computed from a sum and a count.

    The sum is divided as a decimal with as many digits after the point as the result has: the quotient then has these,
    and is rounded once. Where the result has fewer than any quotient, the sum is first divided by a power of ten, and
    the quotient multiplied by it.

    Args:
        total: the sum, in the type that Spark gives to sums.
        count: the number of values summed; not 0.
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
