"""Axes, lanes, the points of a channel and runs over time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.catalog.read_models.point_history import BlockRecord, PointRecord
from kilonova.model.block import Base, Delta, Kind
from kilonova.model.channel import PointState
from kilonova.model.run import Run, RunKind, RunState
from kilonova.model.version import Version
from kilonova.service.reports import Lag
from kilonova.web.charts import lanes, steps, times
from kilonova.web.pages.runs import gantt
from kilonova.web.timeline import Timeline, timeline
from tests.databases import NOON


@given(st.floats(1e-6, 1e15), st.integers(2, 10))
def test_steps_are_round_and_reach_the_highest_value(high: float, count: int) -> None:
    found = steps(high, count)
    assert found[0] == 0
    assert found[-1] >= high * (1 - 1e-6)
    assert len(found) <= count + 1
    assert all(one < other for one, other in pairwise(found))


def test_steps_of_nothing_are_there() -> None:
    assert steps(0) == steps(-3) == [0.0, 1.0]


moments = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))


@given(moments, st.floats(0.5, 3e9), st.integers(2, 10))
def test_times_lie_between_the_ends_in_order(start: datetime, seconds: float, count: int) -> None:
    end = start + timedelta(seconds=seconds)
    found = times(start, end, count)
    assert all(0 <= tick.at <= 100 for tick in found)
    assert all(one.at < other.at for one, other in pairwise(found))
    if seconds < 365 * 24 * 3600:
        assert len(found) <= count + 1


def test_times_are_utc_on_days_when_clocks_change() -> None:
    start = datetime(2024, 3, 31, tzinfo=UTC)
    found = times(start, start + timedelta(hours=6))
    assert [tick.label for tick in found] == [f"{hour:02}:00" for hour in range(7)]
    assert [round(other.at - one.at, 2) for one, other in pairwise(found)] == [pytest.approx(16.67, abs=0.02)] * 6


def test_times_of_a_moment_are_few() -> None:
    assert len(times(NOON, NOON)) <= 1


spans = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 30)).map(lambda pair: (pair[0], pair[0] + pair[1])))


@given(spans.map(sorted))
def test_concurrent_runs_have_lanes_of_their_own(found: list[tuple[int, int]]) -> None:
    placed = list(zip(found, lanes(found), strict=True))
    for ((start, end), lane), ((begin, stop), other) in combinations(placed, 2):
        assert lane != other or end <= begin or stop <= start
    most = max((sum(start <= at < end for start, end in found) for at, _ in found), default=0)
    assert len({lane for _, lane in placed}) == most


def a_run(number: int, started: float, seconds: float | None) -> Run:
    begun = NOON + timedelta(seconds=started)
    return Run(
        number=number,
        kind=RunKind.TASKS,
        state=RunState.RUNNING if seconds is None else RunState.SUCCEEDED,
        tasks=("t",),
        owner="me",
        started=begun,
        ended=None if seconds is None else begun + timedelta(seconds=seconds),
        lease_until=begun,
        error=None,
        binding=None,
    )


@given(st.lists(st.tuples(st.integers(-5000, 0), st.none() | st.integers(0, 400)), min_size=1, max_size=30))
def test_runs_lie_within_their_chart(shown: list[tuple[int, int | None]]) -> None:
    found = gantt([a_run(number, *each) for number, each in enumerate(shown)], NOON)
    assert found is not None
    assert len(found.bars) == len(shown)
    assert found.lanes == max(bar.lane for bar in found.bars) + 1
    for bar in found.bars:
        assert 0 <= bar.left <= 100
        assert bar.width > 0
        assert bar.left + bar.width <= 100.4
    for one, other in combinations(found.bars, 2):
        apart = one.left + one.width <= other.left + 1e-6 or other.left + other.width <= one.left + 1e-6
        assert one.lane != other.lane or apart


def test_no_runs_have_no_chart() -> None:
    assert gantt([], NOON) is None


def test_a_run_that_began_later_than_now_is_shown() -> None:
    """Clocks of two machines differ."""
    [bar] = gantt([a_run(1, 5, None)], NOON).bars  # type: ignore[union-attr]
    assert bar.width > 0


def a_block(number: int, kind: Kind | None, *, state: str = "live", made: RunKind = RunKind.TASKS) -> BlockRecord:
    return BlockRecord(
        number=number,
        run=1,
        made=made,
        kind=kind,
        state=state,
        encoding="append",
        rows=1,
        bytes=10,
        files=1,
        removals=0,
        added=1,
    )


def a_point(number: int, *blocks: BlockRecord, state: PointState = PointState.FILLED) -> PointRecord:
    return PointRecord(
        number=number,
        state=state,
        time=NOON,
        run=number,
        kind=RunKind.TASKS,
        task="t",
        reason="because",
        version=Version(),
        reflected=Version(),
        withheld=False,
        blocks=blocks,
    )


def inside(found: Timeline) -> bool:
    places = [at for _, at in found.points] + [flag.at for flag in found.flags]
    marks = [(mark.left, mark.left + mark.width) for mark in found.marks]
    return all(0 <= at <= 100 for at in places) and all(0 <= left < right <= 100 for left, right in marks)


def test_points_blocks_and_cursors_have_places() -> None:
    points = [
        a_point(4, a_block(5, None), state=PointState.RESERVED),
        a_point(3, a_block(3, Delta(2, 3)), a_block(4, Base(3), made=RunKind.COMPACTION)),
        a_point(2, a_block(2, Delta(1, 2), state="collected")),
        a_point(1, a_block(1, Base(1))),
    ]
    readers = [
        Lag(task=task, logic=0, channel="c", cursor=cursor, newest=3) for task, cursor in (("a", 3), ("b", 3), ("c", 0))
    ]
    found = timeline(points, readers)
    assert [point.number for point, _ in found.points] == [1, 2, 3, 4]
    assert [at for _, at in found.points] == [20, 40, 60, 80]
    assert [mark.look for mark in found.marks] == ["base", "delta collected", "delta", "base compacted", "writing"]
    assert [(flag.point, flag.tasks, flag.at) for flag in found.flags] == [(0, ("c",), 0), (3, ("a", "b"), 60)]
    assert inside(found)


def test_a_page_of_older_points_shows_what_touches_it() -> None:
    points = [a_point(12, a_block(2, Delta(3, 12))), a_point(11, a_block(1, Delta(10, 11)))]
    readers = [Lag(task=task, logic=0, channel="c", cursor=cursor, newest=99) for task, cursor in (("a", 4), ("b", 40))]
    found = timeline(points, readers)
    assert [(flag.point, flag.tasks) for flag in found.flags] == [(4, ("a",))]
    assert len({mark.top for mark in found.marks}) == 2
    assert inside(found)


def test_a_channel_without_points_has_an_empty_timeline() -> None:
    found = timeline([], [Lag(task="a", logic=0, channel="c", cursor=0, newest=0)])
    assert (found.points, found.marks, found.flags) == ((), (), ())


def test_few_of_many_numbers_are_written() -> None:
    points = [a_point(number) for number in range(100, 0, -1)]
    found = timeline(points, [])
    assert len(found.points) / found.every <= 16
    assert timeline([replace(points[0])], []).every == 1
