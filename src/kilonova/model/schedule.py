"""A schedule is a sequence of times: at a fixed interval, or given by a cron expression.

A task's schedule delays it: the task does not run automatically before the first scheduled time after its last run,
even if there is new input. A task whose logic has not run yet is not delayed, nor one that is requested by name or
started by a trigger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from kilonova.errors import DeclarationError

UNITS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
"""Seconds per unit, the longest unit first."""


@dataclass(frozen=True, slots=True)
class Every:
    """Interval schedule: the number of seconds between the beginnings of two runs.

    Raises:
        DeclarationError: the number is not positive.
    """

    seconds: int

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise DeclarationError("the interval of a schedule must be positive", hint="Write every 1 hour")


@dataclass(frozen=True, slots=True)
class Cron:
    """Cron schedule: a time of the five-field expression lies between the beginnings of two runs.

    Attributes:
        expression: minute, hour, day, month and weekday.
        zone: the time zone of the expression, by its name in the IANA database.
    """

    expression: str
    zone: str = "UTC"


Schedule = Every | Cron


def describe_schedule(schedule: Schedule) -> str:
    """Return the schedule as users write it.

    >>> describe_schedule(Every(7200))
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
    """Return a number of seconds as text, in the largest unit that divides it.

    >>> duration(5400), duration(86_400), duration(0)
    ('90 minutes', '1 day', '0 seconds')
    """
    if not seconds:
        return "0 seconds"
    unit = next(name for name, length in UNITS.items() if seconds % length == 0)
    count = seconds // UNITS[unit]
    return f"{count} {unit}{'s' if count > 1 else ''}"
