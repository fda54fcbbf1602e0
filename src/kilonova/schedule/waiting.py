"""What a trigger waits for, and how far that is: `look`, before it is taken down, in words.

`armament(trigger, state, happened, now).ready` is true just where `look(trigger, state, happened, now)` gives an
occurrence: a trigger that nobody holds back fires when a server looks at it next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from kilonova.model.trigger import (
    After,
    Armed,
    Arrival,
    Clock,
    Occurrence,
    Reached,
    Simple,
    State,
    Trigger,
    described,
    simple,
)
from kilonova.schedule.firing import Happened, Looked, look


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """What a simple trigger waits for.

    Attributes:
        trigger: the trigger.
        ready: whether it has come.
        text: how far that is, in words.
        rows: how many rows have come, where it counts them and has not got all; None elsewhere.
        since: when the oldest came of what is new on its channel, where that is not enough; None elsewhere.
        wake: when it comes though nothing happens; None if it does not by itself.
    """

    trigger: Simple
    ready: bool
    text: str
    rows: int | None
    since: datetime | None
    wake: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Armament:
    """A trigger, and what it waits for now.

    Attributes:
        trigger: the trigger.
        text: what it is, in words.
        waits: how far it is, in words.
        ready: whether it fires when a server looks at it next.
        wake: when that is though nothing happens; None if there is no need to.
        parts: the same of each simple trigger that it is made of.
    """

    trigger: Trigger
    text: str
    waits: str
    ready: bool
    wake: datetime | None
    parts: tuple[Awaited, ...]


def armament(trigger: Trigger, state: State, happened: Happened, now: datetime) -> Armament:
    """What a trigger waits for.

    Args:
        trigger: the trigger.
        state: what it remembers.
        happened: what has happened.
        now: the present moment.

    >>> from datetime import UTC
    >>> from kilonova.schedule.firing import Arrived
    >>> noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    >>> some = Happened(arrived={("clicks", 4): Arrived(first=noon, point=6, time=noon, rows=300)})
    >>> armament(Arrival(channel="clicks", rows=1000), (Armed(seen=4),), some, noon).waits
    'clicks: 300 of 1,000 rows have come'
    """
    looked = look(trigger, state, happened, now)
    parts = tuple(_awaited(item, one, happened, now) for item, one in zip(simple(trigger), state, strict=True))
    return Armament(
        trigger=trigger,
        text=described(trigger),
        waits="; ".join(part.text for part in parts),
        ready=looked.occurrence is not None,
        wake=looked.wake,
        parts=parts,
    )


def _awaited(item: Simple, one: Armed, happened: Happened, now: datetime) -> Awaited:
    looked = look(item, (replace(one, fired=None),), happened, now)
    had = looked.occurrence or one.fired
    rows = since = None
    if isinstance(item, Arrival) and had is None and (new := happened.arrived.get((item.channel, one.seen))):
        rows, since = None if item.rows is None else new.rows, new.first
    return Awaited(
        trigger=item,
        ready=had is not None,
        text=_lacking(item, one, looked, rows, since) if had is None else _had(item, looked, had),
        rows=rows,
        since=since,
        wake=looked.wake,
    )


def _had(item: Simple, looked: Looked, occurrence: Occurrence) -> str:
    match item:
        case Arrival(channel=channel):
            return f"point {looked.state[0].seen} of {channel} has come"
        case Clock():
            return f"{_moment(occurrence.time)} has come"
        case After(binding=binding, reached=reached):
            return f"{binding} has {_VERBS[reached]}"
        case _:
            assert_never(item)


def _lacking(item: Simple, one: Armed, looked: Looked, rows: int | None, since: datetime | None) -> str:
    match item:
        case Arrival(channel=channel) if since is None:
            return f"nothing new on {channel}" + (f" since point {one.seen}" if one.seen else "")
        case Arrival(channel=channel, rows=int(wanted)):
            ripe = (
                "" if looked.wake is None else f", the oldest at {_moment(since)}, old enough at {_moment(looked.wake)}"
            )
            return f"{channel}: {rows:,} of {wanted:,} rows have come{ripe}"
        case Arrival(channel=channel):
            return (
                f"the oldest new row of {channel} came at {_moment(since)} and is old enough at {_moment(looked.wake)}"
            )
        case Clock():
            missed = "" if looked.state[0].time == one.time else f"{_moment(one.time)} was missed; "
            return f"{missed}the next time is {_moment(looked.wake)}"
        case After(binding=binding, reached=reached):
            return f"no run of {binding} has {_VERBS[reached]} since"
        case _:
            assert_never(item)


_VERBS = {Reached.LAUNCHED: "been launched", Reached.SUCCEEDED: "succeeded", Reached.FAILED: "failed"}


def _moment(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"
