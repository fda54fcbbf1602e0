"""Next run times of schedules, see `kilonova.model.schedule`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_never
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from kilonova.errors import DeclarationError
from kilonova.model.schedule import Cron, Every, Schedule


def check_schedule(schedule: Schedule, now: datetime) -> None:
    """Validate a schedule.

    Args:
        schedule: the schedule.
        now: any time.

    Raises:
        DeclarationError: it is no cron expression of five fields, its time zone is unknown, or it never matches a time.
    """
    if not isinstance(schedule, Cron):
        return
    expression = schedule.expression
    if (fields := len(expression.split())) != 5:
        raise DeclarationError(f"a cron expression has five fields, not {fields}", hint=_WRITE)
    try:
        next_after(schedule, now)
    except (ZoneInfoNotFoundError, ValueError):
        raise DeclarationError(
            f"there is no time zone {schedule.zone!r}", hint="Use a name such as UTC or Europe/Berlin"
        ) from None
    except CronSimError as error:
        raise DeclarationError(f"{expression!r} is not a valid cron expression: {error}", hint=_WRITE) from None
    except StopIteration:
        raise DeclarationError(f"the cron expression {expression!r} never matches", hint=_WRITE) from None


_WRITE = "Write minute, hour, day, month and weekday, such as 0 6 * * MON-FRI, or every 1 hour"


def next_after(schedule: Schedule, last: datetime) -> datetime:
    """Return the first time at which a task that last ran at `last` may run again, in UTC.

    >>> from datetime import UTC
    >>> next_after(Cron("0 6 * * *"), datetime(2024, 2, 29, 6, 30, tzinfo=UTC)).isoformat()
    '2024-03-01T06:00:00+00:00'
    """
    match schedule:
        case Every(seconds):
            return last + timedelta(seconds=seconds)
        case Cron(expression, zone):
            return next(CronSim(expression, last.astimezone(ZoneInfo(zone)))).astimezone(UTC)
        case _:
            assert_never(schedule)


def latest(schedule: Schedule, first: datetime, now: datetime) -> datetime:
    """Return the newest time of a schedule that is not in the future, in logarithmic time.

    Args:
        schedule: the schedule.
        first: one of its times that is not in the future.
        now: the current time.

    >>> from datetime import UTC
    >>> latest(Cron("0 6 * * *"), datetime(2024, 1, 1, 6, tzinfo=UTC), datetime(2024, 9, 9, tzinfo=UTC)).isoformat()
    '2024-09-08T06:00:00+00:00'
    """
    if isinstance(schedule, Every):
        interval = timedelta(seconds=schedule.seconds)
        return first + (now - first) // interval * interval
    if next_after(schedule, first) > now:
        return first
    before, after = first, now  # a time lies in (before, now], none in (after, now]
    while after - before > timedelta(minutes=1):
        middle = before + (after - before) / 2
        if next_after(schedule, middle) <= now:
            before = middle
        else:
            after = middle
    return next_after(schedule, before)


def waits_until(schedule: Schedule | None, last: datetime | None, now: datetime) -> datetime | None:
    """Return the time until which a schedule delays a task; None if it does not."""
    if schedule is None or last is None:
        return None
    due = next_after(schedule, last)
    return due if due > now else None
