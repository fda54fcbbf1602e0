"""Schedules: as they are written, and until when they hold a task back."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.catalog.codec import schedule_from_json, schedule_to_json
from kilonova.declare.schedules import schedule_of
from kilonova.errors import DeclarationError
from kilonova.model.schedule import UNITS, Cron, Every, Schedule, describe_schedule
from kilonova.schedule import next_times
from kilonova.schedule.next_times import latest, next_after, waits_until
from tests.databases import NOON

CRONS = ("* * * * *", "0 * * * *", "*/7 3,5 * * *", "0 6 * * MON-FRI", "30 4 1 */3 *", "59 23 29 2 *")
SCHEDULES: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(Every, st.integers(1, 10**7)), st.sampled_from(CRONS).map(Cron)
)
MOMENTS = st.datetimes(datetime(2001, 1, 1), datetime(2090, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))


@given(schedule=SCHEDULES)
def test_a_schedule_is_read_as_it_is_described_and_kept(schedule: Schedule) -> None:
    assert schedule_of(describe_schedule(schedule)) == schedule
    assert schedule_from_json(schedule_to_json(schedule)) == schedule


@given(schedule=SCHEDULES, last=MOMENTS)
def test_a_task_waits_until_its_time_and_not_longer(schedule: Schedule, last: datetime) -> None:
    due = next_after(schedule, last)
    assert due > last
    instant = timedelta(microseconds=1)
    assert waits_until(schedule, last, due - instant) == due
    assert waits_until(schedule, last, due) is None
    assert waits_until(schedule, last, due + instant) is None


@given(
    schedule=st.sampled_from([*CRONS, "* 2 * * *", "30 2 * * *"]).flatmap(
        lambda cron: st.sampled_from(("UTC", "Europe/Berlin")).map(lambda zone: Cron(cron, zone))
    ),
    last=MOMENTS,
    steps=st.integers(0, 40),
    late=st.floats(0, 0.999),
)
def test_the_latest_time_is_found_as_by_walking(schedule: Cron, last: datetime, steps: int, late: float) -> None:
    first = walked = next_after(schedule, last)
    for _ in range(steps):
        walked = next_after(schedule, walked)
    now = walked + (next_after(schedule, walked) - walked) * late
    assert latest(schedule, first, now) == walked


def test_a_year_of_missed_minutes_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[str]()

    def counted(schedule: Schedule, last: datetime) -> datetime:
        asked["times"] += 1
        return next_after(schedule, last)

    monkeypatch.setattr(next_times, "next_after", counted)
    assert latest(Cron("* * * * *"), NOON, NOON + timedelta(days=365)) == NOON + timedelta(days=365)
    assert asked["times"] < 40


@given(moment=MOMENTS)
def test_what_has_no_schedule_or_has_not_run_does_not_wait(moment: datetime) -> None:
    assert waits_until(None, moment, moment) is None
    assert waits_until(Every(60), None, moment) is None


def test_cron_times_come_between_runs() -> None:
    assert next_after(Cron("0 * * * *"), NOON - timedelta(seconds=1)) == NOON
    assert next_after(Cron("0 * * * *"), NOON) == NOON + timedelta(hours=1)


def test_intervals_are_read_in_every_unit() -> None:
    for unit, length in UNITS.items():
        assert schedule_of(f"every {unit}") == schedule_of(f"Every 1  {unit}") == Every(length)
        assert schedule_of(f" every 3 {unit}s") == Every(3 * length)


@pytest.mark.parametrize(
    "wrong",
    ["", "hourly", "@daily", "every", "every 0 hours", "every 2 fortnights", "0 6 * *", "0 6 * * * *", "61 * * * *"],
)
def test_what_is_no_schedule_is_refused(wrong: str) -> None:
    with pytest.raises(DeclarationError):
        schedule_of(wrong)
