from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kilonova.model.schedule import Cron, Every
from kilonova.model.trigger import (
    ArrivalTrigger,
    Condition,
    MisfirePolicy,
    RunTrigger,
    TimeTrigger,
    Trigger,
    TriggerState,
)
from kilonova.model.trigger import conditions_of as parts
from kilonova.schedule.queueing import Waiting, select_bindings
from kilonova.schedule.trigger_evaluation import Evaluation, TriggerInputs, evaluate, initial_state
from tests.schedule.trigger_histories import START, Arrives, Ends, History, after, histories, seen_at, triggers


def looked_at(trigger: Trigger, state: TriggerState, history: History, second: int, now: int) -> Evaluation:
    """What comes of looking at a trigger when nothing has happened after some second."""
    return evaluate(trigger, state, seen_at(history, second, trigger, state), after(now))


looks = st.lists(st.integers(0, 70), min_size=1, max_size=8).map(sorted)


def fired_by_definition(item: Condition, history: History, seconds: list[int]) -> list[int]:
    """At which of the looks a simple trigger fires: a slow and separate statement of what it waits for."""
    fired: list[int] = []
    done = 0  # how many of the things that it waits for have been used up
    last = -1  # the last time of a clock that has been used up
    for second in seconds:
        past = [each for each in history if each.second <= second]
        match item:
            case ArrivalTrigger(channel=channel, rows=rows, seconds=age):
                came = [each for each in past if isinstance(each, Arrives) and each.channel == channel]
                new = came[done:]
                enough = rows is None and age is None
                enough = enough or (rows is not None and sum(each.rows for each in new) >= rows)
                enough = enough or (age is not None and any(second - each.second >= age for each in new))
                if new and enough:
                    fired.append(second)
                    done = len(came)
            case TimeTrigger(schedule=Every(interval)):
                times = [time for time in range(0, second + 1, interval) if time > last]
                if times:
                    fired.append(second)
                    last = times[-1]
            case RunTrigger(binding=binding, reached=reached):
                runs = [each for each in past if isinstance(each, Ends)]
                came = [each for each in runs if (each.binding, each.reached) == (binding, reached)]
                if len(came) > done:
                    fired.append(second)
                    done = len(came)
    return fired


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
    offers = [fired_by_definition(item, history, seconds) for item in parts(trigger)]
    wanted, pending = [], [False] * len(offers)
    for second in dict.fromkeys(seconds):
        pending = [had or second in own for had, own in zip(pending, offers, strict=True)]
        if all(pending):
            wanted.append(second)
            pending = [False] * len(offers)
    assert fired == wanted
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
        Waiting(binding=f"b{number}", workflow=workflow, priority=priority, since=after(second))
        for number, (workflow, priority, second) in enumerate(items)
    ]
    found = [batch[0] for batch in select_bindings([(each,) for each in waiting], running, room, limit)]
    assert len(set(found)) == len(found) <= room
    for workflow in "uvw":
        own = sum(each.workflow == workflow for each in found)
        assert limit is None or own == 0 or own + running.get(workflow, 0) <= limit
    left = [each for each in waiting if each not in found]
    if limit is None:
        assert len(found) == min(room, len(waiting))
        assert not found or not left or min(each.priority for each in found) >= max(each.priority for each in left)
