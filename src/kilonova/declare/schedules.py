"""Parser for schedules and time spans."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kilonova.errors import DeclarationError, closest_name
from kilonova.model.schedule import UNITS, Cron, Every, Schedule
from kilonova.schedule.next_times import check_schedule

_EVERY = re.compile(r"every\s+(.+)", re.IGNORECASE)
_SPAN = re.compile(r"(?:(\d+)\s+)?([a-z]+)", re.IGNORECASE)
_SOME_DAY = datetime(2000, 1, 1, tzinfo=UTC)


def schedule_of(text: str) -> Schedule:
    """Parse a schedule: `every 1 hour`, or a cron expression with five fields.

    Raises:
        DeclarationError: it is neither.

    >>> schedule_of("every 90 minutes"), schedule_of("0 6 * * *")
    (Every(seconds=5400), Cron(expression='0 6 * * *', zone='UTC'))
    """
    found = _EVERY.fullmatch(text.strip())
    if found is None:
        cron = Cron(" ".join(text.split()))
        check_schedule(cron, _SOME_DAY)
        return cron
    return Every(seconds_of(found[1]))


def seconds_of(text: str) -> int:
    """Parse a time span and return its length in seconds.

    Raises:
        DeclarationError: it is not a time span.

    >>> seconds_of("90 minutes"), seconds_of("week")
    (5400, 604800)
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise DeclarationError(
            f"{text!r} is not a valid duration",
            hint="Write a number and a unit, such as 10 minutes",
        )
    unit = found[2].lower().removesuffix("s")
    if unit not in UNITS:
        raise DeclarationError(f"there is no unit {found[2]!r}", hint=closest_name(unit, list(UNITS)))
    return int(found[1] or 1) * UNITS[unit]
