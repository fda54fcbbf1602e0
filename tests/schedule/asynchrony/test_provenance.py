"""Provenance is the part of a version that planning needs: both agree in everything that both can do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kilonova.model.bound import Bound, InconsistencyBound, StalenessBound, evaluate_bound
from kilonova.model.version import Entry, Reflection, Version
from kilonova.schedule.asynchrony.bound_states import bound_states
from kilonova.schedule.asynchrony.channel_limits import LimitCheck, declared_limits
from kilonova.schedule.asynchrony.provenance import (
    ArrivalTimes,
    converted,
    extent,
    is_consistent,
    newest,
    precedes,
    provenance_of,
)
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState
from kilonova.schedule.asynchrony.widgets import UnitCosts, bag_union, channel_model, stateless, workflow_of

COSTS = UnitCosts(1.0, 1.0, 1.0, 1.0)
WORKFLOW = workflow_of(
    [channel_model("a", COSTS), channel_model("b", COSTS)],
    [
        stateless("t", "b", channel_model("c", COSTS), COSTS),
        bag_union("u", "a", "c", channel_model("d", COSTS), COSTS),
    ],
)
PATHS = WORKFLOW.paths["d"]
START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)

some = settings(max_examples=150, deadline=None)


@st.composite
def entries(draw: st.DrawFn, length: int) -> Entry:
    points = sorted(draw(st.sets(st.integers(0, 6), min_size=1, max_size=4)))
    version = Version()
    for point in points:
        version = version.joined(Version.of({("s",): (Reflection((0,) * length, point, point),)}))
    return version.entries[0][1]


@st.composite
def versions(draw: st.DrawFn) -> Version:
    return Version.of({path: draw(entries(len(path) - 1)) for path in PATHS})


@st.composite
def times(draw: st.DrawFn) -> dict[str, ArrivalTimes]:
    found = {}
    for source in ("a", "b"):
        hours = sorted(draw(st.sets(st.integers(0, 20), min_size=6, max_size=6)))
        found[source] = ArrivalTimes(tuple(range(1, 7)), tuple(START + hour * HOUR for hour in hours))
    return found


def test_paths_are_in_the_order_of_the_ports() -> None:
    assert PATHS == (("a", "u"), ("b", "t", "u"))


@some
@given(versions(), times())
def test_the_extent_is_the_validity(version: Version, arrivals: dict[str, ArrivalTimes]) -> None:
    provenance = provenance_of(version, PATHS)
    whole = version.validity(lambda source, point: arrivals[source].validity(point))
    assert extent(provenance, PATHS, arrivals) == (whole.start, whole.end)
    assert is_consistent(provenance, PATHS, arrivals) is not whole.empty


@some
@given(versions(), versions())
def test_order_is_that_of_versions(one: Version, other: Version) -> None:
    first, second = (newest(provenance_of(each, PATHS)) for each in (one, other))
    assert precedes(first, second) is one.precedes(other)


@some
@given(versions(), versions(), versions(), st.tuples(st.sampled_from("bs-"), st.sampled_from("bs-")))
def test_conversion_is_that_of_versions(base: Version, start: Version, end: Version, kinds: tuple[str, str]) -> None:
    """For each entry the delta starts where the base is, or leaves the entry as it is; otherwise it does not apply."""
    starts, ends = dict(start.entries), dict(end.entries)
    for kind, (path, entry) in zip(kinds, base.entries, strict=True):
        if kind == "b":
            starts[path] = entry
        elif kind == "s":
            ends[path] = starts[path]
    start, end = Version.of(starts), Version.of(ends)
    found = converted(*(provenance_of(each, PATHS) for each in (base, start, end)))
    fits = all(dict(base.entries)[path] == starts[path] or starts[path] == ends[path] for path in PATHS)
    assert (found is not None) is fits
    if found is not None:
        assert found == provenance_of(base.advanced(start, end), PATHS)


@some
@given(versions(), times(), st.integers(0, 24), st.integers(0, 24), st.integers(0, 5))
def test_states_of_bounds_are_those_of_versions(
    version: Version, arrivals: dict[str, ArrivalTimes], stale: int, apart: int, later: int
) -> None:
    now = START + (21 + later) * HOUR
    bounds: tuple[Bound, ...] = (
        StalenessBound(channel="d", path=PATHS[1], limit=stale * HOUR),
        InconsistencyBound(channel="d", limit=apart * HOUR),
    )
    head = provenance_of(version, PATHS)
    state = SchedulingState(now=now, times=arrivals, blocks={}, outputs=(OutputState("d", frozenset(), head),))
    found = bound_states(WORKFLOW, bounds, state)
    assert found == tuple(
        evaluate_bound(bound, version, lambda source, point: arrivals[source].validity(point), now) for bound in bounds
    )
    check = LimitCheck(WORKFLOW.paths, arrivals, now, declared_limits(WORKFLOW, bounds))
    assert check.holds("d", head) is not any(each.violated for each in found)


@some
@given(versions())
def test_a_base_that_a_delta_starts_at_becomes_its_target(version: Version) -> None:
    provenance = provenance_of(version, PATHS)
    later = tuple(((entry[-1][1] + 1, entry[-1][1] + 1),) for entry in provenance)
    assert converted(provenance, provenance, later) == later


def test_entries_that_were_not_propagated_stay_as_they_are() -> None:
    """Section 3.3: B(⟨9am, 9am⟩) and Δ(⟨{}, 9am⟩ ▷ ⟨{}, 10am⟩) make B(⟨9am, 10am⟩)."""
    nine, ten = ((9, 9),), ((10, 10),)
    assert converted((nine, nine), ((), nine), ((), ten)) == (nine, ten)
    assert precedes(newest(((), nine)), newest(((), ten)))
    arrivals = ArrivalTimes((9, 10), (START, START + HOUR))
    assert extent(((), ten), PATHS, {"a": arrivals, "b": arrivals}) == (START + HOUR, None)


@given(st.lists(st.integers(1, 30), min_size=1, unique=True), st.integers(0, 31))
def test_points_that_are_not_listed_equal_those_before_them(numbers: list[int], point: int) -> None:
    """Cancelled points are not listed."""
    listed = tuple(sorted(numbers))
    arrivals = ArrivalTimes(listed, tuple(START + number * HOUR for number in listed))
    assume(point not in listed)
    before = [number for number in listed if number < point]
    assert arrivals.validity(point) == arrivals.validity(before[-1] if before else 0)
