"""GREEDY and RANDOM: the schedulers that ours is compared with (asynchronous scheduling, 7.2).

Both consider the blocks that one invocation can write from stored ones, after pruning of old blocks and compulsory
chaining, that keep the propagated limits and would be kept. GREEDY takes the cheapest; RANDOM one that costs nothing,
or else any. Chains of deltas are a way to read, and no blocks to write.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kilonova.model.bound import BoundState
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.block_search import BlockSearch, SearchRules
from kilonova.schedule.asynchrony.channel_limits import LimitCheck
from kilonova.schedule.asynchrony.data_block import BASE, DataBlock, key_of
from kilonova.schedule.asynchrony.execution_plan import ChainStep, ExecutionPlan
from kilonova.schedule.asynchrony.provenance import newest, precedes
from kilonova.schedule.asynchrony.pruning import Pruning
from kilonova.schedule.asynchrony.scheduling_state import SchedulingState
from kilonova.schedule.asynchrony.search_entry import Entry, invocations_of

_PASSES = frozenset({Pruning.OLD_BLOCKS, Pruning.DELTA_CHAINS, Pruning.UPSTREAM_LIMITS})

Choose = Callable[[Sequence[Entry], SchedulingState], Entry]


def cheapest(entries: Sequence[Entry], _state: SchedulingState) -> Entry:
    """Return the cheapest block."""
    return min(entries, key=lambda entry: (entry.cost, entry.number))


@dataclass(frozen=True, slots=True)
class RandomChoice:
    """Choice of a block that costs nothing, or else of any, by a seed and the time."""

    seed: int

    def __call__(self, entries: Sequence[Entry], state: SchedulingState) -> Entry:
        """Return a block."""
        free = [entry for entry in entries if not entry.cost]
        return free[0] if free else random.Random(f"{self.seed} {state.now}").choice(entries)


@dataclass(frozen=True)
class SingleStepScheduler:
    """Scheduler whose plans have one invocation each, beside the chains of deltas that it reads.

    Attributes:
        full: the scheduler that it is compared with, for its workflow and bounds.
        choose: how it chooses among the blocks that it could write next.
    """

    full: AsynchronousScheduler
    choose: Choose = cheapest

    def states(self, state: SchedulingState) -> tuple[BoundState, ...]:
        """Return the states of the bounds on outputs."""
        return self.full.states(state)

    def plan(self, state: SchedulingState) -> ExecutionPlan:
        """Return a plan of one invocation; an empty one if no bound is violated or nothing can be written."""
        violated = [each for each in self.states(state) if each.violated]
        if not violated:
            return ExecutionPlan()
        workflow = self.full.workflow
        channels = workflow.upstream(output.channel for output in state.outputs)
        blocks = self.full.candidates(state, channels, _PASSES)
        rules = SearchRules(
            channels=channels,
            declared=LimitCheck(workflow.paths, state.times, state.now, self.full.declared),
            kept=LimitCheck(workflow.paths, state.times, state.now, self.full.propagated),
        )
        heads = {output.channel: output.head for output in state.outputs}
        search = BlockSearch(workflow, self.full.index, state.times, rules, heads, depth=1)
        search.run(blocks)
        candidates = [
            entry
            for entry in search.best.values()
            if entry.block is None
            and not isinstance(search.drafts[entry.maker].step, ChainStep)
            and not _is_superseded(entry, state, blocks)
        ]
        while True:
            if not candidates:
                return ExecutionPlan(violated=tuple(each.bound for each in violated))
            chosen = self.choose(candidates, state)
            if self._is_kept(chosen, state, channels, blocks):
                break
            candidates.remove(chosen)
        return ExecutionPlan(
            invocations=invocations_of(chosen.plan, search.drafts, search.written),
            cost=chosen.cost,
            violated=tuple(each.bound for each in violated),
        )

    def _is_kept(
        self, entry: Entry, state: SchedulingState, channels: frozenset[str], kept: Mapping[str, tuple[DataBlock, ...]]
    ) -> bool:
        """Return whether a block would be kept: old blocks are dropped before the next plan."""
        stored = {**state.blocks, entry.channel: (*state.blocks.get(entry.channel, ()), entry.as_block())}
        after = self.full.candidates(replace(state, blocks=stored), channels, _PASSES)
        return set(map(key_of, after[entry.channel])) != set(map(key_of, kept[entry.channel]))


def _is_superseded(entry: Entry, state: SchedulingState, kept: Mapping[str, tuple[DataBlock, ...]]) -> bool:
    """Return whether a block is stored already, alone or in a chain, or would be dropped as an old one."""
    stored = (*state.blocks.get(entry.channel, ()), *kept[entry.channel])
    return any(
        block.kind == entry.kind
        and block.start == entry.start
        and (block.target == entry.target or (block.start is not None and precedes(entry.newest, newest(block.target))))
        for block in stored
    ) or any(block.kind == BASE and precedes(entry.newest, newest(block.target)) for block in kept[entry.channel])
