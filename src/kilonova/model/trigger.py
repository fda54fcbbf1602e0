"""A trigger is what starts a bound workflowette (Nova, section 2.3).

Three simple ones: data arrives on a channel, a time comes, a run of another binding gets somewhere. A compound one
fires once all of its simple ones have fired. A binding may have several triggers; each of them starts it.

What makes a trigger fire is an *occurrence*, which has a name of its own: the point that arrived, the time that came,
the event of the run. A trigger fires once per occurrence, whoever looks and however often.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from kilonova.errors import DeclarationError
from kilonova.model.schedule import Schedule, duration
from kilonova.model.schedule import described as schedule_described


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Data has arrived on a channel: a new point that is no repetition of the one before.

    Attributes:
        channel: the channel.
        rows: only once so many rows have come since it fired last; None for any.
        seconds: only once what has come is so old; None for at once. With `rows`, whichever is first.

    Raises:
        DeclarationError: a number is not positive.
    """

    channel: str
    rows: int | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        if (self.rows is not None and self.rows <= 0) or (self.seconds is not None and self.seconds <= 0):
            raise DeclarationError("a trigger waits for some rows, or some time", channel=self.channel)


class Missed(enum.Enum):
    """What becomes of times that came while nobody looked: one run for all of them, or none."""

    RUN = "run"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A time has come.

    Attributes:
        schedule: the times; those of an interval are counted from when the trigger was registered, which is the first.
        missed: what becomes of times that came while nobody looked, or while the trigger was paused.
    """

    schedule: Schedule
    missed: Missed = Missed.RUN


class Reached(enum.Enum):
    """Where a run of a binding has got."""

    LAUNCHED = "launched"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """A run of another binding has got somewhere (a cascade)."""

    binding: str
    reached: Reached = Reached.SUCCEEDED


Simple = Arrival | Clock | After


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of several triggers have fired since it fired last.

    Raises:
        DeclarationError: there are fewer than two.
    """

    triggers: tuple[Simple, ...]

    def __post_init__(self) -> None:
        if len(self.triggers) < 2:
            raise DeclarationError("all_of takes two triggers or more", hint="Give the one trigger by itself")


Trigger = Simple | AllOf


def simple(trigger: Trigger) -> tuple[Simple, ...]:
    """The simple triggers that a trigger is made of."""
    return trigger.triggers if isinstance(trigger, AllOf) else (trigger,)


def described(trigger: Trigger) -> str:
    """The trigger in words.

    >>> described(AllOf((Arrival(channel="articles", rows=1000, seconds=600), After(binding="templates"))))
    'articles has 1,000 new rows or some are 10 minutes old, and templates has succeeded'
    """
    match trigger:
        case Arrival(channel=channel, rows=None, seconds=None):
            return f"{channel} has new data"
        case Arrival(channel=channel, rows=None, seconds=int(seconds)):
            return f"{channel} has new data that is {duration(seconds)} old"
        case Arrival(channel=channel, rows=int(rows), seconds=None):
            return f"{channel} has {rows:,} new rows"
        case Arrival(channel=channel, rows=int(rows), seconds=int(seconds)):
            return f"{channel} has {rows:,} new rows or some are {duration(seconds)} old"
        case Clock(schedule=schedule):
            return schedule_described(schedule)
        case After(binding=binding, reached=Reached.LAUNCHED):
            return f"{binding} is launched"
        case After(binding=binding, reached=reached):
            return f"{binding} has {reached.value}"
        case AllOf(triggers):
            return ", and ".join(map(described, triggers))
        case Arrival():
            raise AssertionError
        case _:
            assert_never(trigger)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What makes a trigger fire, once.

    Attributes:
        name: tells it from all others of the trigger.
        time: when it happened.
    """

    name: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Armed:
    """What a simple trigger remembers.

    Attributes:
        seen: the point or the event up to which it has fired.
        time: the next time for a clock; None for others.
        fired: within a compound trigger: the occurrence that it has to offer; None if it waits for one.
    """

    seen: int = 0
    time: datetime | None = None
    fired: Occurrence | None = None


State = tuple[Armed, ...]
"""What a trigger remembers, per simple trigger that it is made of."""


def spinning(triggers: Mapping[str, Iterable[Trigger]], writes: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """A cycle of bindings that would start each other without end, if there is one.

    A binding is started without end if some trigger of it has nothing to wait for but runs of such bindings: the
    greatest set with that property.

    Args:
        triggers: those of each binding.
        writes: the channels that each binding writes.

    Returns:
        The bindings, each started by the next, the last by the first; empty if there is no cycle.

    >>> ends = {"a": [After(binding="b")], "b": [AllOf((After(binding="a"), Arrival(channel="c")))]}
    >>> spinning(ends, {"a": ["c"], "b": []}), spinning(ends, {"a": [], "b": []})
    (('a', 'b'), ())
    """
    writers: dict[str, list[str]] = {}
    for binding, channels in writes.items():
        for channel in channels:
            writers.setdefault(channel, []).append(binding)

    def starts(item: Simple) -> Sequence[str | None]:
        match item:
            case After(binding=binding):
                return (binding,)
            case Arrival(channel=channel):
                return writers.get(channel, (None,))
            case Clock():
                return (None,)
            case _:
                assert_never(item)

    left = {
        name: [each for trigger in own for each in itertools.product(*map(starts, simple(trigger)))]
        for name, own in triggers.items()
    }
    while True:
        gone = [name for name, own in left.items() if not any(all(by in left for by in each) for each in own)]
        if not gone:
            break
        for name in gone:
            del left[name]
    if not left:
        return ()
    path = [min(left)]
    while True:
        by = next(each[0] for each in left[path[-1]] if all(by in left for by in each))
        assert by is not None
        if by in path:
            return tuple(path[path.index(by) :])
        path.append(by)
