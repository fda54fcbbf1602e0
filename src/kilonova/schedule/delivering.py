"""Which event an outlet is told of next, and what becomes of it; see `kilonova.model.outlet`.

The cursor moves only past events that the outlet does not want, has taken, or has been given up on. So whoever delivers
what `first` gives, and writes `delivered` or `failed` down afterwards, tells every event that is wanted at least once,
in order, however often it is stopped in between.

A failure is tried again after a pause that doubles each time. An event that has failed for as long as `Patience` says
is given up on, so that one which its receiver cannot take does not hold back those behind it for ever; each of these
has as much time of its own, so that an endpoint that was away for longer loses few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kilonova.model.event import Event
from kilonova.model.outlet import Outlet, Standing, wants


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How failures are tried again.

    Attributes:
        first: the pause after the first failure.
        longest: no pause is longer.
        whole: for how long an event is tried.
    """

    first: timedelta = timedelta(seconds=5)
    longest: timedelta = timedelta(hours=1)
    whole: timedelta = timedelta(days=3)

    def pause(self, attempts: int) -> timedelta:
        """The pause after so many failures.

        >>> [Patience().pause(attempts).total_seconds() for attempts in (1, 2, 3, 100)]
        [5.0, 10.0, 20.0, 3600.0]
        """
        return min(self.longest, self.first * (1 << min(attempts - 1, 30)))


def first(outlet: Outlet, events: Sequence[Event]) -> Event | None:
    """The first of events of which an outlet is to be told."""
    return next((event for event in events if wants(outlet, event)), None)


def delivered(standing: Standing, event: Event, now: datetime) -> Standing:
    """An outlet has taken an event."""
    return Standing(cursor=event.number, problem=standing.problem, delivered=now)


@dataclass(frozen=True, slots=True)
class Refused:
    """What becomes of an event that an outlet did not take.

    Attributes:
        standing: how the outlet stands.
        given_up: whether the event is not tried again.
    """

    standing: Standing
    given_up: bool


def failed(standing: Standing, event: Event, problem: str, patience: Patience, now: datetime) -> Refused:
    """An outlet did not take an event."""
    since = standing.failing or now
    if now - since >= patience.whole:
        after = Standing(cursor=event.number, problem=problem, delivered=standing.delivered)
        return Refused(after, True)
    attempts = standing.attempts + 1
    retry = now + patience.pause(attempts)
    return Refused(replace(standing, attempts=attempts, failing=since, retry=retry, problem=problem), False)
