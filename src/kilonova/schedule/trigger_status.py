"""Status of triggers: the conditions that a trigger waits for and their progress, without recording an evaluation.

`trigger_status(trigger, state, happened, now).ready` is true iff `evaluate(trigger, state, happened, now)` returns an
occurrence: a trigger that is not paused fires when a server evaluates it next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from kilonova.model.trigger import (
    ArrivalTrigger,
    Condition,
    ConditionState,
    Occurrence,
    RunOutcome,
    RunTrigger,
    TimeTrigger,
    Trigger,
    TriggerState,
    conditions_of,
    describe_trigger,
)
from kilonova.schedule.trigger_evaluation import Evaluation, TriggerInputs, evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionStatus:
    """Status of a simple trigger.

    Attributes:
        trigger: the trigger.
        ready: whether its condition is met.
        text: its progress, as text.
        rows: how many rows have arrived, if it counts them and waits for more; None otherwise.
        since: the arrival time of the oldest new input on its channel, if it waits for more; None otherwise.
        next_check: the time at which it is met without new input; None if there is none.
    """

    trigger: Condition
    ready: bool
    text: str
    rows: int | None
    since: datetime | None
    next_check: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerStatus:
    """Status of a trigger and of its conditions.

    Attributes:
        trigger: the trigger.
        text: its description.
        waits: its progress, as text.
        ready: whether it fires when a server evaluates it next.
        next_check: the time of the next evaluation if there is no new input; None if none is needed.
        parts: the status of each simple trigger in it.
    """

    trigger: Trigger
    text: str
    waits: str
    ready: bool
    next_check: datetime | None
    parts: tuple[ConditionStatus, ...]


def trigger_status(trigger: Trigger, state: TriggerState, happened: TriggerInputs, now: datetime) -> TriggerStatus:
    """Return the status of a trigger.

    Args:
        trigger: the trigger.
        state: its state.
        happened: the inputs of its evaluation.
        now: the current time.

    >>> from datetime import UTC
    >>> from kilonova.schedule.trigger_evaluation import Arrivals
    >>> noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    >>> some = TriggerInputs(arrived={("clicks", 4): Arrivals(first=noon, point=6, time=noon, rows=300)})
    >>> trigger_status(ArrivalTrigger(channel="clicks", rows=1000), (ConditionState(seen=4),), some, noon).waits
    'clicks: 300 of 1,000 rows have arrived'
    """
    looked = evaluate(trigger, state, happened, now)
    parts = tuple(
        _condition_status(item, one, happened, now) for item, one in zip(conditions_of(trigger), state, strict=True)
    )
    return TriggerStatus(
        trigger=trigger,
        text=describe_trigger(trigger),
        waits="; ".join(part.text for part in parts),
        ready=looked.occurrence is not None,
        next_check=looked.next_check,
        parts=parts,
    )


def _condition_status(item: Condition, one: ConditionState, happened: TriggerInputs, now: datetime) -> ConditionStatus:
    looked = evaluate(item, (replace(one, fired=None),), happened, now)
    had = looked.occurrence or one.fired
    rows = since = None
    if isinstance(item, ArrivalTrigger) and had is None and (new := happened.arrived.get((item.channel, one.seen))):
        rows, since = None if item.rows is None else new.rows, new.first
    return ConditionStatus(
        trigger=item,
        ready=had is not None,
        text=_lacking(item, one, looked, rows, since) if had is None else _had(item, looked, had),
        rows=rows,
        since=since,
        next_check=looked.next_check,
    )


def _had(item: Condition, looked: Evaluation, occurrence: Occurrence) -> str:
    match item:
        case ArrivalTrigger(channel=channel):
            return f"point {looked.state[0].seen} of {channel} was reached"
        case TimeTrigger():
            return f"{_moment(occurrence.time)} has passed"
        case RunTrigger(binding=binding, reached=reached):
            return f"{binding} has {_VERBS[reached]}"
        case _:
            assert_never(item)


def _lacking(item: Condition, one: ConditionState, looked: Evaluation, rows: int | None, since: datetime | None) -> str:
    match item:
        case ArrivalTrigger(channel=channel) if since is None:
            return f"nothing new on {channel}" + (f" since point {one.seen}" if one.seen else "")
        case ArrivalTrigger(channel=channel, rows=int(wanted)):
            ripe = (
                ""
                if looked.next_check is None
                else f", the oldest at {_moment(since)}, old enough at {_moment(looked.next_check)}"
            )
            return f"{channel}: {rows:,} of {wanted:,} rows have arrived{ripe}"
        case ArrivalTrigger(channel=channel):
            ripe = _moment(looked.next_check)
            return f"the oldest new row of {channel} arrived at {_moment(since)} and is old enough at {ripe}"
        case TimeTrigger():
            missed = "" if looked.state[0].time == one.time else f"{_moment(one.time)} was missed; "
            return f"{missed}the next time is {_moment(looked.next_check)}"
        case RunTrigger(binding=binding, reached=reached):
            return f"no run of {binding} has {_VERBS[reached]} since"
        case _:
            assert_never(item)


_VERBS = {RunOutcome.LAUNCHED: "been launched", RunOutcome.SUCCEEDED: "succeeded", RunOutcome.FAILED: "failed"}


def _moment(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"
