"""Schedules as users write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kilonova.errors import DeclarationError, closest
from kilonova.model.schedule import UNITS, Cron, Every, Schedule
from kilonova.schedule.timing import check

_EVERY = re.compile(r"every\s+(?:(\d+)\s+)?([a-z]+)", re.IGNORECASE)
_SOME_DAY = datetime(2000, 1, 1, tzinfo=UTC)


def schedule_of(text: str) -> Schedule:
    """A schedule from its text: `every 1 hour`, or a cron expression with five fields.

    Raises:
        DeclarationError: it is neither.

    >>> schedule_of("every 90 minutes"), schedule_of("0 6 * * *")
    (Every(seconds=5400), Cron(expression='0 6 * * *'))
    """
    found = _EVERY.fullmatch(text.strip())
    if found is None:
        cron = Cron(" ".join(text.split()))
        check(cron, _SOME_DAY)
        return cron
    unit = found[2].lower()
    unit = unit.removesuffix("s")
    if unit not in UNITS:
        raise DeclarationError(f"there is no unit {found[2]!r}", hint=closest(unit, list(UNITS)))
    return Every(int(found[1] or 1) * UNITS[unit])
