"""Triggers as users write them: see `kilonova.model.trigger`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, get_args

from kilonova.declare.schedules import schedule_of, seconds_of
from kilonova.errors import DeclarationError, closest
from kilonova.model.schedule import Cron, Every
from kilonova.model.trigger import After, AllOf, Arrival, Clock, Missed, Reached, Simple
from kilonova.schedule.timing import check

MissedName = Literal["run", "skip"]
ReachedName = Literal["launched", "succeeded", "failed"]


def arrival(channel: str, *, rows: int | None = None, age: str | None = None) -> Arrival:
    """Data arrives on a channel.

    Args:
        channel: the channel.
        rows: wait until so many rows have come.
        age: wait until what has come is so old, such as `"10 minutes"`; with `rows`, whichever is first.

    Raises:
        DeclarationError: a number is not positive, or the age cannot be understood.
    """
    return Arrival(channel=channel, rows=rows, seconds=None if age is None else seconds_of(age))


def every(interval: str, *, missed: MissedName = "run") -> Clock:
    """A time comes again and again, for the first time when the trigger is registered.

    Args:
        interval: such as `"1 week"`.
        missed: what becomes of times that came while no server ran: `"run"` once for all of them, or `"skip"`.

    Raises:
        DeclarationError: the interval cannot be understood.
    """
    return Clock(schedule=Every(seconds_of(interval)), missed=_missed(missed))


def cron(expression: str, *, zone: str = "UTC", missed: MissedName = "run") -> Clock:
    """A time of a cron expression comes.

    Args:
        expression: minute, hour, day, month and weekday.
        zone: the time zone in which they are, such as `"Europe/Berlin"`.
        missed: as for `every`.

    Raises:
        DeclarationError: it is no cron expression, or its time never comes.
    """
    schedule = schedule_of(expression)
    if isinstance(schedule, Cron):
        schedule = Cron(schedule.expression, zone)
        check(schedule, datetime(2000, 1, 1, tzinfo=UTC))
    return Clock(schedule=schedule, missed=_missed(missed))


def after(binding: str, reached: ReachedName = "succeeded") -> After:
    """A run of another binding is launched, has succeeded or has failed.

    Raises:
        DeclarationError: a run cannot get there.
    """
    if reached not in (names := get_args(ReachedName)):
        raise DeclarationError(f"a run is not {reached!r}", hint=closest(str(reached), list(names)))
    return After(binding=binding, reached=Reached(reached))


def all_of(*triggers: Simple) -> AllOf:
    """All of several triggers have fired.

    Raises:
        DeclarationError: there are fewer than two, or one of them is such a trigger itself.
    """
    for trigger in triggers:
        if not isinstance(trigger, Arrival | Clock | After):
            raise DeclarationError("all_of takes simple triggers", hint="Use arrival, every, cron and after")
    return AllOf(triggers)


def _missed(name: str) -> Missed:
    if name not in (names := get_args(MissedName)):
        raise DeclarationError(f"missed is not {name!r}", hint=closest(str(name), list(names)))
    return Missed(name)
