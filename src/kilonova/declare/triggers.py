"""Declaration of triggers: see `kilonova.model.trigger`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, get_args

from kilonova.declare.schedules import schedule_of, seconds_of
from kilonova.errors import DeclarationError, closest_name
from kilonova.model.schedule import Cron, Every
from kilonova.model.trigger import AllOf, ArrivalTrigger, Condition, MisfirePolicy, RunOutcome, RunTrigger, TimeTrigger
from kilonova.schedule.next_times import check_schedule

MissedName = Literal["run", "skip"]
ReachedName = Literal["launched", "succeeded", "failed"]


def arrival(channel: str, *, rows: int | None = None, age: str | None = None) -> ArrivalTrigger:
    """Declare a trigger that fires when data arrives on a channel.

    Args:
        channel: the channel.
        rows: wait until this many rows have arrived.
        age: wait until the new input has this age, such as `"10 minutes"`; with `rows`, whichever is first.

    Raises:
        DeclarationError: a number is not positive, or the age cannot be parsed.
    """
    return ArrivalTrigger(channel=channel, rows=rows, seconds=None if age is None else seconds_of(age))


def every(interval: str, *, missed: MissedName = "run") -> TimeTrigger:
    """Declare a trigger that fires at a fixed interval, for the first time when it is registered.

    Args:
        interval: the interval, such as `"1 week"`.
        missed: misfire policy for times missed while no server ran: `"run"` once for all of them, or `"skip"`.

    Raises:
        DeclarationError: the interval cannot be parsed.
    """
    return TimeTrigger(schedule=Every(seconds_of(interval)), missed=_missed(missed))


def cron(expression: str, *, zone: str = "UTC", missed: MissedName = "run") -> TimeTrigger:
    """Declare a trigger that fires at the times of a cron expression.

    Args:
        expression: minute, hour, day, month and weekday.
        zone: their time zone, such as `"Europe/Berlin"`.
        missed: as for `every`.

    Raises:
        DeclarationError: it is no cron expression, or never matches a time.
    """
    schedule = schedule_of(expression)
    if isinstance(schedule, Cron):
        schedule = Cron(schedule.expression, zone)
        check_schedule(schedule, datetime(2000, 1, 1, tzinfo=UTC))
    return TimeTrigger(schedule=schedule, missed=_missed(missed))


def after(binding: str, reached: ReachedName = "succeeded") -> RunTrigger:
    """Declare a trigger that fires when a run of another binding is launched, has succeeded or has failed.

    Args:
        binding: the binding.
        reached: `"launched"`, `"succeeded"` or `"failed"`.

    Raises:
        DeclarationError: there is no such run outcome.
    """
    if reached not in (names := get_args(ReachedName)):
        raise DeclarationError(f"there is no run outcome {reached!r}", hint=closest_name(str(reached), list(names)))
    return RunTrigger(binding=binding, reached=RunOutcome(reached))


def all_of(*triggers: Condition) -> AllOf:
    """Declare a trigger that fires when all of several triggers have fired.

    Args:
        triggers: the triggers, each made by another function of this module.

    Raises:
        DeclarationError: there are fewer than two, or one of them is itself an `all_of` trigger.
    """
    for trigger in triggers:
        if not isinstance(trigger, ArrivalTrigger | TimeTrigger | RunTrigger):
            raise DeclarationError("all_of takes only simple triggers", hint="Use arrival, every, cron and after")
    return AllOf(triggers)


def _missed(name: str) -> MisfirePolicy:
    if name not in (names := get_args(MissedName)):
        raise DeclarationError(f"there is no misfire policy {name!r}", hint=closest_name(str(name), list(names)))
    return MisfirePolicy(name)
