from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.errors import DeclarationError
from kilonova.model.block import Block, Delta, External
from kilonova.model.compaction_policy import CostBased, Manual, MaxDeltas
from kilonova.model.encoding import Append, Changes, Increment, Upsert
from kilonova.schedule.compaction import DeltaStack, channels_to_merge, mergeable_runs, select_for_compaction, small
from tests.schedule.test_garbage import a_block
from tests.seeds import SEED

BASE, DELTA = 1_000_000, 10_000


def a_stack(count: int, readings: tuple[int, ...], *, appended: bool = False) -> DeltaStack:
    return DeltaStack(channel="c", appended=appended, base=BASE, count=count, deltas=count * DELTA, readings=readings)


def merging(count: int) -> float:
    """What a reading pays that merges so many deltas."""
    stack = a_stack(count, ())
    return (stack.read_ratio - 1) * 2 * (stack.base + stack.deltas)


def by_policy(history: str) -> float:
    """What is spent on merging and compacting over a history of arrivals and readings."""
    spent, count, readings = 0.0, 0, ()
    for event in history:
        if event == "a":
            count += 1
        else:
            spent += merging(count)
            readings = (*readings, count) if count else readings
        stack = a_stack(count, readings)
        if select_for_compaction([stack]):
            spent += stack.compaction_cost
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
            price = a_stack(now, ()).compaction_cost
            for left, cost in ((now, paid), (0, paid + price)):
                after[left] = min(cost, after.get(left, math.inf))
        best = after
    return min(best.values())


@given(st.text("ar", max_size=120))
def test_no_more_than_a_few_times_is_spent_of_what_foresight_would_have(history: str) -> None:
    slack = a_stack(120, (120,)).read_cost + a_stack(120, ()).compaction_cost
    assert by_policy(history) <= 3 * by_foresight(history) + slack


@dataclass
class Maintained:
    """A channel of upserts that is maintained after every delta, as its policy says.

    Attributes:
        base: the bytes of its base, which upserts replace.
        raw: the sizes of the deltas as they were published, since the newest base or merged delta.
        merged: the size of the merged delta.
        published: what was published: each delta counts as much as a run costs.
        rewritten: the bytes of compacted and merged blocks.
    """

    base: int
    raw: list[int] = field(default_factory=list)
    merged: int = 0
    published: int = 0
    rewritten: int = 0

    @property
    def stack(self) -> DeltaStack:
        size, count = self.merged + sum(self.raw), len(self.raw) + (self.merged > 0)
        return replace(a_stack(count, ()), base=self.base, deltas=size, merged=self.merged, upserts=True)

    def publish(self, size: int) -> None:
        self.raw.append(size)
        self.published += size + (16 << 20 if self.base > 16 << 20 else 128 << 10)
        while True:
            stack = self.stack
            if select_for_compaction([stack]):
                self.rewritten += self.base + stack.deltas
                self.raw, self.merged = [], 0
            elif channels_to_merge([stack]):
                self.rewritten += stack.deltas
                self.raw, self.merged = [], stack.deltas
            else:
                return


def assert_bounded(channel: Maintained) -> None:
    assert channel.stack.read_ratio <= 1.3
    assert channel.rewritten <= 16 * channel.published


SIZES = st.sampled_from([16 << 20, 72 << 20, 1 << 30, 1 << 40])


@given(SIZES, st.lists(st.floats(1e-4, 0.1), max_size=300))
def test_reads_are_bounded_and_so_is_what_is_rewritten(base: int, shares: list[float]) -> None:
    channel = Maintained(base)
    for share in shares:
        channel.publish(int(share * base))
        assert_bounded(channel)


@pytest.mark.parametrize("share", [1e-4, 1e-3, 1e-2, 0.1, None])
def test_reads_are_bounded_however_long_the_history_is(share: float | None) -> None:
    chance = Random(SEED)
    channel = Maintained(72 << 20)
    for _ in range(20_000):
        channel.publish(int((share or 10 ** chance.uniform(-4, -1)) * channel.base))
        assert_bounded(channel)


@given(st.integers(1, 60), st.lists(st.integers(1, 60), max_size=40))
def test_reading_more_makes_compacting_more_worthwhile(count: int, readings: list[int]) -> None:
    some, more = a_stack(count, tuple(readings)), a_stack(count, (*readings, count))
    assert some.score <= more.score


