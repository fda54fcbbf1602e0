"""Subscriptions deliver events to receivers outside of Kilonova: webhooks, or OpenLineage.

A subscription is sent the events that it `wants`, in order, each at least once: its cursor is the number of the last
event that it has finished with. Receivers recognise an event that is delivered twice by its number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never
from urllib.parse import urlsplit

from kilonova.errors import DeclarationError
from kilonova.model.event import Event, EventKind

LINEAGE = "lineage"
"""Name of the subscription for OpenLineage, of which there is at most one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An HTTP endpoint that is notified of chosen events.

    Attributes:
        name: its name.
        url: the URL to which events are sent.
        kinds: the kinds of events that it is notified of.
        binding: the binding whose events it is notified of; None for all events.
        secret: the environment variable of servers that holds the secret with which they sign; None if they do not
            sign.

    Raises:
        DeclarationError: the name, the URL or the variable is invalid, or there is no kind.
    """

    name: str
    url: str
    kinds: frozenset[EventKind]
    binding: str | None = None
    secret: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", self.name) or self.name == LINEAGE:
            raise DeclarationError(
                f"a webhook cannot be named {self.name!r}", hint=f"Use letters, digits, _, - and ., but not {LINEAGE}"
            )
        if not self.kinds:
            raise DeclarationError(
                "a webhook needs at least one event kind",
                hint="Choose some, such as failed and stuck",
            )
        if self.secret is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.secret):
            raise DeclarationError(
                "the secret must be the name of an environment variable",
                hint="Put the secret into a variable of the servers' environment, and give its name",
            )
        if not _is_address(self.url):
            raise DeclarationError(
                "the URL of a webhook must begin with http:// or https:// and a host, and contain no password",
                hint="Use a URL such as https://example.com/hook",
            )

    @property
    def origin(self) -> str:
        """The URL without its path, which may contain a secret.

        >>> Webhook(name="w", url="https://example.com/x?y=1", kinds=frozenset(EventKind)).origin
        'https://example.com'
        """
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def _is_address(url: str) -> bool:
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and port != 0


@dataclass(frozen=True, slots=True)
class Lineage:
    """The OpenLineage receiver configured in the servers' settings."""

    @property
    def name(self) -> str:
        """Its name."""
        return LINEAGE


Subscription = Webhook | Lineage

_OF_RUNS = (
    EventKind.LAUNCHED,
    EventKind.SUCCEEDED,
    EventKind.FAILED,
    EventKind.CANCELLED,
    EventKind.ABANDONED,
)


def wants(subscription: Subscription, event: Event) -> bool:
    """Return whether a subscription is notified of an event."""
    match subscription:
        case Webhook(kinds=kinds, binding=binding):
            return event.kind in kinds and binding in (None, event.binding)
        case Lineage():
            return event.kind in _OF_RUNS and event.run is not None
        case _:
            assert_never(subscription)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryState:
    """Delivery state of a subscription.

    Attributes:
        cursor: the number of the last event that it has finished with.
        attempts: number of failed attempts to deliver the next event.
        failing: time since which delivery has failed; None if there was no failure.
        retry: time of the next attempt; None for at once.
        problem: the error of the last failure.
        delivered: time of the last successful delivery.
    """

    cursor: int
    attempts: int = 0
    failing: datetime | None = None
    retry: datetime | None = None
    problem: str = ""
    delivered: datetime | None = None
