"""Histories of what triggers wait for, and triggers, made up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from kilonova.model.schedule import Every
from kilonova.model.trigger import (
    AllOf,
    ArrivalTrigger,
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
