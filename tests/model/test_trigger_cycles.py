"""Cycles of triggers: found exactly where some bindings start only each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from hypothesis import given, seed
from hypothesis import strategies as st

from kilonova.model.trigger import (
    AllOf,
    ArrivalTrigger,
    Condition,
    RunTrigger,
    Trigger,
    conditions_of,
    find_trigger_cycle,
)
from tests.seeds import SEED

NAMES, CHANNELS = "abcd", "xyz"
Triggers = Mapping[str, Sequence[Trigger]]
Writes = Mapping[str, Sequence[str]]


@st.composite
def workflows(draw: st.DrawFn) -> tuple[Triggers, Writes]:
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    runs = st.builds(RunTrigger, binding=st.sampled_from(names))
    one = runs | st.builds(ArrivalTrigger, channel=st.sampled_from(CHANNELS))
    some = one | st.tuples(one, one).map(AllOf)
    triggers = {name: draw(st.lists(some, max_size=2)) for name in names}
    return triggers, {name: sorted(draw(st.sets(st.sampled_from(CHANNELS), max_size=2))) for name in names}


def starters(condition: Condition, writes: Writes) -> set[str | None]:
    """The bindings that can make a condition true; None for ingests."""
    if isinstance(condition, RunTrigger):
        return {condition.binding}
    assert isinstance(condition, ArrivalTrigger)
    return {name for name, channels in writes.items() if condition.channel in channels} or {None}


def start_each_other(names: set[str], triggers: Triggers, writes: Writes) -> bool:
    """Whether each of some bindings has a trigger all of whose conditions can be made true by them."""
    return all(
        any(all(starters(each, writes) & names for each in conditions_of(trigger)) for trigger in triggers[name])
        for name in names
    )


@seed(SEED)
@given(workflows())
def test_a_cycle_is_found_exactly_where_bindings_start_each_other(made: tuple[Triggers, Writes]) -> None:
    triggers, writes = made
    groups = (set(some) for size in range(1, len(triggers) + 1) for some in combinations(triggers, size))
    exists = any(start_each_other(group, triggers, writes) for group in groups)
    cycle = find_trigger_cycle(triggers, writes)
    assert bool(cycle) == exists
    for name, by in zip(cycle, (*cycle[1:], *cycle[:1]), strict=True):
        assert any(by in starters(each, writes) for trigger in triggers[name] for each in conditions_of(trigger))