def test_channels_that_are_not_read_are_compacted_only_for_space_unless_they_are_upserts() -> None:
    large = 100 << 20
    idle = DeltaStack(channel="idle", appended=False, base=large, count=1, deltas=large // 2, readings=())
    wasteful = replace(idle, channel="wasteful", deltas=2 * large)
    appended = replace(wasteful, channel="appended", appended=True)
    assert select_for_compaction([idle, appended, wasteful]) == ("wasteful",)
    assert select_for_compaction([replace(wasteful, policy=CostBased(max_amplification=3))]) == ()
    upserts = replace(idle, upserts=True)
    assert select_for_compaction([upserts]) == ("idle",)
    assert select_for_compaction([replace(upserts, policy=Manual())]) == ()


def test_a_channel_may_have_another_policy() -> None:
    often = a_stack(8, (8,) * 60)
    assert select_for_compaction([often]) == ("c",)
    assert select_for_compaction([replace(often, policy=Manual())]) == ()
    assert select_for_compaction([a_stack(8, ())]) == ()
    assert select_for_compaction([replace(a_stack(8, ()), policy=MaxDeltas(deltas=8))]) == ("c",)
    assert select_for_compaction([replace(a_stack(8, ()), policy=MaxDeltas(deltas=9))]) == ()
    for wrong in (
        lambda: MaxDeltas(deltas=0),
        lambda: CostBased(max_amplification=0),
        lambda: CostBased(max_amplification=math.nan),
    ):
        with pytest.raises(DeclarationError):
            wrong()


def test_putting_appended_rows_together_is_cheaper_than_merging() -> None:
    readings = (8,) * 9
    assert a_stack(8, readings).score >= 1
    assert a_stack(8, readings, appended=True).score < 1
    assert a_stack(8, (8,) * 30, appended=True).score >= 1


def deltas_of(sizes: list[int], begin: int = 0) -> list[Block]:
    return [
        replace(
            a_block(number, Delta(number - 1, number)),
            encoding=Append(),
            statistics=replace(a_block(number, Delta(0, 1)).statistics, bytes=size),
        )
        for number, size in enumerate(sizes, begin + 1)
    ]


@given(
    st.lists(st.sampled_from((1, 1000, 60_000, 900_000, 20 << 20)) | st.integers(1, 300 << 20), max_size=80),
    st.sets(st.integers(0, 80), max_size=3),
    st.booleans(),
)
def test_what_is_put_together_are_neighbours_that_are_small(sizes: list[int], cursors: set[int], few: bool) -> None:
    deltas, least = deltas_of(sizes), 2 if few else 16
    chains = mergeable_runs(deltas, cursors, few=few)
    taken = [block for chain in chains for block in chain]
    assert taken == sorted(taken, key=lambda block: block.start)
    for chain in chains:
        assert len(chain) >= least
        assert all(one.end == other.start for one, other in pairwise(chain))
        assert not cursors & {block.start for block in chain[1:]}
        whole = sum(block.statistics.bytes for block in chain)
        assert all(least * block.statistics.bytes <= 256 << 20 for block in chain)
        assert whole <= 256 << 20


@given(st.lists(st.integers(500, 20_000), min_size=300, max_size=2000))
def test_however_many_deltas_come_few_are_left_and_each_row_is_rewritten_a_few_times(arrivals: list[int]) -> None:
    sizes: list[int] = []
    written = 0
    for size in arrivals:
        sizes.append(size)
        for each in reversed(small(sizes)):
            written += sum(sizes[each.start : each.stop])
            sizes[each.start : each.stop] = [sum(sizes[each.start : each.stop])]
    assert sum(sizes) == sum(arrivals)
    assert len(sizes) < 60
    assert written <= 4 * sum(arrivals)


def test_only_deltas_that_add_rows_of_the_same_columns_here_are_put_together() -> None:
    four = deltas_of([10] * 4)
    assert mergeable_runs(four, (), few=True) == (tuple(four),)
    assert mergeable_runs(four, (), few=False) == ()
    other = replace(four[2], schema=four[2].schema.without("note"))
    assert mergeable_runs([*four[:2], other, four[3]], (), few=True) == (tuple(four[:2]),)
    upserts = [replace(block, encoding=Upsert(("id",))) for block in four]
    assert mergeable_runs(upserts, [2], few=False) == (tuple(upserts),)
    assert mergeable_runs([upserts[0], *four[1:]], (), few=False) == ()
    assert mergeable_runs(upserts[:1], (), few=False, buckets=4) == (tuple(upserts[:1]),)
    assert mergeable_runs([replace(upserts[0], buckets=4)], (), few=False, buckets=4) == ()
    for other_encoding in (Changes(("id",)), Increment(("id",), ("n",))):
        assert mergeable_runs([replace(four[0], encoding=other_encoding)], (), few=True, buckets=4) == ()
    in_place = replace(upserts[0], external=External(format="csv", options=(), groups=()))
    assert mergeable_runs([in_place], (), few=True, buckets=4) == ()
    outside = replace(four[0], external=External(format="csv", options=(), groups=()))
    assert mergeable_runs([outside, *four[1:]], (), few=True) == (tuple(four[1:]),)
    assert mergeable_runs(four, [2], few=True) == (tuple(four[:2]), tuple(four[2:]))
    many = deltas_of([10] * 2500)
    assert sum(map(len, mergeable_runs(many, (), few=True))) <= 1000


def test_deltas_are_put_together_where_the_channel_is_not_worth_compacting() -> None:
    idle = replace(a_stack(99, (), appended=True), crowded=True)
    assert channels_to_merge([idle]) == ("c",)
    assert channels_to_merge([replace(idle, policy=Manual()), replace(idle, policy=MaxDeltas(deltas=1000))]) == ()
    assert channels_to_merge([replace(idle, readings=(99,) * 10)]) == ()
