"""Evaluation of triggers, see `kilonova.model.trigger`.

`evaluate(trigger, state, inputs, now)` is a pure function, so that every server gets the same result; the catalog
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


@dataclass(frozen=True, slots=True)
class ConditionEvaluation:
    """Result of evaluating a simple trigger.

    Attributes:
        state: its new state, as if the whole trigger fired.
        occurrence: the occurrence that meets it, now or since the whole trigger last fired; None if it is not met.
        next_check: the time of the next evaluation if there is no new input; None if none is needed.
    """

    state: ConditionState
    occurrence: Occurrence | None
    next_check: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of evaluating a trigger.

    Attributes:
        state: the trigger's new state.
        occurrence: the occurrence for which it fires; None if it does not fire.
        next_check: the time of the next evaluation if there is no new input; None if none is needed.
        conditions: the results for the simple triggers that it consists of.
    """

    state: TriggerState
    occurrence: Occurrence | None
    next_check: datetime | None
    conditions: tuple[ConditionEvaluation, ...]


def initial_state(trigger: Trigger, now: datetime, event: int) -> TriggerState:
    """Return the state of a trigger that is registered now.

    Args:
        trigger: the trigger.
        now: the current time.
        event: the number of the last event; earlier events do not fire the trigger.
    """
    return tuple(_initial_state(each, now, event) for each in conditions_of(trigger))


def _initial_state(condition: Condition, now: datetime, event: int) -> ConditionState:
    match condition:
        case ArrivalTrigger():  # existing data has not been processed for this trigger
            return ConditionState()
        case TimeTrigger(schedule=schedule):
            return ConditionState(time=now if isinstance(schedule, Every) else next_after(schedule, now))
        case RunTrigger():
            return ConditionState(seen=event)
        case _:
            assert_never(condition)


def evaluate(trigger: Trigger, state: TriggerState, inputs: TriggerInputs, now: datetime) -> Evaluation:
    """Evaluate a trigger: return its new state and the occurrence for which it fires, if any."""
    pairs = zip(conditions_of(trigger), state, strict=True)
    conditions = tuple(_evaluate(condition, each, inputs, now) for condition, each in pairs)
    met = [each.occurrence for each in conditions if each.occurrence is not None]
    fires = len(met) == len(conditions)
    return Evaluation(
        state=tuple(each.state if fires else replace(each.state, fired=each.occurrence) for each in conditions),
        occurrence=Occurrence(" + ".join(each.name for each in met), max(each.time for each in met)) if fires else None,
        next_check=min((each.next_check for each in conditions if each.next_check is not None), default=None),
        conditions=conditions,
    )


def _evaluate(condition: Condition, state: ConditionState, inputs: TriggerInputs, now: datetime) -> ConditionEvaluation:
    match condition:
        case ArrivalTrigger(channel=channel, rows=rows, seconds=seconds):
            new = inputs.arrived.get((channel, state.seen))
            if new is None:
                return _unchanged(state, None)
            ripe = None if seconds is None else new.first + timedelta(seconds=seconds)
            many = rows is not None and new.rows >= rows
            if (rows is None and ripe is None) or many or (ripe is not None and ripe <= now):
                arrival = Occurrence(f"{channel}@{new.point}", new.time)
                return ConditionEvaluation(ConditionState(seen=new.point), arrival, None)
            return _unchanged(state, ripe)
        case TimeTrigger(schedule=schedule, missed=missed):
            assert state.time is not None
            if state.time > now:
                return _unchanged(state, state.time)
            time = latest(schedule, state.time, now)
            following = next_after(schedule, time)
            skipped = missed is MisfirePolicy.SKIP and now - time > GRACE
            occurrence = state.fired if skipped else Occurrence(time.isoformat(), time)
            return ConditionEvaluation(ConditionState(time=following), occurrence, following)
        case RunTrigger(binding=binding, reached=reached):
            event = inputs.reached.get((binding, reached, state.seen))
            if event is None:
                return _unchanged(state, None)
            number, time = event
            return ConditionEvaluation(ConditionState(seen=number), Occurrence(f"event {number}", time), None)
        case _:
            assert_never(condition)


def _unchanged(state: ConditionState, next_check: datetime | None) -> ConditionEvaluation:
    return ConditionEvaluation(replace(state, fired=None), state.fired, next_check)
