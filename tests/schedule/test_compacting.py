from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.errors import DeclarationError
from kilonova.model.policy import AfterDeltas, Never, Weigh
from kilonova.schedule.compacting import Stretch, worthwhile

BASE, DELTA = 1_000_000, 10_000


def a_stretch(count: int, readings: tuple[int, ...], *, appended: bool = False) -> Stretch:
    return Stretch(channel="c", appended=appended, base=BASE, count=count, deltas=count * DELTA, readings=readings)


def merging(count: int) -> float:
    """What a reading pays that merges so many deltas, by the definition of `paid`."""
    return a_stretch(count, (count,)).paid


def by_policy(history: str) -> float:
    """What is spent on merging and compacting over a history of arrivals and readings."""
    spent, count, readings = 0.0, 0, ()
    for event in history:
        if event == "a":
            count += 1
        else:
            spent += merging(count)
            readings = (*readings, count) if count else readings
        stretch = a_stretch(count, readings)
        if worthwhile([stretch]):
            spent += stretch.price
            count, readings = 0, ()
    return spent


def by_foresight(history: str) -> float:
    """The least that could have been spent: the best of compacting or not after every event."""
    best = {0: 0.0}
    for event in history:
        after: dict[int, float] = {}
        for count, spent in best.items():
            now = count + (event == "a")
            paid = spent + (merging(now) if event == "r" else 0.0)
            price = a_stretch(now, ()).price
            for left, cost in ((now, paid), (0, paid + price)):
                after[left] = min(cost, after.get(left, math.inf))
        best = after
    return min(best.values())


@given(st.text("ar", max_size=120))
def test_no_more_than_a_few_times_is_spent_of_what_foresight_would_have(history: str) -> None:
    slack = a_stretch(120, (120,)).paid + a_stretch(120, ()).price
    assert by_policy(history) <= 3 * by_foresight(history) + slack


@given(st.integers(1, 60), st.lists(st.integers(1, 60), max_size=40))
def test_reading_more_makes_compacting_more_worthwhile(count: int, readings: list[int]) -> None:
    some, more = a_stretch(count, tuple(readings)), a_stretch(count, (*readings, count))
    assert some.worth <= more.worth


def test_what_nobody_reads_is_left_alone_until_it_wastes_space() -> None:
    large = 100 << 20
    idle = Stretch(channel="idle", appended=False, base=large, count=1, deltas=large // 2, readings=())
    wasteful = replace(idle, channel="wasteful", deltas=2 * large)
    appended = replace(wasteful, channel="appended", appended=True)
    assert worthwhile([idle, appended, wasteful]) == ("wasteful",)
    assert worthwhile([replace(wasteful, policy=Weigh(waste=3))]) == ()


def test_a_channel_may_have_another_policy() -> None:
    often = a_stretch(8, (8,) * 60)
    assert worthwhile([often]) == ("c",)
    assert worthwhile([replace(often, policy=Never())]) == ()
    assert worthwhile([a_stretch(8, ())]) == ()
    assert worthwhile([replace(a_stretch(8, ()), policy=AfterDeltas(deltas=8))]) == ("c",)
    assert worthwhile([replace(a_stretch(8, ()), policy=AfterDeltas(deltas=9))]) == ()
    for wrong in (lambda: AfterDeltas(deltas=0), lambda: Weigh(waste=0), lambda: Weigh(waste=math.nan)):
        with pytest.raises(DeclarationError):
            wrong()


def test_putting_appended_rows_together_is_cheaper_than_merging() -> None:
    readings = (8,) * 6
    assert a_stretch(8, readings).worth >= 1
    assert a_stretch(8, readings, appended=True).worth < 1
    assert a_stretch(8, (8,) * 30, appended=True).worth >= 1
