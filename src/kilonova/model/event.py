"""Events recorded in the catalog, which triggers, web pages and users follow.

Events are numbered in the order of their commits, so that a reader that has read up to one has missed none before it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime


class EventKind(enum.Enum):
    """Kind of an event.

    FILE_RELEASED: a file is no longer quarantined, because it is retried, has changed, or was removed. COLUMNS_ADDED:
    an ingest has added columns to its channel. STUCK: a firing has been due for too long, or has failed the maximum
    number of attempts. DELIVERY_FAILED: an event could not be delivered to a subscription, and was given up. FELL_BACK:
    a run recomputed a view, because its incremental refresh failed. RECOVERED: the catalog was recovered from the
    blocks of the warehouse. DAMAGED: a block differs from what was written. DEFERRED: a workflow was registered that
    takes effect later. DEFERRAL_FAILED: it could not be applied when it was due, and is discarded. BOUND_AT_RISK: 90%
    of the limit of a bound are used up. BOUND_VIOLATED: a bound is violated. BOUND_RESTORED: a bound that was violated
    is kept again. BOUND_CHANGED: a bound was set or removed at run time. INCOMPATIBLE_SCHEMA: a channel lacks, or will
    lack, a column that each logic version of a task requires. TOOK_OVER: a logic version that has waited for a column
    runs.
    """

    LAUNCHED = "launched"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    SKIPPED = "skipped"
    FIRED = "fired"
    APPLIED = "applied"
    DEFERRED = "deferred"
    DEFERRAL_FAILED = "deferral-failed"
    INCOMPATIBLE_SCHEMA = "incompatible-schema"
    TOOK_OVER = "took-over"
    PAUSED = "paused"
    RESUMED = "resumed"
    FILE_QUARANTINED = "file-quarantined"
    FILE_RELEASED = "file-released"
    FILE_CHANGED = "file-changed"
    COLUMNS_ADDED = "columns-added"
    DIRECTORY_UNREADABLE = "directory-unreadable"
    SERVER_STARTED = "server-started"
    SERVER_STOPPED = "server-stopped"
    SERVER_SILENT = "server-silent"
    STUCK = "stuck"
    DELIVERY_FAILED = "delivery-failed"
    FELL_BACK = "fell-back"
    RECOVERED = "recovered"
    DAMAGED = "damaged"
    BOUND_AT_RISK = "bound-at-risk"
    BOUND_VIOLATED = "bound-violated"
    BOUND_RESTORED = "bound-restored"
    BOUND_CHANGED = "bound-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event.

    Attributes:
        number: 1, 2, 3, … in the order of commits; there may be gaps.
        time: the time at which it happened.
        kind: its kind.
        run: the run concerned.
        binding: the binding concerned.
        channels: the channels that may have changed.
        text: details, for display.
    """

    number: int
    time: datetime
    kind: EventKind
    run: int | None
    binding: str | None
    channels: tuple[str, ...]
    text: str
