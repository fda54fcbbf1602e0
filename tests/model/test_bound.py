from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.errors import DeclarationError
from kilonova.model.bound import (
    ZERO,
    BoundState,
    InconsistencyBound,
    StalenessBound,
    evaluate_bound,
    inconsistency,
    next_due,
    path_validity,
    staleness,
)
from kilonova.model.version import Reflection, Validity, Version

HOUR, TICK = timedelta(hours=1), timedelta.resolution
MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
CRAWL, SCORES = ("crawl", "join"), ("clicks", "score", "join")
ARRIVALS = {"crawl": (8, 24 + 11, 24 + 17, 48 + 14), "clicks": (1, 24 + 1, 48 + 1)}
"""When each point of Table 1 came, in hours since Monday."""


def at(hours: float) -> datetime:
    return MONDAY + hours * HOUR


def table_1(source: str, point: int) -> Validity:
    came = ARRIVALS[source]
    return Validity(at(came[point - 1]) if point else None, at(came[point]) if point < len(came) else None)


def version(crawl: tuple[int, int], scores: tuple[int, int]) -> Version:
    return Version.of({CRAWL: (Reflection((0,), *crawl),), SCORES: (Reflection((0, 0), *scores),)})


def behind(path: tuple[str, ...], limit: timedelta) -> StalenessBound:
    return StalenessBound(channel="scored", path=path, limit=limit)


def apart(limit: timedelta) -> InconsistencyBound:
    return InconsistencyBound(channel="scored", limit=limit)


NOW = at(48 + 14 + 1)
SNAPSHOT = version((4, 4), (1, 3))
"""The last of Table 4: the newest crawl with scores of three days."""


def test_staleness_is_the_time_for_which_newer_data_have_been_missing() -> None:
    assert staleness(SNAPSHOT, CRAWL, table_1, NOW) == ZERO
    assert staleness(SNAPSHOT, SCORES, table_1, NOW) == (48 + 15 - 25) * HOUR


def test_inconsistency_is_the_time_between_the_points_reflected() -> None:
    assert inconsistency(SNAPSHOT, table_1) == (48 + 14 - 25) * HOUR
    assert inconsistency(version((4, 4), (3, 3)), table_1) == ZERO


@pytest.mark.parametrize(("hours", "violated"), [(39, False), (38, False), (37, True), (0, True)])
def test_a_staleness_bound_holds_up_to_its_limit(hours: int, violated: bool) -> None:
    state = evaluate_bound(behind(SCORES, hours * HOUR), SNAPSHOT, table_1, NOW)
    assert state == BoundState(state.bound, 38 * HOUR, violated, at(25 + hours) + TICK)
    assert state.slack == (hours - 38) * HOUR


@pytest.mark.parametrize(("hours", "violated"), [(38, False), (37, True), (0, True)])
def test_an_inconsistency_bound_is_violated_at_its_limit(hours: int, violated: bool) -> None:
    state = evaluate_bound(apart(hours * HOUR), SNAPSHOT, table_1, NOW)
    assert (state.amount, state.violated) == (37 * HOUR, violated)
    assert state.due == (at(48 + 14) if violated else None)


def test_an_inconsistency_bound_of_zero_demands_consistency() -> None:
    for crawl, scores, consistent in (((1, 1), (1, 1), True), ((2, 2), (1, 1), False), ((4, 4), (3, 3), True)):
        one = version(crawl, scores)
        assert evaluate_bound(apart(ZERO), one, table_1, NOW).violated is not consistent
        assert one.is_consistent(table_1) is consistent


def test_a_path_that_was_never_read_reflects_the_empty_relation() -> None:
    never = evaluate_bound(behind(SCORES, HOUR), Version(), table_1, at(1.5))
    assert (never.amount, never.violated, never.due) == (0.5 * HOUR, False, at(2) + TICK)
    unborn = evaluate_bound(behind(("news", "t"), HOUR), Version(), lambda *_: Validity(None, None), NOW)
    assert (unborn.amount, unborn.violated, unborn.due) == (ZERO, False, None)


def test_the_next_violation_is_that_of_the_bound_that_is_due_first() -> None:
    states = [
        evaluate_bound(bound, SNAPSHOT, table_1, NOW)
        for bound in (apart(ZERO), behind(CRAWL, ZERO), behind(SCORES, 48 * HOUR), behind(SCORES, 40 * HOUR))
    ]
    first = next_due(states[1:])
    assert first is not None
    assert (first.bound, first.due) == (behind(SCORES, 40 * HOUR), at(25 + 40) + TICK)
    assert next_due(states[1:2]) is None


@pytest.mark.parametrize("make", [lambda: behind(CRAWL, -HOUR), lambda: apart(-HOUR), lambda: behind((), HOUR)])
def test_bounds_that_mean_nothing_are_refused(make: type[StalenessBound]) -> None:
    with pytest.raises(DeclarationError, match=r"\[channel scored\]"):
        make()


points = st.integers(0, 4).flatmap(lambda first: st.tuples(st.just(first), st.integers(first, 4)))


@settings(max_examples=200, deadline=None)
@given(points, points.map(lambda pair: (min(pair[0], 3), min(pair[1], 3))), st.integers(0, 80), st.integers(0, 80))
def test_bounds_are_the_papers_invariants(
    crawl: tuple[int, int], scores: tuple[int, int], limit: int, later: int
) -> None:
    one, now = version(crawl, scores), at(48 + 14) + later * HOUR + TICK
    whole = one.validity(table_1)
    each = [path_validity(one, path, table_1) for path in (CRAWL, SCORES)]
    assert whole.start == max((part.start for part in each if part.start), default=None)
    assert whole.end == min((part.end for part in each if part.end), default=None)
    for path, part in zip((CRAWL, SCORES), each, strict=True):
        state = evaluate_bound(behind(path, limit * HOUR), one, table_1, now)
        assert state.violated is not ((part.end or now) + limit * HOUR >= now)
        assert state.violated is (state.slack < ZERO)
        if state.due is not None:
            assert evaluate_bound(state.bound, one, table_1, state.due).violated
            assert not evaluate_bound(state.bound, one, table_1, state.due - TICK).violated
    state = evaluate_bound(apart(limit * HOUR), one, table_1, now)
    assert state.violated is not (whole.start is None or whole.start < (whole.end or now) + limit * HOUR)
