"""An event is something that has happened, as the catalog keeps it: what triggers, pages and people follow.

Events are numbered in the order of their commits, so that whoever has read up to one has missed none before.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime


class EventKind(enum.Enum):
    """What has happened.

    STUCK: a firing has been due for too long, or has been tried in vain as often as firings are. UNDELIVERED: an outlet
    has given an event up. FELL_BACK: a run made a view anew, because following its change failed. RECOVERED: the
    catalog was recovered from the blocks of the warehouse.
    """

    LAUNCHED = "launched"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    IDLE = "idle"
    FIRED = "fired"
    APPLIED = "applied"
    PAUSED = "paused"
    RESUMED = "resumed"
    SET_ASIDE = "set aside"
    CHANGED = "changed"
    UNSEEN = "unseen"
    SERVER_STARTED = "server started"
    SERVER_STOPPED = "server stopped"
    SERVER_SILENT = "server silent"
    STUCK = "stuck"
    UNDELIVERED = "undelivered"
    FELL_BACK = "fell back"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that has happened.

    Attributes:
        number: 1, 2, 3, … in the order of commits; some may be left out.
        time: when.
        kind: what.
        run: the run concerned.
        binding: the binding concerned.
        channels: the channels that may have changed.
        text: more of it, for people.
    """

    number: int
    time: datetime
    kind: EventKind
    run: int | None
    binding: str | None
    channels: tuple[str, ...]
    text: str
