"""A trigger starts a bound workflowette (Nova, section 2.3).

There are three simple conditions: data arrives on a channel, a scheduled time is reached, a run of another binding
reaches a state. A compound trigger fires once all of its conditions have been met. A binding may have several triggers;
each of them starts it.

A trigger fires for an *occurrence*, which has a name of its own: the point that arrived, the scheduled time, the event
of the run. A trigger fires once per occurrence, no matter which servers evaluate it and how often.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from kilonova.errors import DeclarationError
from kilonova.model.schedule import Schedule, describe_schedule, duration


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalTrigger:
    """Trigger on data arriving on a channel: a new point that does not equal the one before.

    Attributes:
        channel: the channel.
        rows: minimum number of rows that have arrived since it last fired; None for any.
        seconds: minimum age of the new data; None for none. With `rows`, whichever is reached first.

    Raises:
        DeclarationError: a number is not positive.
    """

    channel: str
    rows: int | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        if (self.rows is not None and self.rows <= 0) or (self.seconds is not None and self.seconds <= 0):
            raise DeclarationError(
                "an arrival trigger needs a number of rows or a time",
                channel=self.channel,
                hint="Give numbers above 0, or neither",
            )


class MisfirePolicy(enum.Enum):
    """Misfire policy for scheduled times missed while no server ran: one run for all of them, or none."""

    RUN = "run"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTrigger:
    """Trigger on scheduled times.

    Attributes:
        schedule: the times; those of an interval are counted from the trigger's registration, which is the first.
        missed: the policy for times missed while no server ran, or while the trigger was paused.
    """

    schedule: Schedule
    missed: MisfirePolicy = MisfirePolicy.RUN


class RunOutcome(enum.Enum):
    """State of a run that a run trigger waits for."""

    LAUNCHED = "launched"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrigger:
    """Trigger on a run of another binding that reaches a state (a cascade)."""

    binding: str
    reached: RunOutcome = RunOutcome.SUCCEEDED


Condition = ArrivalTrigger | TimeTrigger | RunTrigger


@dataclass(frozen=True, slots=True)
class AllOf:
    """Compound trigger: all of several triggers have fired since it last fired.

    Raises:
        DeclarationError: there are fewer than two.
    """

    triggers: tuple[Condition, ...]

    def __post_init__(self) -> None:
        if len(self.triggers) < 2:
            raise DeclarationError("all_of needs at least two triggers", hint="Use the trigger itself, without all_of")


Trigger = Condition | AllOf


def conditions_of(trigger: Trigger) -> tuple[Condition, ...]:
    """Return the simple triggers that a trigger consists of."""
    return trigger.triggers if isinstance(trigger, AllOf) else (trigger,)


def describe_trigger(trigger: Trigger) -> str:
    """Return the trigger as text.

    >>> arrival = ArrivalTrigger(channel="articles", rows=1000, seconds=600)
    >>> describe_trigger(AllOf((arrival, RunTrigger(binding="templates"))))
    'articles has 1,000 new rows or some are 10 minutes old, and templates has succeeded'
    """
    match trigger:
        case ArrivalTrigger(channel=channel, rows=None, seconds=None):
            return f"{channel} has new data"
        case ArrivalTrigger(channel=channel, rows=None, seconds=int(seconds)):
            return f"{channel} has new data that is {duration(seconds)} old"
        case ArrivalTrigger(channel=channel, rows=int(rows), seconds=None):
            return f"{channel} has {rows:,} new rows"
        case ArrivalTrigger(channel=channel, rows=int(rows), seconds=int(seconds)):
            return f"{channel} has {rows:,} new rows or some are {duration(seconds)} old"
        case TimeTrigger(schedule=schedule, missed=MisfirePolicy.SKIP):
            return f"{describe_schedule(schedule)} (missed times are skipped)"
        case TimeTrigger(schedule=schedule):
            return describe_schedule(schedule)
        case RunTrigger(binding=binding, reached=RunOutcome.LAUNCHED):
            return f"{binding} is launched"
        case RunTrigger(binding=binding, reached=reached):
            return f"{binding} has {reached.value}"
        case AllOf(triggers):
            return ", and ".join(map(describe_trigger, triggers))
        case ArrivalTrigger():
            raise AssertionError
        case _:
            assert_never(trigger)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Occurrence for which a trigger fires once.

    Attributes:
        name: the name, unique among the trigger's occurrences.
        time: time at which it happened.
    """

    name: str
    time: datetime


@dataclass(frozen=True, slots=True)
class ConditionState:
    """State of a simple trigger.

    Attributes:
        seen: the point or the event up to which it has fired.
        time: the next time of a time trigger; None for others.
        fired: within a compound trigger: the occurrence that met the condition; None if it is still waiting.
    """

    seen: int = 0
    time: datetime | None = None
    fired: Occurrence | None = None


TriggerState = tuple[ConditionState, ...]
"""State of a trigger, per simple trigger that it consists of."""


def find_trigger_cycle(
    triggers: Mapping[str, Iterable[Trigger]], writes: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """Return a cycle of bindings that would start each other endlessly, if there is one.

    A binding is started endlessly if one of its triggers waits only for runs of such bindings: the greatest set with
    that property.

    Args:
        triggers: the triggers of each binding.
        writes: the channels that each binding writes.

    Returns:
        The bindings, each started by the next, the last by the first; empty if there is no cycle.

    >>> ends = {"a": [RunTrigger(binding="b")], "b": [AllOf((RunTrigger(binding="a"), ArrivalTrigger(channel="c")))]}
    >>> find_trigger_cycle(ends, {"a": ["c"], "b": []}), find_trigger_cycle(ends, {"a": [], "b": []})
    (('a', 'b'), ())
    """
    writers: dict[str, list[str]] = {}
    for binding, channels in writes.items():
        for channel in channels:
            writers.setdefault(channel, []).append(binding)

    def starts(item: Condition) -> Sequence[str | None]:
        match item:
            case RunTrigger(binding=binding):
                return (binding,)
            case ArrivalTrigger(channel=channel):
                return writers.get(channel, (None,))
            case TimeTrigger():
                return (None,)
            case _:
                assert_never(item)

    left = {
        name: [each for trigger in own for each in itertools.product(*map(starts, conditions_of(trigger)))]
        for name, own in triggers.items()
    }
    # Of each binding the alternatives all of whose starters are left: without any, it is not part of a cycle.
    cyclic = {
        name: {place for place, each in enumerate(own) if all(by in left for by in each)} for name, own in left.items()
    }
    started: dict[str | None, list[tuple[str, int]]] = {}
    for name, places in cyclic.items():
        for place in places:
            for by in left[name][place]:
                started.setdefault(by, []).append((name, place))
    gone = [name for name, places in cyclic.items() if not places]
    while gone:
        name = gone.pop()
        del left[name]
        for other, place in started.get(name, ()):
            if place in cyclic[other]:
                cyclic[other].discard(place)
                if not cyclic[other]:
                    gone.append(other)
    if not left:
        return ()
    path = [min(left)]
    while True:
        by = next(each[0] for each in left[path[-1]] if all(by in left for by in each))
        assert by is not None
        if by in path:
            return tuple(path[path.index(by) :])
        path.append(by)
