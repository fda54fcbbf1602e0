"""Delivery state of subscriptions: the outcome of deliveries, see `kilonova.model.subscription`.

The cursor moves only past events that the subscription does not match, has accepted, or that were abandoned. So a
process that delivers the next event that the subscription matches, and then records `after_delivery` or
`after_failure`, delivers every matching event at least once, in order, however often it is stopped in between.

A failed delivery is retried with exponential backoff. An event that has failed for as long as `DeliveryRetries` allows
is abandoned, so that one that its receiver cannot accept does not block later ones for ever; each of these has the
same time of its own, so that an endpoint that was down for longer loses few events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kilonova.model.event import Event
from kilonova.model.subscription import DeliveryState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRetries:
    """Retry policy of failed deliveries.

    Attributes:
        first: the pause after the first failure.
        longest: the maximum pause.
        whole: for how long the delivery of an event is retried.
    """

    first: timedelta = timedelta(seconds=5)
    longest: timedelta = timedelta(hours=1)
    whole: timedelta = timedelta(days=3)

    def pause(self, attempts: int) -> timedelta:
        """Return the pause after a number of failures.

        >>> [DeliveryRetries().pause(attempts).total_seconds() for attempts in (1, 2, 3, 100)]
        [5.0, 10.0, 20.0, 3600.0]
        """
        return min(self.longest, self.first * (1 << min(attempts - 1, 30)))


def after_delivery(standing: DeliveryState, event: Event, now: datetime) -> DeliveryState:
    """Return the state of a subscription after it has accepted an event."""
    return DeliveryState(cursor=event.number, problem=standing.problem, delivered=now)


def after_failure(
    standing: DeliveryState, event: Event, problem: str, patience: DeliveryRetries, now: datetime
) -> tuple[DeliveryState, bool]:
    """Return the state of a subscription after a failed delivery of an event, and whether the event is abandoned."""
    since = standing.failing or now
    if now - since >= patience.whole:
        return DeliveryState(cursor=event.number, problem=problem, delivered=standing.delivered), True
    attempts = standing.attempts + 1
    retry = now + patience.pause(attempts)
    return replace(standing, attempts=attempts, failing=since, retry=retry, problem=problem), False
