"""Each pruning pass by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from examples.asynchrony import search_preprocessing
from kilonova.model.bound import InconsistencyBound, StalenessBound
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.channel_limits import ChannelLimits, LimitCheck, declared_limits
from kilonova.schedule.asynchrony.conversions import built_in_conversions, weak_conversions
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockType, DataBlock
from kilonova.schedule.asynchrony.delta_chains import with_compulsory_chains
from kilonova.schedule.asynchrony.frontiers import frontiers_of, least_frontier
from kilonova.schedule.asynchrony.linear_model import LinearModel
from kilonova.schedule.asynchrony.old_blocks import without_inapplicable_deltas, without_old_blocks
from kilonova.schedule.asynchrony.overkill import overkill_rule
from kilonova.schedule.asynchrony.processing_methods import only_consistent_blocks
from kilonova.schedule.asynchrony.provenance import ORIGIN, ArrivalTimes, Provenance
from kilonova.schedule.asynchrony.pruning import ALL_PASSES, Pruning
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState
from kilonova.schedule.asynchrony.search_index import index_of
from kilonova.schedule.asynchrony.simulation import simulate
from kilonova.schedule.asynchrony.upstream_limits import propagated_limits
from kilonova.schedule.asynchrony.widgets import (
    UnitCosts,
    bag_union,
    channel_model,
    join,
    stateless,
    workflow_of,
)
from kilonova.schedule.asynchrony.workflow_model import ChannelModel, WorkflowModel

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
COSTS = UnitCosts(fixed=1.0, read=1.0, probe=0.1, write=1.0)

SCORED = workflow_of(
    [channel_model("crawl", COSTS), channel_model("clicks", COSTS)],
    [
        stateless("digest", "crawl", channel_model("digests", COSTS), COSTS),
        stateless("score", "clicks", channel_model("scores", COSTS), COSTS),
        join("label", "digests", "scores", channel_model("labelled", COSTS), COSTS, per_left=1.0, per_right=1.0),
    ],
)
CRAWL, CLICKS = SCORED.paths["labelled"]

SPLIT = workflow_of(
    [channel_model("log", COSTS)],
    [
        stateless("news", "log", channel_model("news_log", COSTS), COSTS),
        stateless("other", "log", channel_model("other_log", COSTS), COSTS),
        bag_union("merge", "news_log", "other_log", channel_model("merged", COSTS), COSTS),
    ],
)


def at(*points: int) -> Provenance:
    return tuple(((point, point),) for point in points)


def base(channel: str, *points: int) -> DataBlock:
    return DataBlock(channel, BASE, None, at(*points), 10.0)


def delta(channel: str, start: int, target: int, kind: BlockType = STRONG) -> DataBlock:
    return DataBlock(channel, kind, at(start), at(target), 1.0, (start, target))


def hourly(count: int) -> ArrivalTimes:
    return ArrivalTimes(tuple(range(1, count + 1)), tuple(START + number * HOUR for number in range(count)))


class TestFrontiers:
    def test_the_frontier_of_a_channel_is_the_part_of_the_head_that_comes_through_it(self) -> None:
        found = frontiers_of(SCORED, [OutputState("labelled", frozenset({BASE}), at(5, 3))])
        assert found == {name: frozenset({(number,)}) for name, number in FRONTIER.items()} | {
            "labelled": frozenset({(5, 3)})
        }

    def test_several_ways_make_a_frontier_set(self) -> None:
        found = frontiers_of(SPLIT, [OutputState("merged", frozenset({BASE}), at(5, 3))])
        assert found["log"] == {(5,), (3,)}
        assert least_frontier(found["log"]) == (3,)


FRONTIER = {"crawl": 5, "digests": 5, "clicks": 3, "scores": 3}


class TestInapplicableDeltas:
    FRONTIER = frozenset({(9,)})

    def test_deltas_that_no_base_and_no_delta_leads_to_are_dropped(self) -> None:
        blocks = (base("c", 1), delta("c", 1, 6), delta("c", 5, 8), delta("c", 7, 10), delta("c", 9, 12))
        kept = (base("c", 1), delta("c", 1, 6), delta("c", 9, 12))
        assert without_inapplicable_deltas(blocks, self.FRONTIER, frozenset({(1,)})) == kept

    def test_a_chain_from_a_base_is_kept_in_any_order(self) -> None:
        blocks = (delta("c", 6, 8), base("c", 1), delta("c", 3, 6), delta("c", 1, 3))
        assert without_inapplicable_deltas(blocks, self.FRONTIER, frozenset({(1,)})) == blocks

    def test_what_a_base_downstream_lacks_is_kept(self) -> None:
        blocks = (base("c", 1), delta("c", 5, 8), delta("c", 7, 10))
        assert without_inapplicable_deltas(blocks, self.FRONTIER, frozenset({(1,), (7,)})) == (
            base("c", 1),
            delta("c", 7, 10),
        )

    def test_an_entry_that_a_delta_leaves_as_it_is_does_not_matter(self) -> None:
        one_sided = DataBlock("c", STRONG, at(5, 2), at(7, 2), 1.0)
        found = without_inapplicable_deltas((one_sided,), frozenset({(9, 9)}), frozenset({(5, 1)}))
        assert found == (one_sided,)
        assert without_inapplicable_deltas((one_sided,), frozenset({(9, 9)}), frozenset({(4, 2)})) == ()

    def test_scheduling_does_not_slow_down_with_the_history(self) -> None:
        scenario = only_consistent_blocks(search_preprocessing.scenario())
        scheduler = AsynchronousScheduler(scenario.workflow, scenario.bounds)
        found = simulate(scenario, scheduler, start=START, duration=timedelta(days=3), seed=1)
        assert max(len(blocks) for blocks in found.final.blocks.values()) < 10


class TestOldBlocks:
    def test_blocks_before_the_maximal_base_before_the_frontier_are_dropped(self) -> None:
        blocks = (base("c", 1), base("c", 3), base("c", 5), delta("c", 1, 2), delta("c", 2, 3), delta("c", 4, 6))
        assert without_old_blocks(blocks, frozenset({(4,), (7,)})) == (
            base("c", 3),
            base("c", 5),
            delta("c", 2, 3),
            delta("c", 4, 6),
        )

    def test_a_base_at_the_frontier_is_enough(self) -> None:
        blocks = (base("c", 3), base("c", 5), delta("c", 3, 5), delta("c", 5, 6))
        assert without_old_blocks(blocks, frozenset({(5,)})) == (base("c", 5), delta("c", 3, 5), delta("c", 5, 6))

    def test_without_a_base_nothing_is_dropped(self) -> None:
        blocks = (delta("c", 1, 2), base("c", 9))
        assert without_old_blocks(blocks, frozenset({(5,)})) == blocks


class TestDeltaChains:
    def test_abutting_deltas_become_one(self) -> None:
        blocks = tuple(delta("c", number, number + 1) for number in range(5))
        (chain,) = with_compulsory_chains(blocks, frozenset())
        assert chain == DataBlock("c", STRONG, at(0), at(5), 5.0, (0, 5))

    def test_a_base_and_the_frontier_break_a_chain(self) -> None:
        blocks = (*(delta("c", number, number + 1) for number in range(6)), base("c", 2))
        found = with_compulsory_chains(blocks, frozenset({(4,)}))
        assert {(block.start, block.target) for block in found} == {
            (None, at(2)),
            (at(0), at(2)),
            (at(2), at(4)),
            (at(4), at(6)),
        }

    def test_types_are_not_mixed(self) -> None:
        blocks = (delta("c", 0, 1, MONOTONE), delta("c", 1, 2))
        assert with_compulsory_chains(blocks, frozenset()) == blocks

    def test_another_way_through_a_monotone_delta_breaks_a_chain(self) -> None:
        blocks = (delta("c", 1, 3), delta("c", 3, 4), delta("c", 2, 3, MONOTONE))
        assert with_compulsory_chains(blocks, frozenset()) == blocks

    def test_where_two_deltas_begin_the_chain_ends(self) -> None:
        blocks = (delta("c", 0, 1), delta("c", 1, 2), delta("c", 1, 3))
        assert with_compulsory_chains(blocks, frozenset()) == blocks


class TestUpstreamLimits:
    def test_limits_are_projected_copied_and_combined(self) -> None:
        bounds = (
            StalenessBound(channel="labelled", path=CRAWL, limit=0 * HOUR),
            StalenessBound(channel="digests", path=CRAWL[:-1], limit=5 * HOUR),
            StalenessBound(channel="scores", path=CLICKS[:-1], limit=24 * HOUR),
            InconsistencyBound(channel="labelled", limit=168 * HOUR),
        )
        found = propagated_limits(SCORED, declared_limits(SCORED, bounds))
        week = 168 * HOUR
        assert found == {
            "labelled": ChannelLimits((0 * HOUR, None), week),
            "digests": ChannelLimits((0 * HOUR,), week),
            "crawl": ChannelLimits((0 * HOUR,), week),
            "scores": ChannelLimits((24 * HOUR,), week),
            "clicks": ChannelLimits((24 * HOUR,), week),
        }

    def test_a_channel_without_a_limit_may_be_as_stale_as_it_may_be_inconsistent(self) -> None:
        bounds = (InconsistencyBound(channel="labelled", limit=168 * HOUR),)
        found = propagated_limits(SCORED, declared_limits(SCORED, bounds))
        assert found["clicks"] == ChannelLimits((168 * HOUR,), 168 * HOUR)


class TestOverkill:
    BOUNDS = (StalenessBound(channel="scores", path=CLICKS[:-1], limit=24 * HOUR),)

    def rule(self, *stored: DataBlock, hours: int = 4, alike: bool = False) -> set[tuple[BlockType, int]]:
        times = {"clicks": hourly(4)}
        check = LimitCheck(SCORED.paths, times, START + hours * HOUR, declared_limits(SCORED, self.BOUNDS))
        alike_on = frozenset({"scores"} if alike else ())
        is_overkill = overkill_rule({"scores": stored}, ["scores"], check, alike_on)
        return {
            (kind, point) for kind in (BASE, STRONG) for point in (2, 3, 4) if is_overkill("scores", kind, (point,))
        }

    def test_newer_blocks_than_a_sufficient_one_of_the_same_type_are(self) -> None:
        assert self.rule(delta("scores", 1, 2)) == {(STRONG, 3), (STRONG, 4)}

    def test_a_sufficient_base_serves_in_place_of_deltas(self) -> None:
        assert self.rule(base("scores", 3)) == {(BASE, 4), (STRONG, 4)}

    def test_a_monotone_delta_serves_in_place_of_strong_ones_where_it_can_be_read_like_them(self) -> None:
        stored = delta("scores", 1, 2, MONOTONE)
        assert self.rule(stored) == set()
        assert self.rule(stored, alike=True) == {(STRONG, 3), (STRONG, 4)}
        assert self.rule(delta("scores", 1, 2), alike=True) == {(STRONG, 3), (STRONG, 4)}

    def test_a_block_that_is_too_old_is_no_reason(self) -> None:
        assert self.rule(base("scores", 1), hours=26) == set()


def scored_state(crawl: int, clicks: int, scored: int) -> SchedulingState:
    """Return a state in which the newest crawl is new, and scores up to some point have been joined."""
    old = crawl - 1
    empty = {name: DataBlock(name, BASE, None, (ORIGIN,) * len(paths), 0.0) for name, paths in SCORED.paths.items()}
    blocks = {
        "crawl": (empty["crawl"], delta("crawl", old, crawl)),
        "digests": (empty["digests"], base("digests", old)),
        "clicks": (empty["clicks"], *(delta("clicks", number, number + 1) for number in range(clicks))),
        "scores": (empty["scores"], base("scores", scored)),
        "labelled": (empty["labelled"], base("labelled", old, scored)),
    }
    return SchedulingState(
        now=START + 100 * HOUR,
        times={"crawl": hourly(crawl), "clicks": hourly(clicks)},
        blocks=blocks,
        outputs=(OutputState("labelled", frozenset({BASE, STRONG}), at(old, scored)),),
    )


FRESH = StalenessBound(channel="labelled", path=CRAWL, limit=timedelta())


class TestLongTerm:
    def test_what_is_processed_at_all_is_brought_fully_up_to_date(self) -> None:
        """Section 6.3: an update to just within the bound would have to be repeated each time."""
        bounds = (FRESH, StalenessBound(channel="scores", path=CLICKS[:-1], limit=98 * HOUR))
        state = scored_state(5, 5, 1)
        # the clicks of the first hour that were not scored were followed by others 98.99 hours ago
        clicks = (*state.blocks["clicks"], base("clicks", 2), base("clicks", 3), base("clicks", 5))
        state = replace(state, blocks={**state.blocks, "clicks": clicks})
        heads = {}
        for passes in (ALL_PASSES, ALL_PASSES - {Pruning.LONG_TERM}):
            plan = AsynchronousScheduler(SCORED, bounds, passes).plan(state)
            heads[passes] = [each.writes.target for each in plan.invocations if each.writes.channel == "scores"][-1]
        assert heads == {ALL_PASSES: at(5), ALL_PASSES - {Pruning.LONG_TERM}: at(2)}


class Touched(Mapping[str, tuple[DataBlock, ...]]):
    """Blocks that record which channels are asked for."""

    def __init__(self, blocks: Mapping[str, tuple[DataBlock, ...]]) -> None:
        self.blocks, self.asked = blocks, set[str]()

    def __getitem__(self, channel: str) -> tuple[DataBlock, ...]:
        self.asked.add(channel)
        return self.blocks[channel]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all channels are read")

    def __len__(self) -> int:
        return len(self.blocks)


class TestWork:
    """The work of a decision depends on what is violated, not on the size of the workflow."""

    def test_no_block_is_looked_at_where_no_bound_is_violated(self) -> None:
        state = scored_state(5, 5, 5)
        blocks = Touched(state.blocks)
        bound = StalenessBound(channel="labelled", path=CRAWL, limit=100 * HOUR)
        assert not AsynchronousScheduler(SCORED, (bound,)).plan(replace(state, blocks=blocks)).invocations
        assert not blocks.asked

    def test_only_channels_upstream_of_a_violated_bound_are_searched(self) -> None:
        two = workflow_of(
            [channel_model("a", COSTS), channel_model("b", COSTS)],
            [
                stateless("first", "a", channel_model("c", COSTS), COSTS),
                stateless("second", "b", channel_model("d", COSTS), COSTS),
            ],
        )
        blocks = Touched(
            {
                name: (DataBlock(name, BASE, None, (ORIGIN,), 0.0), *((delta(name, 0, 1),) if name in "ab" else ()))
                for name in "abcd"
            }
        )
        state = SchedulingState(
            now=START + HOUR,
            times={"a": hourly(1), "b": hourly(1)},
            blocks=blocks,
            outputs=tuple(OutputState(name, frozenset({STRONG}), (ORIGIN,)) for name in "cd"),
        )
        bounds = (
            StalenessBound(channel="c", path=("a", "first"), limit=timedelta()),
            StalenessBound(channel="d", path=("b", "second"), limit=2 * HOUR),
        )
        plan = AsynchronousScheduler(two, bounds).plan(state)
        assert [str(each.step) for each in plan.invocations] == ["first (incremental)"]
        assert blocks.asked == {"a", "c"}

    def test_outputs_share_what_both_need(self) -> None:
        shared = workflow_of(
            [channel_model("a", COSTS)],
            [
                stateless("first", "a", channel_model("b", COSTS), COSTS),
                stateless("left", "b", channel_model("c", COSTS), COSTS),
                stateless("right", "b", channel_model("d", COSTS), COSTS),
            ],
        )
        empty = {name: DataBlock(name, BASE, None, (ORIGIN,), 0.0) for name in "abcd"}
        state = SchedulingState(
            now=START + HOUR,
            times={"a": hourly(1)},
            blocks={name: (block, delta("a", 0, 1)) if name == "a" else (block,) for name, block in empty.items()},
            outputs=tuple(OutputState(name, frozenset({STRONG}), (ORIGIN,)) for name in "cd"),
        )
        bounds = tuple(
            StalenessBound(channel=name, path=("a", "first", task), limit=timedelta())
            for name, task in (("c", "left"), ("d", "right"))
        )
        plan = AsynchronousScheduler(shared, bounds).plan(state)
        assert sorted(str(each.step).split()[0] for each in plan.invocations) == ["first", "left", "right"]
        assert plan.cost == sum(each.cost for each in plan.invocations)
        alone = [AsynchronousScheduler(shared, (bound,)).plan(state).cost for bound in bounds]
        assert plan.cost < sum(alone)


class TestMonotoneDeltas:
    def test_suffice_where_each_conversion_of_strong_ones_has_one_of_theirs(self) -> None:
        given = built_in_conversions(merge=LinearModel(1.0, (0.0, 0.0)), diff=LinearModel(1.0, (0.0, 0.0)))
        encoded = weak_conversions(
            "increments", from_strong=LinearModel(1.0, (0.0,)), to_base=LinearModel(1.0, (0.0, 0.0))
        )
        channels = (ChannelModel("plain", given), ChannelModel("encoded", (*given, *encoded)))
        assert index_of(WorkflowModel(channels, ())).monotone_suffices == {"plain"}

    @pytest.mark.parametrize("accepts", [{STRONG}, {STRONG, MONOTONE}], ids=["strong", "both"])
    def test_are_not_taken_for_strong_ones_by_an_output_that_does_not_accept_them(
        self, accepts: set[BlockType]
    ) -> None:
        state = scored_state(5, 4, 4)
        crawled = tuple(replace(each, kind=MONOTONE) if each.kind == STRONG else each for each in state.blocks["crawl"])
        state = replace(state, blocks={**state.blocks, "crawl": crawled})
        outputs = tuple(replace(each, accepts=frozenset(accepts)) for each in state.outputs)
        bound = StalenessBound(channel="labelled", path=CRAWL, limit=timedelta())
        plan = AsynchronousScheduler(SCORED, (bound,)).plan(replace(state, outputs=outputs))
        assert plan.unmet == ()
        assert plan.invocations[-1].writes.kind == (STRONG if accepts == {STRONG} else MONOTONE)
