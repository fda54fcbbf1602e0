"""Parser for the limits of bounds."""

from __future__ import annotations

from datetime import timedelta

from kilonova.declare.schedules import seconds_of
from kilonova.errors import DeclarationError

Limit = str | int | timedelta
"""Limit of a bound: a time span such as `"1 day"`, or 0."""


def limit_of(given: Limit) -> timedelta:
    """Parse the limit of a bound.

    Raises:
        DeclarationError: it is not a time span, or it is negative.

    >>> limit_of("90 minutes"), limit_of("0"), limit_of(timedelta(days=1))
    (datetime.timedelta(seconds=5400), datetime.timedelta(0), datetime.timedelta(days=1))
    """
    if isinstance(given, timedelta):
        limit = given
    else:
        text = str(given).strip()
        if text.startswith("-"):
            raise DeclarationError(f"the limit {text} of a bound is negative", hint="Give 0 or a positive time")
        limit = timedelta() if text == "0" else timedelta(seconds=seconds_of(text))
    if limit < timedelta():
        raise DeclarationError(f"the limit {limit} of a bound is negative", hint="Give 0 or a positive time")
    return limit
