"""Histories of what triggers wait for, and triggers, made up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from kilonova.model.schedule import Every
from kilonova.model.trigger import (
    AllOf,
    ArrivalTrigger,
    Condition,
    MisfirePolicy,
    RunOutcome,
    RunTrigger,
    TimeTrigger,
    Trigger,
    TriggerState,
)
from kilonova.model.trigger import conditions_of as parts
from kilonova.schedule.trigger_evaluation import Arrivals, TriggerInputs

START = datetime(2024, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Arrives:
    """A point comes, so many seconds after the start."""

    second: int
    channel: str
    rows: int


@dataclass(frozen=True)
class Ends:
    """A run of a binding ends."""

    second: int
    binding: str
    reached: RunOutcome


History = list[Arrives | Ends]


def seen_at(history: History, second: int, trigger: Trigger, state: TriggerState) -> TriggerInputs:
    """What of a history has happened at some second that a trigger has not seen."""
    arrived: dict[tuple[str, int], Arrivals] = {}
    reached: dict[tuple[str, RunOutcome, int], tuple[int, datetime]] = {}
    past = [(number, each) for number, each in enumerate(history, 1) if each.second <= second]
    for item, one in zip(parts(trigger), state, strict=True):
        match item:
            case ArrivalTrigger(channel=channel):
                came = [each for _, each in past if isinstance(each, Arrives) and each.channel == channel]
                if new := came[one.seen :]:
                    arrived[channel, one.seen] = Arrivals(
                        first=after(new[0].second),
                        point=len(came),
                        time=after(new[-1].second),
                        rows=sum(each.rows for each in new),
                    )
            case RunTrigger(binding=binding, reached=where):
                for number, each in past:
                    if (
                        number > one.seen
                        and isinstance(each, Ends)
                        and (each.binding, each.reached) == (binding, where)
                    ):
                        reached[binding, where, one.seen] = number, after(each.second)
    return TriggerInputs(arrived=arrived, reached=reached)


def _met_by_definition(item: Condition, history: History, seconds: list[int]) -> list[int]:
    """At which of the looks a simple trigger is met: a slow and separate statement of what it waits for."""
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


def fired_by_definition(trigger: Trigger, history: History, seconds: list[int]) -> list[int]:
    """At which of the looks a trigger fires: when all that it waits for has come since it last fired."""
    offers = [_met_by_definition(item, history, seconds) for item in parts(trigger)]
    fired, pending = [], [False] * len(offers)
    for second in dict.fromkeys(seconds):
        pending = [had or second in own for had, own in zip(pending, offers, strict=True)]
        if all(pending):
            fired.append(second)
            pending = [False] * len(offers)
    return fired


simple = st.one_of(
    st.builds(
        ArrivalTrigger,
        channel=st.sampled_from("ab"),
        rows=st.none() | st.integers(1, 6),
        seconds=st.none() | st.integers(1, 9),
    ),
    st.builds(TimeTrigger, schedule=st.builds(Every, st.integers(1, 20)), missed=st.sampled_from(MisfirePolicy)),
    st.builds(RunTrigger, binding=st.sampled_from("xy"), reached=st.sampled_from(RunOutcome)),
)
triggers: st.SearchStrategy[Trigger] = simple | st.lists(simple, min_size=2, max_size=3).map(
    lambda some: AllOf(tuple(some))
)
histories: st.SearchStrategy[History] = st.lists(
    st.builds(Arrives, st.integers(0, 60), st.sampled_from("ab"), st.integers(0, 4))
    | st.builds(Ends, st.integers(0, 60), st.sampled_from("xy"), st.sampled_from(RunOutcome)),
    max_size=12,
).map(lambda items: sorted(items, key=lambda item: item.second))
