"""A firing is a request to run a binding, made by a trigger or manually.

::

    DUE ── claim ──▶ CLAIMED ── launch ──▶ RUNNING ── succeed ──▶ SUCCEEDED
     ▲                │   └──── idle ─────────┐ └───── fail ────▶ FAILED
     └─── release ────┘                       ▼
     └─── release (its run was abandoned) ── RUNNING             IDLE    there was nothing to do

A claim is valid for as long as the server that holds it is alive. A firing whose runs are abandoned repeatedly becomes
FAILED, because its runs crash their process.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kilonova.errors import BrokenInvariant


class FiringState(enum.Enum):
    """State of a firing."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def ended(self) -> bool:
        """Return whether the state is terminal."""
        return self in (FiringState.SUCCEEDED, FiringState.FAILED, FiringState.SKIPPED)


class FiringEvent(enum.Enum):
    """Event that changes the state of a firing."""

    CLAIM = "claim"
    LAUNCH = "launch"
    SUCCEED = "succeed"
    FAIL = "fail"
    SKIP = "skip"
    RELEASE = "release"


_NEXT: Mapping[tuple[FiringState, FiringEvent], FiringState] = {
    (FiringState.QUEUED, FiringEvent.CLAIM): FiringState.CLAIMED,
    (FiringState.CLAIMED, FiringEvent.LAUNCH): FiringState.RUNNING,
    (FiringState.CLAIMED, FiringEvent.SKIP): FiringState.SKIPPED,
    (FiringState.CLAIMED, FiringEvent.FAIL): FiringState.FAILED,
    (FiringState.CLAIMED, FiringEvent.RELEASE): FiringState.QUEUED,
    (FiringState.RUNNING, FiringEvent.SUCCEED): FiringState.SUCCEEDED,
    (FiringState.RUNNING, FiringEvent.FAIL): FiringState.FAILED,
    (FiringState.RUNNING, FiringEvent.RELEASE): FiringState.QUEUED,
}


def next_firing_state(state: FiringState, event: FiringEvent) -> FiringState:
    """Return the state after an event.

    Raises:
        BrokenInvariant: the event cannot happen in that state.
    """
    try:
        return _NEXT[state, event]
    except KeyError:
        raise BrokenInvariant(f"a firing that is {state.value} cannot {event.value}") from None


def before(event: FiringEvent) -> tuple[FiringState, ...]:
    """Return the states in which an event can happen."""
    return tuple(state for state, other in _NEXT if other is event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A firing as recorded in the catalog.

    Attributes:
        number: its number.
        binding: the binding to run.
        trigger: the trigger as text; None if fired manually.
        occurrence: the occurrence for which the trigger fired, or the person who fired.
        time: time of the occurrence.
        state: its state.
        attempts: number of its runs that were abandoned.
        server: the server that has claimed it.
        run: its run.
        ended: time at which it ended.
        reason: why it came to nothing: it was skipped, it failed, or its run changed nothing; None otherwise.
    """

    number: int
    binding: str
    trigger: str | None
    occurrence: str
    time: datetime
    state: FiringState
    attempts: int
    server: str | None
    run: int | None
    ended: datetime | None
    reason: str | None
