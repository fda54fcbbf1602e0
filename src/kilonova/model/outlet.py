"""An outlet is where events are told to outside of Kilonova: a webhook, or OpenLineage.

An outlet is told of the events that it `wants`, in their order, each at least once: its cursor is the number of the
last event with which it is done. What an outlet has taken twice it knows again by the event's number.
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
"""The name of the outlet for OpenLineage, of which there is one at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An HTTP endpoint that is told of chosen events.

    Attributes:
        name: its name.
        url: where events are sent.
        kinds: the kinds of events that it is told of.
        binding: the binding whose events it is told of; None for all events.
        secret: the variable in the environment of servers that holds the secret by which they sign; None if they do
            not.

    Raises:
        DeclarationError: the name, the URL or the variable cannot be, or there is no kind.
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
            raise DeclarationError("a webhook needs events to be told of", hint="Choose some, such as failed and stuck")
        if self.secret is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.secret):
            raise DeclarationError(
                "the secret is given by the name of an environment variable",
                hint="Put the secret into a variable of the servers' environment, and give its name",
            )
        if not _is_address(self.url):
            raise DeclarationError(
                "the URL of a webhook begins with http:// or https:// and a host, and has no password in it",
                hint="Use a URL such as https://example.com/hook",
            )

    @property
    def origin(self) -> str:
        """The URL without its path, which may be as good as a secret.

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
    """OpenLineage, as the settings of servers say."""

    @property
    def name(self) -> str:
        """Its name."""
        return LINEAGE


Outlet = Webhook | Lineage

_OF_RUNS = (
    EventKind.LAUNCHED,
    EventKind.SUCCEEDED,
    EventKind.FAILED,
    EventKind.CANCELLED,
    EventKind.ABANDONED,
)


def wants(outlet: Outlet, event: Event) -> bool:
    """Whether an outlet is told of an event."""
    match outlet:
        case Webhook(kinds=kinds, binding=binding):
            return event.kind in kinds and binding in (None, event.binding)
        case Lineage():
            return event.kind in _OF_RUNS and event.run is not None
        case _:
            assert_never(outlet)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far an outlet has come.

    Attributes:
        cursor: the number of the last event with which it is done.
        attempts: how often it has been told of the next one in vain.
        failing: since when; None if there was no failure.
        retry: when it is tried again; None for at once.
        problem: what went wrong the last time that something did.
        delivered: when it took an event for the last time.
    """

    cursor: int
    attempts: int = 0
    failing: datetime | None = None
    retry: datetime | None = None
    problem: str = ""
    delivered: datetime | None = None
