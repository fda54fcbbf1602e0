"""A schedule holds a task back: until some time after its last run it does not run by itself, whatever is new.

Times are in UTC. A task whose logic has not run yet is not held back, nor one that is asked for by name.
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
    """Between the beginnings of two runs comes a time of a cron expression with five fields."""

    expression: str


Schedule = Every | Cron


def described(schedule: Schedule) -> str:
    """The schedule as users write it.

    >>> described(Every(7200))
    'every 2 hours'
    """
    match schedule:
        case Every(seconds):
            unit = next(name for name, length in UNITS.items() if seconds % length == 0)
            count = seconds // UNITS[unit]
            return f"every {count} {unit}{'s' if count > 1 else ''}"
        case Cron(expression):
            return expression
        case _:
            assert_never(schedule)
