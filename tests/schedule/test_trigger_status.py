from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.model.schedule import Every
from kilonova.model.trigger import (
    AllOf,
    ArrivalTrigger,
    ConditionState,
    MisfirePolicy,
    Occurrence,
    RunOutcome,
    RunTrigger,
    TimeTrigger,
    Trigger,
)
from kilonova.schedule.trigger_evaluation import Arrivals, TriggerInputs, evaluate, initial_state
from kilonova.schedule.trigger_status import trigger_status
from tests.schedule.trigger_histories import START, History, after, histories, seen_at, triggers

SOME = TriggerInputs(
    arrived={("clicks", 4): Arrivals(first=after(5), point=6, time=after(9), rows=300)},
    reached={("templates", RunOutcome.SUCCEEDED, 7): (8, after(3))},
)


@given(triggers, histories, st.lists(st.integers(0, 70), max_size=5).map(sorted), st.integers(0, 70))
def test_a_trigger_is_ready_exactly_if_an_evaluation_would_fire_it(
    trigger: Trigger, history: History, looks: list[int], later: int
) -> None:
    state = initial_state(trigger, START, 0)
    for second in looks:
        state = evaluate(trigger, state, seen_at(history, second, trigger, state), after(second)).state
    second = max([*looks, later])
    happened = seen_at(history, second, trigger, state)
    looked, found = (
        evaluate(trigger, state, happened, after(second)),
        trigger_status(trigger, state, happened, after(second)),
    )
    assert found.ready == (looked.occurrence is not None) == all(part.ready for part in found.parts)
    assert found.next_check == looked.next_check
    for part in found.parts:
        if not part.ready and part.next_check is not None:
            assert trigger_status(trigger, state, happened, part.next_check).parts[
                found.parts.index(part)
            ].ready or isinstance(part.trigger, TimeTrigger)


@pytest.mark.parametrize(
    ("trigger", "state", "waits"),
    [
        (ArrivalTrigger(channel="clicks"), ConditionState(seen=12), "nothing new on clicks since point 12"),
        (ArrivalTrigger(channel="clicks"), ConditionState(), "nothing new on clicks"),
        (ArrivalTrigger(channel="clicks"), ConditionState(seen=4), "point 6 of clicks was reached"),
        (ArrivalTrigger(channel="clicks", rows=1000), ConditionState(seen=4), "clicks: 300 of 1,000 rows have arrived"),
        (
            ArrivalTrigger(channel="clicks", rows=1000, seconds=3600),
            ConditionState(seen=4),
            "clicks: 300 of 1,000 rows have arrived, the oldest at 2024-03-01 12:00:05 UTC, "
            "old enough at 2024-03-01 13:00:05 UTC",
        ),
        (
            ArrivalTrigger(channel="clicks", seconds=60),
            ConditionState(seen=4),
            "the oldest new row of clicks arrived at 2024-03-01 12:00:05 UTC "
            "and is old enough at 2024-03-01 12:01:05 UTC",
        ),
        (TimeTrigger(schedule=Every(60)), ConditionState(time=after(60)), "the next time is 2024-03-01 12:01:00 UTC"),
        (TimeTrigger(schedule=Every(60)), ConditionState(time=after(-60)), "2024-03-01 12:00:00 UTC has passed"),
        (
            TimeTrigger(schedule=Every(3600), missed=MisfirePolicy.SKIP),
            ConditionState(time=after(-1800)),
            "2024-03-01 11:30:00 UTC was missed; the next time is 2024-03-01 12:30:00 UTC",
        ),
        (RunTrigger(binding="templates"), ConditionState(seen=8), "no run of templates has succeeded since"),
        (RunTrigger(binding="templates"), ConditionState(seen=7), "templates has succeeded"),
        (
            RunTrigger(binding="templates", reached=RunOutcome.LAUNCHED),
            ConditionState(),
            "no run of templates has been launched since",
        ),
    ],
)
def test_the_condition_of_a_trigger_is_described_as_text(trigger: Trigger, state: ConditionState, waits: str) -> None:
    found = trigger_status(trigger, (state,), SOME, after(10))
    assert found.waits == waits


def test_of_a_compound_trigger_each_condition_is_described() -> None:
    trigger = AllOf(
        (
            ArrivalTrigger(channel="clicks", rows=1000, seconds=60),
            RunTrigger(binding="templates"),
            RunTrigger(binding="b"),
        )
    )
    fired = ConditionState(seen=9, fired=Occurrence("event 9", after(1)))
    found = trigger_status(trigger, (ConditionState(seen=4), ConditionState(seen=8), fired), SOME, after(10))
    assert found.text == (
        "clicks has 1,000 new rows or some are 1 minute old, and templates has succeeded, and b has succeeded"
    )
    assert [(part.ready, part.rows, part.since) for part in found.parts] == [
        (False, 300, after(5)),
        (False, None, None),
        (True, None, None),
    ]
    assert found.parts[2].waits == "b has succeeded"
    assert found.waits == "; ".join(part.waits for part in found.parts)
    assert (found.ready, found.next_check) == (False, after(5) + timedelta(minutes=1))
