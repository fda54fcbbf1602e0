"""Parser for schedules, times and time spans."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from kilonova.errors import DeclarationError, closest_name
from kilonova.model.schedule import UNITS, Cron, Every, Schedule
from kilonova.schedule.next_times import check_schedule

_EVERY = re.compile(r"every\s+(.+)", re.IGNORECASE)
_SPAN = re.compile(r"(?:(\d+)\s+)?([a-z]+)", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
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


def time_of(text: str, now: datetime) -> datetime:
    """Parse a time: the next time of day such as `02:00`, an ISO timestamp, or a time span from now; in UTC by default.

    Raises:
        DeclarationError: it is none of them.

    >>> now = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> [time_of(text, now).isoformat(" ") for text in ("02:00", "2024-05-03T02:00", "6 hours")]
    ['2024-05-02 02:00:00+00:00', '2024-05-03 02:00:00+00:00', '2024-05-01 18:00:00+00:00']
    """
    given = text.strip()
    with suppress(ValueError):
        if (clock := _CLOCK.fullmatch(given)) is not None:
            time = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
            return time if time > now else time + timedelta(days=1)
        found = datetime.fromisoformat(given)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    try:
        return now + timedelta(seconds=seconds_of(given))
    except (DeclarationError, OverflowError):
        hint = "Write a time in UTC such as 02:00 or 2030-01-31T02:00, or a duration such as 6 hours"
        raise DeclarationError(f"{text!r} is not a valid time", hint=hint) from None
