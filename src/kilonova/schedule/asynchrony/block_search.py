"""Search for the cheapest plan for every block: Algorithm 1 of asynchronous scheduling, 6.1.

A dynamic program like Dijkstra's: blocks are its vertices, invocations its edges. The cheapest block of the queue is
*optimized*: no invocation of what is still in the queue could write it for less. Then all invocations are enumerated
that read it together with other optimized blocks; each combination of blocks occurs once, when the last of them is
optimized. Stored blocks cost nothing and are optimized first. Chains of deltas cost nothing either.

The cost of a plan is the sum over its distinct invocations, so that a block that two inputs need is paid for once. Of
each block only the cheapest plan is kept: where two inputs could share more by dearer plans of their own, that is not
found.

What the search may leave out is the matter of `SearchRules`, which the pruning passes fill in.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kilonova.schedule.asynchrony.channel_limits import LimitCheck
from kilonova.schedule.asynchrony.data_block import (
    BASE,
    MONOTONE,
    STRONG,
    BlockKey,
    BlockType,
    DataBlock,
    applied,
    is_weak,
)
from kilonova.schedule.asynchrony.execution_plan import ChainStep, Step
from kilonova.schedule.asynchrony.frontiers import Frontiers
from kilonova.schedule.asynchrony.linear_model import LinearModel
from kilonova.schedule.asynchrony.optimized_blocks import Filling, OptimizedBlocks, start_of
from kilonova.schedule.asynchrony.provenance import (
    EMPTY,
    ArrivalTimes,
    Newest,
    PointSet,
    Provenance,
    converted,
    is_consistent,
    newest,
    precedes,
    union,
)
from kilonova.schedule.asynchrony.search_entry import Draft, Entry
from kilonova.schedule.asynchrony.search_index import ConversionUse, SearchIndex, VariantUse
from kilonova.schedule.asynchrony.workflow_model import Conversion, TaskModel, WorkflowModel


def _never(_channel: str, _kind: BlockType, _newest: Newest) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """Rules of a search: the blocks that it may read, and those that it leaves out.

    Attributes:
        channels: the channels whose blocks are wanted.
        declared: limits that a block must keep to be read by a task.
        kept: limits that a block must keep to be considered.
        frontiers: the frontier set of each channel. A base there may be needed as an old base, which no limit concerns.
        overkill: whether a block of some type and newest points is more than is needed on its channel.
        long_term: whether to ignore a block if another one of the same type is ahead of it.
        monotone_suffices: the channels of which a monotone delta can be read wherever a strong one can; there, a strong
            one is ignored if a monotone one is ahead of it, or leads to the same points.
    """

    channels: frozenset[str]
    declared: LimitCheck
    kept: LimitCheck
    frontiers: Frontiers = field(default_factory=dict)
    overkill: Callable[[str, BlockType, Newest], bool] = _never
    long_term: bool = False
    monotone_suffices: frozenset[str] = frozenset()


@dataclass(slots=True)
class BlockSearch:
    """A search.

    Attributes:
        workflow: the workflow.
        index: its index.
        times: the points of each source channel.
        rules: what is left out.
        heads: the provenance of each output's relation; a delta that applies to it must keep the limits afterwards.
        depth: the largest number of invocations of a plan, without chains; None for any.
        drafts: the invocations considered, by number.
        written: the entry that each of them writes.
        best: the entry of each block that was not pruned.
        optimized: those whose cheapest plan is known.
        refused: of each output, what it would reflect after the first block found that would break its limits.
        goals: of each output channel for which a block is searched, whether a block is the cheapest one that will do:
            once there is one for each, the search ends. Without goals, it ends when all blocks are optimized.
    """

    workflow: WorkflowModel
    index: SearchIndex
    times: Mapping[str, ArrivalTimes]
    rules: SearchRules
    heads: Mapping[str, Provenance]
    depth: int | None = None
    drafts: list[Draft] = field(default_factory=list)
    written: list[Entry] = field(default_factory=list)
    best: dict[BlockKey, Entry] = field(default_factory=dict)
    optimized: OptimizedBlocks = field(default_factory=OptimizedBlocks)
    refused: dict[str, Provenance] = field(default_factory=dict)
    goals: dict[str, Callable[[Entry], bool]] = field(default_factory=dict)
    _queue: list[tuple[float, int, Entry]] = field(default_factory=list)
    _ahead: dict[tuple[str, BlockType, Provenance | None], list[Entry]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _left_out: set[BlockKey] = field(default_factory=set)
    _count: int = 0

    def run(self, blocks: Mapping[str, tuple[DataBlock, ...]]) -> None:
        """Find the cheapest plan for every block.

        Args:
            blocks: the stored blocks by channel, whose order decides between plans of equal cost.
        """
        for stored in blocks.values():
            for block in stored:
                self._add_stored(block)
        most = math.inf
        while self._queue:
            cost, _, entry = heapq.heappop(self._queue)
            if cost > most:  # blocks of equal cost may be preferred
                break
            if entry.pruned or entry.optimized:
                continue
            entry.optimized = True
            if entry.channel in self.goals and self.goals[entry.channel](entry):
                del self.goals[entry.channel]
                most = math.inf if self.goals else cost
            if self.depth is None or self._steps(entry) < self.depth:
                self.optimized.add(entry)
                self._generate(entry)

    def _steps(self, entry: Entry) -> int:
        """Return the number of invocations of a plan that store a block."""
        return sum(not isinstance(self.drafts[number].step, ChainStep) for number in entry.plan)

    def _add_stored(self, block: DataBlock) -> None:
        """Put a stored block into the queue."""
        usable = self.rules.declared.holds(block.channel, block.target)
        entry = Entry(
            block.channel,
            block.kind,
            block.start,
            block.target,
            newest(block.target),
            block.rows,
            0.0,
            frozenset(),
            self._count,
            block=block,
            usable=usable,
        )
        self._push(entry)

    def _push(self, entry: Entry) -> None:
        self._count += 1
        self.best[entry.key] = entry
        heapq.heappush(self._queue, (entry.cost, entry.number, entry))

    def _generate(self, entry: Entry) -> None:
        """Enumerate the blocks that can be written from a block together with other optimized ones (blockGen)."""
        key = (entry.channel, entry.kind)
        for use in self.index.variants.get(key, ()):
            if use.task.writes not in self.rules.channels:
                continue
            fillings: list[list[Filling]] = []
            for place, port in enumerate(use.ports):
                found = (
                    self.optimized.fillings_with(port, entry) if place == use.port else self.optimized.fillings(port)
                )
                if not found:
                    break
                fillings.append(found)
            else:
                for combination in itertools.product(*fillings):
                    self._invoke(use, combination)
        for conversion in self.index.conversions.get(key, ()):
            self._convert(conversion, entry)
        if entry.kind != BASE:
            self._chain(entry)

    def _invoke(self, use: VariantUse, ports: tuple[Filling, ...]) -> None:
        """Consider an invocation of a variant."""
        task, variant = use.task, use.variant
        after = self._combined(task, [filling[1] for filling in ports])
        ahead = newest(after)
        start: Provenance | None = None
        kind = variant.produces
        if kind != BASE:
            start = self._combined(task, [filling[0] for filling in ports])
            if kind == STRONG and variant.keeps_monotone and _all_monotone(ports):
                kind = MONOTONE
            if not precedes(newest(start), ahead):
                return
        if variant.synchronous:
            paths = self.workflow.paths[task.writes]
            consistent = is_consistent(after, paths, self.times)
            if not consistent or (start is not None and not is_consistent(start, paths, self.times)):
                return
        reads = tuple([filling[2] for filling in ports])
        self._offer(use.step, (task.writes, kind, start, after), ahead, reads, variant.cost, variant.rows)

    def _combined(self, task: TaskModel, ports: list[Provenance]) -> Provenance:
        """Return ⊕ over the ports of a task: entries of a path that several ports have are united."""
        joined = tuple(itertools.chain.from_iterable(ports))
        paths = self.workflow.paths[task.writes]
        if len(joined) == len(paths):
            return joined
        entries: dict[tuple[str, ...], PointSet] = {}
        places = (path for read in task.reads for path in self.workflow.paths[read])
        for path, entry in zip(places, joined, strict=True):
            entries[path] = union(entries.get(path, EMPTY), entry)
        return tuple(entries.values())

    def _convert(self, use: ConversionUse, entry: Entry) -> None:
        """Consider the conversions of a block, as the block converted or as the old base beside it."""
        conversion, channel = use.conversion, entry.channel
        pairs: list[tuple[Entry | None, Entry]]
        if use.as_old_base:
            pairs = [(entry, block) for block in self.optimized.of(channel, conversion.source)]
        elif conversion.reads_base:
            pairs = [(base, entry) for base in self.optimized.of(channel, BASE)]
        else:
            pairs = [(None, entry)]
        for base, block in pairs:
            key = _converted_key(conversion, base, block)
            if key is not None:
                reads = (block,) if base is None else (base, block)
                ahead = block.newest if key[3] == block.target else newest(key[3])
                self._offer(use.step, key, ahead, (reads,), conversion.cost, conversion.rows)

    def _chain(self, entry: Entry) -> None:
        """Consider the chains of a delta with the deltas that abut it."""
        kinds = (entry.kind,) if is_weak(entry.kind) else (STRONG, MONOTONE)
        for kind in kinds:
            chained = kind if kind == entry.kind else STRONG
            for other in self.optimized.of(entry.channel, kind):
                for first, second in ((entry, other), (other, entry)):
                    if first.target == second.start:
                        key: BlockKey = (entry.channel, chained, first.start, second.target)
                        self._offer(ChainStep(entry.channel), key, second.newest, ((first, second),), _FREE, _SUM)

    def _offer(
        self,
        step: Step,
        key: BlockKey,
        ahead: Newest,
        reads: tuple[tuple[Entry, ...], ...],
        cost: LinearModel,
        rows: LinearModel,
    ) -> None:
        """Consider a block, whose newest points are given, unless it is left out or known at no higher cost."""
        if key in self._left_out:
            return
        known = self.best.get(key)
        if known is not None and known.optimized:
            return
        if known is None and self._is_left_out(step, key, ahead):
            self._left_out.add(key)
            return
        read = tuple(itertools.chain.from_iterable(reads))
        sizes = [entry.rows for entry in read]
        written = max(0.0, rows(sizes))
        own = cost(sizes, written)
        plan, total = self._together(read, own)
        if known is not None and total >= known.cost:
            return
        number = len(self.drafts)
        usable = self.rules.declared.holds(key[0], key[3]) if known is None else known.usable
        entry = Entry(*key, ahead, written, total, plan | {number}, self._count, maker=number, usable=usable)
        self.drafts.append(Draft(step, reads, own, written))
        self.written.append(entry)
        if known is not None:
            known.pruned = True
        self._push(entry)
        if self.rules.long_term and not (entry.start is None and self._is_at_frontier(entry.channel, ahead)):
            self._drop_overtaken(entry)

    def _together(self, read: tuple[Entry, ...], own: float) -> tuple[frozenset[int], float]:
        """Return the plan that writes several blocks, and its cost with one more invocation."""
        planned = [entry for entry in read if entry.plan]
        if not planned:
            return frozenset(), own
        if len(planned) == 1:
            return planned[0].plan, planned[0].cost + own
        plan = planned[0].plan.union(*(entry.plan for entry in planned[1:]))
        return plan, sum(self.drafts[number].cost for number in plan) + own

    def _is_left_out(self, step: Step, key: BlockKey, ahead: Newest) -> bool:
        """Return whether a block breaks a limit, or is left out by another rule.

        A chain is no work, so that it is never overkill.
        """
        channel, kind, start, target = key
        if start is None and self._is_at_frontier(channel, ahead):
            return False
        if not isinstance(step, ChainStep) and self.rules.overkill(channel, kind, ahead):
            return True
        if not self._keeps_limits(channel, start, target):
            return True
        if not self.rules.long_term:
            return False
        rivals = self._ahead[channel, kind, start]
        if kind == STRONG and channel in self.rules.monotone_suffices:
            monotone = self._ahead[channel, MONOTONE, start]
            if any(not each.pruned and each.target == target for each in monotone):
                return True
            rivals = [*rivals, *monotone]
        return any(not each.pruned and precedes(ahead, each.newest) for each in rivals)

    def _is_at_frontier(self, channel: str, ahead: Newest) -> bool:
        return ahead in self.rules.frontiers.get(channel, ())

    def _keeps_limits(self, channel: str, start: Provenance | None, target: Provenance) -> bool:
        """Return whether a block keeps the limits of its channel.

        The relation of an output is what its consumers have. So a delta that applies to it is judged by what results,
        and not for the staleness of entries that it leaves as they are.
        """
        head = self.heads.get(channel)
        result = None if head is None else applied(head, start, target)
        if head is None or result is None:
            return self.rules.kept.holds(channel, target)
        if self.rules.kept.breach(channel, result, head) is None:
            return True
        self.refused.setdefault(channel, result)
        return False

    def _drop_overtaken(self, entry: Entry) -> None:
        """Remove the blocks that a block is ahead of (6.3), and the strong delta that a monotone one stands for."""
        kinds = [entry.kind]
        if entry.kind == MONOTONE and entry.channel in self.rules.monotone_suffices:
            kinds.append(STRONG)
        for kind in kinds:
            rivals = self._ahead[entry.channel, kind, entry.start]
            for each in rivals:
                same = kind != entry.kind and each.target == entry.target
                if precedes(each.newest, entry.newest) or (same and not each.optimized):
                    each.pruned = True
                    self._left_out.add(each.key)
                    self.best.pop(each.key, None)
            rivals[:] = [each for each in rivals if not each.pruned]
        self._ahead[entry.channel, entry.kind, entry.start].append(entry)


_FREE = LinearModel(0.0, (0.0, 0.0))
_SUM = LinearModel(0.0, (1.0, 1.0))


def _converted_key(conversion: Conversion, base: Entry | None, block: Entry) -> BlockKey | None:
    """Return what a conversion writes; None if it cannot convert the block with the help of the old base."""
    if base is None:
        return (block.channel, conversion.target, block.start, block.target)
    if conversion.source == BASE:
        if not precedes(base.newest, block.newest):
            return None
        return (block.channel, conversion.target, base.target, block.target)
    if conversion.target == BASE:
        target = converted(base.target, start_of(block), block.target)
        if target is None or not precedes(base.newest, newest(target)):
            return None
        return (block.channel, BASE, None, target)
    if base.target != block.start:
        return None
    return (block.channel, conversion.target, block.start, block.target)


def _all_monotone(ports: tuple[Filling, ...]) -> bool:
    """Return whether all deltas that are read are monotone."""
    return all(entry.kind in (BASE, MONOTONE) for filling in ports for entry in filling[2])
