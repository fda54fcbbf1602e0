"""Status of triggers: the conditions that a trigger waits for and their progress, without recording an evaluation.

`trigger_status(trigger, state, inputs, now).ready` is true iff `evaluate(trigger, state, inputs, now)` returns an
occurrence: a trigger that is not paused fires when a server evaluates it next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from kilonova.model.trigger import (
    ArrivalTrigger,
    Condition,
    ConditionState,
    RunOutcome,
    RunTrigger,
    TimeTrigger,
    Trigger,
    TriggerState,
    conditions_of,
    describe_trigger,
)
from kilonova.schedule.trigger_evaluation import ConditionEvaluation, TriggerInputs, evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionStatus:
    """Status of a simple trigger.

    Attributes:
        trigger: the trigger.
        ready: whether its condition is met.
        waits: its progress, as text.
        rows: how many rows have arrived, if it counts them and waits for more; None otherwise.
        since: the arrival time of the oldest new input on its channel, if it waits for more; None otherwise.
        next_check: the time at which it is met without new input; None if there is none.
    """

    trigger: Condition
    ready: bool
    waits: str
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


def trigger_status(trigger: Trigger, state: TriggerState, inputs: TriggerInputs, now: datetime) -> TriggerStatus:
    """Return the status of a trigger.

    Args:
        trigger: the trigger.
        state: its state.
        inputs: the inputs of its evaluation.
        now: the current time.

    >>> from datetime import UTC
    >>> from kilonova.schedule.trigger_evaluation import Arrivals
    >>> noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    >>> some = TriggerInputs(arrived={("clicks", 4): Arrivals(first=noon, point=6, time=noon, rows=300)})
    >>> trigger_status(ArrivalTrigger(channel="clicks", rows=1000), (ConditionState(seen=4),), some, noon).waits
    'clicks: 300 of 1,000 rows have arrived'
    """
    evaluation = evaluate(trigger, state, inputs, now)
    every = zip(conditions_of(trigger), state, evaluation.conditions, strict=True)
    parts = tuple(_condition_status(condition, before, found, inputs) for condition, before, found in every)
    return TriggerStatus(
        trigger=trigger,
        text=describe_trigger(trigger),
        waits="; ".join(part.waits for part in parts),
        ready=evaluation.occurrence is not None,
        next_check=evaluation.next_check,
        parts=parts,
    )


def _condition_status(
    condition: Condition, before: ConditionState, found: ConditionEvaluation, inputs: TriggerInputs
) -> ConditionStatus:
    rows = since = None
    ready = found.occurrence is not None
    if isinstance(condition, ArrivalTrigger) and not ready:
        new = inputs.arrived.get((condition.channel, before.seen))
        if new is not None:
            rows, since = None if condition.rows is None else new.rows, new.first
    return ConditionStatus(
        trigger=condition,
        ready=ready,
        waits=_progress_text(condition, before, found, rows, since),
        rows=rows,
        since=since,
        next_check=found.next_check,
    )


def _progress_text(
    condition: Condition, before: ConditionState, found: ConditionEvaluation, rows: int | None, since: datetime | None
) -> str:
    met, check = found.occurrence, _time_text(found.next_check)
    match condition:
        case ArrivalTrigger(channel=channel) if met is not None:
            return f"point {found.state.seen} of {channel} was reached"
        case ArrivalTrigger(channel=channel) if since is None:
            return f"nothing new on {channel}" + (f" since point {before.seen}" if before.seen else "")
        case ArrivalTrigger(channel=channel, rows=int(wanted)):
            ripe = f", the oldest at {_time_text(since)}, old enough at {check}" if check else ""
            return f"{channel}: {rows:,} of {wanted:,} rows have arrived{ripe}"
        case ArrivalTrigger(channel=channel):
            return f"the oldest new row of {channel} arrived at {_time_text(since)} and is old enough at {check}"
        case TimeTrigger() if met is not None:
            return f"{_time_text(met.time)} has passed"
        case TimeTrigger():
            missed = "" if found.state.time == before.time else f"{_time_text(before.time)} was missed; "
            return f"{missed}the next time is {check}"
        case RunTrigger(binding=binding, reached=reached):
            verb = _VERBS[reached]
            return f"no run of {binding} has {verb} since" if met is None else f"{binding} has {verb}"
        case _:
            assert_never(condition)


_VERBS = {RunOutcome.LAUNCHED: "been launched", RunOutcome.SUCCEEDED: "succeeded", RunOutcome.FAILED: "failed"}


def _time_text(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"
