"""Formatting of counts and times on pages: times are relative, and exact on hover."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

_STEPS = ((60, "s"), (60, "min"), (24, "h"), (7, "d"))


def number(count: float | None) -> str:
    """Format a count with separators.

    >>> number(1234567), number(None)
    ('1,234,567', '–')
    """
    return "–" if count is None else f"{count:,.0f}"


def lasting(start: datetime, end: datetime) -> float:
    """Return the seconds between two times."""
    return (end - start).total_seconds()


def relative(time: datetime, now: datetime) -> str:
    """Format a time relative to another.

    >>> from datetime import timedelta
    >>> now = datetime(2024, 1, 2, tzinfo=UTC)
    >>> relative(now - timedelta(minutes=3), now), relative(now + timedelta(hours=5), now), relative(now, now)
    ('3 min ago', 'in 5 h', 'now')
    """
    away = abs((now - time).total_seconds())
    if away < 1:
        return "now"
    amount, name = away, "d"
    for step, unit in _STEPS:
        if amount < step or unit == "d":
            name = unit
            break
        amount /= step
    text = f"{int(amount)} {name}"
    return f"{text} ago" if time <= now else f"in {text}"


def exact(time: datetime) -> str:
    """Format a time in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def moment(time: datetime | None, now: datetime) -> Markup:
    """Return a time as an HTML element, which the page keeps up to date."""
    if time is None:
        return Markup('<span class="nothing">–</span>')
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        time.astimezone(UTC).isoformat(), exact(time), relative(time, now)
    )


def counted(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun.

    >>> counted(1, "run"), counted(1200, "run"), counted(2, "query", "queries")
    ('1 run', '1,200 runs', '2 queries')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
