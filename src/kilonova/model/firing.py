"""A firing is a trigger that has fired, or a person who did: a binding that is to run.

::

    DUE ── claim ──▶ CLAIMED ── launch ──▶ RUNNING ── succeed ──▶ SUCCEEDED
     ▲                │   └──── idle ─────────┐ └───── fail ────▶ FAILED
     └─── release ────┘                       ▼
     └─── release (its run was abandoned) ── RUNNING             IDLE    there was nothing to do

A claim is good for as long as the server that has it is alive. A firing whose runs were abandoned again and again has
FAILED: what it runs takes its process with it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kilonova.errors import BrokenInvariant


class FiringState(enum.Enum):
    """Where a firing stands."""

    DUE = "due"
    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    IDLE = "idle"

    @property
    def ended(self) -> bool:
        """Whether nothing more becomes of it."""
        return self in (FiringState.SUCCEEDED, FiringState.FAILED, FiringState.IDLE)


class FiringEvent(enum.Enum):
    """What can happen to a firing."""

    CLAIM = "claim"
    LAUNCH = "launch"
    SUCCEED = "succeed"
    FAIL = "fail"
    IDLE = "idle"
    RELEASE = "release"


_NEXT: Mapping[tuple[FiringState, FiringEvent], FiringState] = {
    (FiringState.DUE, FiringEvent.CLAIM): FiringState.CLAIMED,
    (FiringState.CLAIMED, FiringEvent.LAUNCH): FiringState.RUNNING,
    (FiringState.CLAIMED, FiringEvent.IDLE): FiringState.IDLE,
    (FiringState.CLAIMED, FiringEvent.FAIL): FiringState.FAILED,
    (FiringState.CLAIMED, FiringEvent.RELEASE): FiringState.DUE,
    (FiringState.RUNNING, FiringEvent.SUCCEED): FiringState.SUCCEEDED,
    (FiringState.RUNNING, FiringEvent.FAIL): FiringState.FAILED,
    (FiringState.RUNNING, FiringEvent.RELEASE): FiringState.DUE,
}


def next_state(state: FiringState, event: FiringEvent) -> FiringState:
    """The state after an event.

    Raises:
        BrokenInvariant: the event cannot happen in that state.
    """
    try:
        return _NEXT[state, event]
    except KeyError:
        raise BrokenInvariant(f"a firing that is {state.value} cannot {event.value}") from None


def before(event: FiringEvent) -> tuple[FiringState, ...]:
    """The states in which an event can happen."""
    return tuple(state for state, other in _NEXT if other is event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A firing as the catalog keeps it.

    Attributes:
        number: its number.
        binding: what is to run.
        trigger: the trigger in words; None if a person fired.
        occurrence: what the trigger fired for, or who fired.
        time: when that happened.
        state: where it stands.
        attempts: how many runs of it were abandoned.
        server: the server that has claimed it.
        run: its run.
        ended: when it ended.
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
