from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kilonova.model.schedule import Cron, Every
from kilonova.model.trigger import (
    MisfirePolicy,
    TimeTrigger,
    Trigger,
    TriggerState,
)
from kilonova.schedule.queueing import ObservedBinding, select_bindings
from kilonova.schedule.trigger_evaluation import Evaluation, TriggerInputs, evaluate, initial_state
from tests.schedule.queues import queued
from tests.schedule.trigger_histories import START, History, after, fired_by_definition, histories, seen_at, triggers


def looked_at(trigger: Trigger, state: TriggerState, history: History, second: int, now: int) -> Evaluation:
    """What comes of looking at a trigger when nothing has happened after some second."""
    return evaluate(trigger, state, seen_at(history, second, trigger, state), after(now))


looks = st.lists(st.integers(0, 70), min_size=1, max_size=8).map(sorted)


@given(triggers, histories, looks)
def test_a_trigger_fires_when_all_that_it_waits_for_has_come(
    trigger: Trigger, history: History, seconds: list[int]
) -> None:
    state = initial_state(trigger, START, 0)
    fired, names = [], []
    for second in seconds:
        looked = looked_at(trigger, state, history, second, second)
        state = looked.state
        if looked.occurrence is not None:
            fired.append(second)
            names.append(looked.occurrence.name)
    assert fired == fired_by_definition(trigger, history, seconds)
    assert len(set(names)) == len(names)


@given(triggers, histories, st.integers(0, 70))
def test_looking_again_at_once_fires_nothing(trigger: Trigger, history: History, second: int) -> None:
    first = looked_at(trigger, initial_state(trigger, START, 0), history, second, second)
    assert looked_at(trigger, first.state, history, second, second).occurrence is None


@given(triggers, histories, st.integers(0, 70))
def test_nothing_fires_before_it_is_time_to_wake_unless_something_happens(
    trigger: Trigger, history: History, second: int
) -> None:
    first = looked_at(trigger, initial_state(trigger, START, 0), history, second, second)
    for later in range(second, 100):
        again = looked_at(trigger, first.state, history, second, later)
        if again.occurrence is not None:
            assert first.next_check is not None
            assert first.next_check <= after(later)
            break


def test_times_missed_are_one_run_or_none() -> None:
    hourly = Every(3600)
    run, skip = TimeTrigger(schedule=hourly), TimeTrigger(schedule=hourly, missed=MisfirePolicy.SKIP)
    late, nothing = after(5.5 * 3600), TriggerInputs()
    looked = evaluate(run, initial_state(run, START, 0), nothing, late)
    assert looked.occurrence is not None
    assert looked.occurrence.time == after(5 * 3600)
    assert looked.next_check == after(6 * 3600)
    skipped = evaluate(skip, initial_state(skip, START, 0), nothing, late)
    assert skipped.occurrence is None
    assert skipped.next_check == after(6 * 3600)
    assert evaluate(skip, skipped.state, nothing, after(6 * 3600 + 5)).occurrence is not None


def test_a_cron_expression_follows_the_clock_of_its_time_zone() -> None:
    trigger = TimeTrigger(schedule=Cron("0 6 * * *", "Europe/Berlin"))
    state = initial_state(trigger, datetime(2024, 3, 30, 12, tzinfo=UTC), 0)
    times = []
    for day in (31, 32, 33):
        looked = evaluate(
            trigger, state, TriggerInputs(), datetime(2024, 3, 1, 12, tzinfo=UTC) + timedelta(days=day - 1)
        )
        assert looked.occurrence is not None
        times.append(looked.occurrence.time.isoformat())
        state = looked.state
    assert times == ["2024-03-31T04:00:00+00:00", "2024-04-01T04:00:00+00:00", "2024-04-02T04:00:00+00:00"]


@given(
    st.lists(st.tuples(st.sampled_from("uvw"), st.integers(0, 2), st.integers(0, 50)), max_size=12),
    st.dictionaries(st.sampled_from("uvw"), st.integers(0, 3)),
    st.integers(0, 6),
    st.none() | st.integers(1, 4),
)
def test_what_starts_next_keeps_to_priorities_and_limits(
    items: list[tuple[str, int, int]], running: dict[str, int], room: int, limit: int | None
) -> None:
    waiting = [
        queued(ObservedBinding(name=f"b{number}", workflow=workflow, priority=priority), after(second))
        for number, (workflow, priority, second) in enumerate(items)
    ]
    found = [batch[0] for batch in select_bindings([(each,) for each in waiting], running, room, limit)]
    assert len(set(found)) == len(found) <= room
    for workflow in "uvw":
        own = sum(each.binding.workflow == workflow for each in found)
        assert limit is None or own == 0 or own + running.get(workflow, 0) <= limit
    left = [each for each in waiting if each not in found]
    if limit is None:
        assert len(found) == min(room, len(waiting))
        priorities = [each.binding.priority for each in found]
        assert not found or not left or min(priorities) >= max(each.binding.priority for each in left)
