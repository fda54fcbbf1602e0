"""Phases of a bound: kept, about to be violated, violated; and the changes between them that are worth an event.

A bound is *at risk* once 90% of its limit is used up. The recorded phase has a memory, so that each episode, from the
time the bound is no longer kept until it is again, is announced once:

    KEPT ──▶ AT_RISK ──▶ VIOLATED        an event at each ▶
      ▲─────────┘            │
      └──────────────────────┘           an event: it is kept again

A violated bound that is only at risk again stays violated, until a tenth of its limit is left.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

from kilonova.model.bound import BoundState, StalenessBound

AT_RISK_SHARE = 0.9
"""Share of the limit from which a bound is at risk."""


class BoundPhase(enum.Enum):
    """Phase of a bound."""

    KEPT = "kept"
    AT_RISK = "at risk"
    VIOLATED = "violated"


def phase_of(state: BoundState) -> BoundPhase:
    """Return the phase of a bound at one moment, without memory."""
    if state.violated:
        return BoundPhase.VIOLATED
    limit = state.bound.limit
    used_up = limit > timedelta() and state.amount >= AT_RISK_SHARE * limit
    return BoundPhase.AT_RISK if used_up else BoundPhase.KEPT


def next_phase(recorded: BoundPhase, present: BoundPhase) -> BoundPhase:
    """Return the phase to record, given the one recorded before and the present one.

    >>> next_phase(BoundPhase.VIOLATED, BoundPhase.AT_RISK), next_phase(BoundPhase.AT_RISK, BoundPhase.KEPT)
    (<BoundPhase.VIOLATED: 'violated'>, <BoundPhase.KEPT: 'kept'>)
    """
    if recorded is BoundPhase.VIOLATED and present is BoundPhase.AT_RISK:
        return recorded
    return present


def next_change(state: BoundState, now: datetime) -> datetime | None:
    """Return the next time at which the phase of a bound changes if no point is written; None if it does not.

    Args:
        state: the state of the bound.
        now: the present time.
    """
    if state.due is None or not isinstance(state.bound, StalenessBound):
        return None
    at_risk = state.due - (1 - AT_RISK_SHARE) * state.bound.limit
    return next((time for time in (at_risk, state.due) if time > now), None)
