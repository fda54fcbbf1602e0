"""Which triggers fire: see `kilonova.model.trigger`.

`look(trigger, state, seen, now)` is a function of what has happened alone, so that whoever looks comes to the same; the
catalog writes state and occurrences down together, which makes each fire exactly once. Looking more often, or later,
loses nothing: what happened meanwhile is one occurrence, because one run reads all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from kilonova.model.schedule import Every
from kilonova.model.trigger import (
    After,
    AllOf,
    Armed,
    Arrival,
    Clock,
    Missed,
    Occurrence,
    Reached,
    Simple,
    State,
    Trigger,
    simple,
)
from kilonova.schedule.timing import latest, next_after

GRACE = timedelta(minutes=1)
"""How late a time may be noticed and is not missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What has come on a channel after a point: points that can be read and are no repetitions of those before them.

    Attributes:
        first: when the first of them came.
        point: the last of them.
        time: when that came.
        rows: the rows that they brought; 0 where no trigger counts them.
    """

    first: datetime
    point: int
    time: datetime
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """What triggers look at: what has happened since they fired, each counted from where it has seen everything.

    Attributes:
        arrived: by channel and the point that a trigger has seen, what has come since; nothing where none has.
        reached: by binding, where its runs got, and the event that a trigger has seen: the newest event since, and its
            time.
    """

    arrived: Mapping[tuple[str, int], Arrived] = field(default_factory=dict)
    reached: Mapping[tuple[str, Reached, int], tuple[int, datetime]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What came of looking at a trigger.

    Attributes:
        state: what it remembers from now on.
        occurrence: what it fires for; None if it does not.
        wake: when to look again though nothing happens; None if there is no need to.
    """

    state: State
    occurrence: Occurrence | None
    wake: datetime | None


def armed(trigger: Trigger, now: datetime, event: int) -> State:
    """What a trigger remembers that is registered now.

    Args:
        trigger: the trigger.
        now: the present moment.
        event: the number of the last event; what came before starts nothing.
    """
    return tuple(_armed(item, now, event) for item in simple(trigger))


def _armed(item: Simple, now: datetime, event: int) -> Armed:
    match item:
        case Arrival():  # data that is there already has not been processed for this trigger
            return Armed()
        case Clock(schedule=schedule):
            return Armed(time=now if isinstance(schedule, Every) else next_after(schedule, now))
        case After():
            return Armed(seen=event)
        case _:
            assert_never(item)


def look(trigger: Trigger, state: State, happened: Happened, now: datetime) -> Looked:
    """Look at a trigger: whether it fires, and what it remembers."""
    looks = [_look(item, one, happened, now) for item, one in zip(simple(trigger), state, strict=True)]
    found = [each.occurrence or one.fired for each, one in zip(looks, state, strict=True)]
    waits = [each.wake for each in looks if each.wake is not None]
    wake = min(waits) if waits else None
    whole = [occurrence for occurrence in found if occurrence is not None]
    states = tuple(each.state[0] for each in looks)
    if len(whole) < len(found):
        offers = isinstance(trigger, AllOf)
        kept = tuple(
            replace(one, fired=occurrence if offers else None) for one, occurrence in zip(states, found, strict=True)
        )
        return Looked(state=kept, occurrence=None, wake=wake)
    occurrence = Occurrence(" + ".join(each.name for each in whole), max(each.time for each in whole))
    return Looked(state=states, occurrence=occurrence, wake=wake)


def _look(item: Simple, one: Armed, happened: Happened, now: datetime) -> Looked:
    match item:
        case Arrival(channel=channel, rows=rows, seconds=seconds):
            new = happened.arrived.get((channel, one.seen))
            if new is None:
                return _waits(one, None)
            ripe = None if seconds is None else new.first + timedelta(seconds=seconds)
            many = rows is not None and new.rows >= rows
            if (rows is None and ripe is None) or many or (ripe is not None and ripe <= now):
                return _fires(Armed(seen=new.point), Occurrence(f"{channel}@{new.point}", new.time), None)
            return _waits(one, ripe)
        case Clock(schedule=schedule, missed=missed):
            assert one.time is not None
            if one.time > now:
                return _waits(one, one.time)
            time = latest(schedule, one.time, now)
            following = next_after(schedule, time)
            if missed is Missed.SKIP and now - time > GRACE:
                return _waits(Armed(time=following), following)
            return _fires(Armed(time=following), Occurrence(time.isoformat(), time), following)
        case After(binding=binding, reached=reached):
            event = happened.reached.get((binding, reached, one.seen))
            if event is None:
                return _waits(one, None)
            number, time = event
            return _fires(Armed(seen=number), Occurrence(f"event {number}", time), None)
        case _:
            assert_never(item)


def _waits(state: Armed, wake: datetime | None) -> Looked:
    return Looked(state=(replace(state, fired=None),), occurrence=None, wake=wake)


def _fires(state: Armed, occurrence: Occurrence, wake: datetime | None) -> Looked:
    return Looked(state=(state,), occurrence=occurrence, wake=wake)
