"""A schedule is a row of times: so much apart, or those of a cron expression.

That of a task holds it back: until the next time after its last run it does not run by itself, whatever is new. A task
whose logic has not run yet is not held back, nor one that is asked for by name, or by a trigger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from kilonova.errors import DeclarationError

UNITS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
"""The seconds of each unit, the longest first."""


@dataclass(frozen=True, slots=True)
class Every:
    """So many seconds lie between the beginnings of two runs.

    Raises:
        DeclarationError: they are none.
    """

    seconds: int

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise DeclarationError("a schedule must leave some time between runs", hint="Write every 1 hour")


@dataclass(frozen=True, slots=True)
class Cron:
    """Between the beginnings of two runs comes a time of a cron expression with five fields.

    Attributes:
        expression: minute, hour, day, month and weekday.
        zone: the time zone in which they are, by its name in the IANA database.
    """

    expression: str
    zone: str = "UTC"


Schedule = Every | Cron


def described(schedule: Schedule) -> str:
    """The schedule as users write it.

    >>> described(Every(7200))
    'every 2 hours'
    """
    match schedule:
        case Every(seconds):
            return f"every {duration(seconds)}"
        case Cron(expression, "UTC"):
            return expression
        case Cron(expression, zone):
            return f"{expression} in {zone}"
        case _:
            assert_never(schedule)


def duration(seconds: int) -> str:
    """So many seconds in words, in the largest unit that fits.

    >>> duration(5400), duration(86_400)
    ('90 minutes', '1 day')
    """
    unit = next(name for name, length in UNITS.items() if seconds % length == 0)
    count = seconds // UNITS[unit]
    return f"{count} {unit}{'s' if count > 1 else ''}"
