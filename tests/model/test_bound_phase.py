from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kilonova.model.bound import InconsistencyBound, StalenessBound, inconsistency_state, staleness_state
from kilonova.model.bound_phase import BoundPhase, next_change, next_phase, phase_of

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
HOUR, TICK = timedelta(hours=1), timedelta.resolution
KEPT, AT_RISK, VIOLATED = BoundPhase


def stale(limit: timedelta, amount: timedelta) -> tuple[BoundPhase, timedelta | None]:
    """The phase of a bound on staleness, and the time until the next one."""
    state = staleness_state(StalenessBound(channel="c", path=("a", "c"), limit=limit), NOON - amount, NOON)
    change = next_change(state, NOON)
    return phase_of(state), None if change is None else change - NOON


def test_a_bound_on_staleness_is_at_risk_before_it_is_violated() -> None:
    assert stale(10 * HOUR, timedelta()) == (KEPT, 9 * HOUR + TICK)
    assert stale(10 * HOUR, 9 * HOUR) == (AT_RISK, TICK)
    assert stale(10 * HOUR, 9 * HOUR + TICK) == (AT_RISK, HOUR)
    assert stale(10 * HOUR, 10 * HOUR) == (AT_RISK, TICK)
    assert stale(10 * HOUR, 10 * HOUR + TICK) == (VIOLATED, None)
    assert stale(timedelta(), TICK) == (VIOLATED, None)


def test_a_bound_on_inconsistency_does_not_change_with_time() -> None:
    for amount, phase in ((8 * HOUR, KEPT), (9 * HOUR, AT_RISK), (10 * HOUR, VIOLATED)):
        state = inconsistency_state(InconsistencyBound(channel="c", limit=10 * HOUR), NOON + amount, NOON)
        assert (phase_of(state), next_change(state, NOON)) == (phase, None)


@pytest.mark.parametrize("present", BoundPhase)
def test_an_episode_ends_only_when_the_bound_is_kept_again(present: BoundPhase) -> None:
    assert next_phase(KEPT, present) is present
    assert next_phase(AT_RISK, present) is present
    assert next_phase(VIOLATED, present) is (KEPT if present is KEPT else VIOLATED)
