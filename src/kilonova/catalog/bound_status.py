"""Status of bounds: how stale and how inconsistent the newest points of their channels are, and the slack that is left.

Only the newest points are evaluated, and each end of a validity is one search in an index, so that the length of the
history does not matter.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from kilonova.catalog.bounds import RegisteredBound, bounds
from kilonova.catalog.channel_store import channel_states
from kilonova.catalog.database import Transaction
from kilonova.catalog.registry import view_of_tasks
from kilonova.catalog.temporal_provenance import temporal_provenances
from kilonova.catalog.validity import present
from kilonova.model.bound import Bound, StalenessBound, inconsistency_state, staleness_state
from kilonova.model.bound_phase import BoundPhase, next_change, phase_of
from kilonova.model.workflow_path import declared_form


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStatus:
    """Status of a bound that applies.

    Attributes:
        registered: the bound as registered.
        bound: the bound.
        point: the point that is evaluated: for a bound on staleness the one that readers are given, for one on
            inconsistency the newest one.
        start: T[i]⁺ of a bound on staleness, T⁺ of one on inconsistency; None if only empty relations are reflected.
        end: T[i]⁻ or T⁻; None if it is now.
        amount: the present staleness or inconsistency.
        slack: the limit minus the amount.
        phase: its phase at present.
        next_change: the next time at which that changes, if no point is written; None if it does not.
        kept: of a bound on inconsistency, the point that readers are given if the newest one is withheld; else None.
    """

    registered: RegisteredBound
    bound: Bound
    point: int
    start: datetime | None
    end: datetime | None
    amount: timedelta
    slack: timedelta
    phase: BoundPhase
    next_change: datetime | None
    kept: int | None

    @property
    def used(self) -> float:
        """The share of the limit that is used up, at most 1; 1 if a bound of 0 is violated."""
        if not self.bound.limit:
            return float(self.phase is BoundPhase.VIOLATED)
        return min(1.0, self.amount / self.bound.limit)


def bound_statuses(tx: Transaction, channels: Collection[str] | None = None) -> tuple[BoundStatus, ...]:
    """Return the status of the bounds that apply, by channel and path.

    Args:
        tx: an open transaction.
        channels: the channels; None for all.
    """
    applying = [(each, bound) for each in bounds(tx, channels) if (bound := each.bound) is not None]
    if not applying:
        return ()
    states = channel_states(tx, sorted({each.channel for each, _ in applying}))
    points = [
        (name, point)
        for name, each in states.items()
        for point in (each.settled(each.latest_kept), each.latest_distinct)
    ]
    provenances = temporal_provenances(tx, states, points, {each.path[0] for each, _ in applying if each.path})
    views, now = view_of_tasks(tx), present(tx)
    found = []
    for registered, bound in applying:
        state = states[registered.channel]
        newest, kept = state.latest_distinct, state.settled(state.latest_kept)
        point = kept if registered.path else newest
        provenance = provenances[registered.channel, point]
        if isinstance(bound, StalenessBound):
            every = [path for path, _ in provenance.reflected.entries if path[0] == bound.path[0]]
            paths = [path for path in every if declared_form(path, views) == bound.path]
            provenance = provenance.along(paths or [bound.path])
            result = staleness_state(bound, provenance.end, now)
        else:
            result = inconsistency_state(bound, provenance.start, provenance.end)
        found.append(
            BoundStatus(
                registered=registered,
                bound=bound,
                point=point,
                start=provenance.start,
                end=provenance.end,
                amount=result.amount,
                slack=result.slack,
                phase=phase_of(result),
                next_change=next_change(result, now),
                kept=kept if not registered.path and state.is_withheld(newest) else None,
            )
        )
    return tuple(found)
