"""Evaluation of triggers, see `kilonova.model.trigger`.

`evaluate(trigger, state, happened, now)` is a pure function, so that every server gets the same result; the catalog
records state and occurrences in one transaction, so that each occurrence fires exactly once. Evaluating more often, or
later, loses nothing: all inputs since the last evaluation are one occurrence, because one run reads all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from kilonova.model.schedule import Every
from kilonova.model.trigger import (
    AllOf,
    ArrivalTrigger,
    Condition,
    ConditionState,
    MisfirePolicy,
    Occurrence,
    RunOutcome,
    RunTrigger,
    TimeTrigger,
    Trigger,
    TriggerState,
    conditions_of,
)
from kilonova.schedule.next_times import latest, next_after

GRACE = timedelta(minutes=1)
"""Maximum delay after which a scheduled time does not count as missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Arrivals on a channel after a point: readable points that do not repeat the point before them.

    Attributes:
        first: the time of the first of them.
        point: the last of them.
        time: the time of the last of them.
        rows: the rows that they added; 0 where no trigger counts them.
    """

    first: datetime
    point: int
    time: datetime
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerInputs:
    """Inputs of trigger evaluation: the arrivals and run events after the point or event that each trigger has seen.

    Attributes:
        arrived: the arrivals since, by channel and the point that a trigger has seen; no entry if there are none.
        reached: the newest event since, and its time, by binding, outcome of its runs, and the event that a trigger has
            seen.
    """

    arrived: Mapping[tuple[str, int], Arrivals] = field(default_factory=dict)
    reached: Mapping[tuple[str, RunOutcome, int], tuple[int, datetime]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of evaluating a trigger.

    Attributes:
        state: the trigger's new state.
        occurrence: the occurrence for which it fires; None if it does not fire.
        next_check: the time of the next evaluation if there is no new input; None if none is needed.
    """

    state: TriggerState
    occurrence: Occurrence | None
    next_check: datetime | None


def initial_state(trigger: Trigger, now: datetime, event: int) -> TriggerState:
    """Return the state of a trigger that is registered now.

    Args:
        trigger: the trigger.
        now: the current time.
        event: the number of the last event; earlier events do not fire the trigger.
    """
    return tuple(_initial_state(item, now, event) for item in conditions_of(trigger))


def _initial_state(item: Condition, now: datetime, event: int) -> ConditionState:
    match item:
        case ArrivalTrigger():  # existing data has not been processed for this trigger
            return ConditionState()
        case TimeTrigger(schedule=schedule):
            return ConditionState(time=now if isinstance(schedule, Every) else next_after(schedule, now))
        case RunTrigger():
            return ConditionState(seen=event)
        case _:
            assert_never(item)


def evaluate(trigger: Trigger, state: TriggerState, happened: TriggerInputs, now: datetime) -> Evaluation:
    """Evaluate a trigger: return its new state and the occurrence for which it fires, if any."""
    looks = [_evaluate(item, one, happened, now) for item, one in zip(conditions_of(trigger), state, strict=True)]
    found = [each.occurrence or one.fired for each, one in zip(looks, state, strict=True)]
    waits = [each.next_check for each in looks if each.next_check is not None]
    next_check = min(waits) if waits else None
    whole = [occurrence for occurrence in found if occurrence is not None]
    states = tuple(each.state[0] for each in looks)
    if len(whole) < len(found):
        offers = isinstance(trigger, AllOf)
        kept = tuple(
            replace(one, fired=occurrence if offers else None) for one, occurrence in zip(states, found, strict=True)
        )
        return Evaluation(state=kept, occurrence=None, next_check=next_check)
    occurrence = Occurrence(" + ".join(each.name for each in whole), max(each.time for each in whole))
    return Evaluation(state=states, occurrence=occurrence, next_check=next_check)


def _evaluate(item: Condition, one: ConditionState, happened: TriggerInputs, now: datetime) -> Evaluation:
    match item:
        case ArrivalTrigger(channel=channel, rows=rows, seconds=seconds):
            new = happened.arrived.get((channel, one.seen))
            if new is None:
                return _waits(one, None)
            ripe = None if seconds is None else new.first + timedelta(seconds=seconds)
            many = rows is not None and new.rows >= rows
            if (rows is None and ripe is None) or many or (ripe is not None and ripe <= now):
                return _fires(ConditionState(seen=new.point), Occurrence(f"{channel}@{new.point}", new.time), None)
            return _waits(one, ripe)
        case TimeTrigger(schedule=schedule, missed=missed):
            assert one.time is not None
            if one.time > now:
                return _waits(one, one.time)
            time = latest(schedule, one.time, now)
            following = next_after(schedule, time)
            if missed is MisfirePolicy.SKIP and now - time > GRACE:
                return _waits(ConditionState(time=following), following)
            return _fires(ConditionState(time=following), Occurrence(time.isoformat(), time), following)
        case RunTrigger(binding=binding, reached=reached):
            event = happened.reached.get((binding, reached, one.seen))
            if event is None:
                return _waits(one, None)
            number, time = event
            return _fires(ConditionState(seen=number), Occurrence(f"event {number}", time), None)
        case _:
            assert_never(item)


def _waits(state: ConditionState, next_check: datetime | None) -> Evaluation:
    return Evaluation(state=(replace(state, fired=None),), occurrence=None, next_check=next_check)


def _fires(state: ConditionState, occurrence: Occurrence, next_check: datetime | None) -> Evaluation:
    return Evaluation(state=(state,), occurrence=occurrence, next_check=next_check)
