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
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kilonova.schedule.asynchrony.channel_limits import LimitCheck
from kilonova.schedule.asynchrony.data_block import (
    BASE,
    MONOTONE,
    STRONG,
    BlockKey,
    BlockType,
    DataBlock,
    accepted_types,
    applied,
    is_weak,
)
from kilonova.schedule.asynchrony.execution_plan import ChainStep, ConversionStep, Step, TaskStep
from kilonova.schedule.asynchrony.linear_model import LinearModel
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
from kilonova.schedule.asynchrony.workflow_model import (
    Conversion,
    PortForm,
    PortSignature,
    TaskModel,
    VariantModel,
    WorkflowModel,
)

Filling = tuple[Provenance, Provenance, tuple[Entry, ...]]
"""What a port reads: the provenance before and after it, and the blocks."""


def _never(_channel: str, _kind: BlockType, _newest: Newest) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """What a search may read, and what it leaves out.

    Attributes:
        channels: the channels whose blocks are wanted.
        declared: limits that a block must keep to be read by a task.
        kept: limits that a block must keep to be considered.
        overkill: whether a block of some type and newest points is more than is needed on its channel.
        long_term: whether to ignore a block if another one of the same type is ahead of it.
    """

    channels: frozenset[str]
    declared: LimitCheck
    kept: LimitCheck
    overkill: Callable[[str, BlockType, Newest], bool] = _never
    long_term: bool = False


@dataclass(frozen=True, slots=True)
class _Use:
    """A port by which a variant may read a block."""

    task: TaskModel
    variant: VariantModel
    port: int


@dataclass(slots=True)
class BlockSearch:
    """A search.

    Attributes:
        workflow: the workflow.
        times: the points of each source channel.
        rules: what is left out.
        heads: the provenance of each output's relation; a delta that applies to it must keep the limits afterwards.
        depth: the largest number of invocations of a plan; None for any.
        drafts: the invocations considered, by number.
        written: the entry that each of them writes.
        best: the entry of each block that was not pruned.
        refused: for each channel, the cheapest blocks that would break its limits.
    """

    workflow: WorkflowModel
    times: Mapping[str, ArrivalTimes]
    rules: SearchRules
    heads: Mapping[str, Provenance]
    depth: int | None = None
    drafts: list[Draft] = field(default_factory=list)
    written: list[Entry] = field(default_factory=list)
    best: dict[BlockKey, Entry] = field(default_factory=dict)
    refused: dict[str, tuple[float, Provenance]] = field(default_factory=dict)
    _queue: list[tuple[float, int, Entry]] = field(default_factory=list)
    _ready: dict[tuple[str, BlockType], list[Entry]] = field(default_factory=lambda: defaultdict(list))
    _ahead: dict[tuple[str, BlockType, Provenance | None], list[Entry]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _left_out: set[BlockKey] = field(default_factory=set)
    _uses: dict[str, list[_Use]] = field(default_factory=dict)
    _count: int = 0

    def run(self, blocks: Mapping[str, tuple[DataBlock, ...]]) -> None:
        """Find the cheapest plan for every block.

        Args:
            blocks: the stored blocks by channel.
        """
        for channel in self.rules.channels:
            for block in blocks.get(channel, ()):
                self._add_stored(block)
        while self._queue:
            _, _, entry = heapq.heappop(self._queue)
            if entry.pruned or entry.optimized:
                continue
            entry.optimized = True
            if self.depth is None or len(entry.plan) < self.depth:
                self._ready[entry.channel, entry.kind].append(entry)
                self._generate(entry)

    def ready(self, channel: str, kind: BlockType) -> list[Entry]:
        """Return the optimized blocks of a channel and type."""
        return self._ready[channel, kind]

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
        for use in self._uses_of(entry.channel):
            filled = self._fillings(use.variant.ports[use.port], entry.channel, entry)
            if not filled:
                continue
            others = [
                filled if place == use.port else self._fillings(port, channel, None)
                for place, (port, channel) in enumerate(zip(use.variant.ports, use.task.reads, strict=True))
            ]
            for combination in itertools.product(*others):
                self._invoke(use.task, use.variant, combination)
        for conversion in self.workflow.channel[entry.channel].conversions:
            self._convert(conversion, entry)
        if entry.kind != BASE:
            self._chain(entry)

    def _uses_of(self, channel: str) -> list[_Use]:
        """Return the ports by which variants of wanted channels may read a channel."""
        known = self._uses.get(channel)
        if known is None:
            known = self._uses[channel] = [
                _Use(task, variant, port)
                for task in self.workflow.readers[channel]
                if task.writes in self.rules.channels
                for variant in task.variants
                for port, name in enumerate(task.reads)
                if name == channel and variant.ports[port].form is not PortForm.NOTHING
            ]
        return known

    def _fillings(self, port: PortSignature, channel: str, entry: Entry | None) -> list[Filling]:
        """Return what a port can read of optimized blocks: all of it, or what contains a block."""
        if port.form is PortForm.NOTHING:
            nothing: Provenance = (EMPTY,) * len(self.workflow.paths[channel])
            return [(nothing, nothing, ())]
        if port.form is PortForm.BASE:
            bases = self._offered(channel, BASE, entry)
            return [(base.target, base.target, (base,)) for base in bases if base.usable]
        deltas = [
            delta
            for kind in accepted_types(port.delta)
            for delta in self._offered(channel, kind, None if entry is not None and entry.kind == BASE else entry)
            if delta.usable
        ]
        if port.form is PortForm.DELTA:
            if entry is not None and entry.kind == BASE:
                return []
            return [(_start(delta), delta.target, (delta,)) for delta in deltas]
        bases = self._offered(channel, BASE, entry if entry is not None and entry.kind == BASE else None)
        return [
            (base.target, delta.target, (base, delta))
            for base in bases
            for delta in deltas
            if delta.start == base.target
        ]

    def _offered(self, channel: str, kind: BlockType, entry: Entry | None) -> list[Entry]:
        """Return a block if it is of a type, or all optimized blocks of that type."""
        if entry is None:
            return [each for each in self._ready[channel, kind] if not each.pruned]
        return [entry] if entry.kind == kind else []

    def _invoke(self, task: TaskModel, variant: VariantModel, ports: tuple[Filling, ...]) -> None:
        """Consider an invocation of a variant."""
        before = self._combined(task, tuple(filling[0] for filling in ports))
        after = self._combined(task, tuple(filling[1] for filling in ports))
        start = None if variant.produces == BASE else before
        kind = variant.produces
        if kind == STRONG and variant.keeps_monotone and _all_monotone(ports):
            kind = MONOTONE
        if start is not None and not precedes(newest(start), newest(after)):
            return
        if variant.synchronous:
            paths = self.workflow.paths[task.writes]
            consistent = is_consistent(after, paths, self.times)
            if not consistent or (start is not None and not is_consistent(start, paths, self.times)):
                return
        step = TaskStep(task.name, variant.name)
        reads = tuple(filling[2] for filling in ports)
        self._offer(step, (task.writes, kind, start, after), reads, variant.cost, variant.rows)

    def _combined(self, task: TaskModel, ports: tuple[Provenance, ...]) -> Provenance:
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

    def _convert(self, conversion: Conversion, entry: Entry) -> None:
        """Consider the conversions of a block, as the block converted or as the old base beside it."""
        step = ConversionStep(entry.channel, conversion.source, conversion.target)
        for base, block in self._convertible(conversion, entry):
            reads = (block,) if base is None else (base, block)
            if conversion.target == BASE:
                assert base is not None
                target = converted(base.target, _start(block), block.target)
                if target is None or not precedes(base.newest, newest(target)):
                    continue
                key: BlockKey = (entry.channel, BASE, None, target)
            elif conversion.source == BASE:
                assert base is not None
                key = (entry.channel, conversion.target, base.target, block.target)
            else:
                key = (entry.channel, conversion.target, block.start, block.target)
            self._offer(step, key, (reads,), conversion.cost, conversion.rows)

    def _convertible(self, conversion: Conversion, entry: Entry) -> Iterator[tuple[Entry | None, Entry]]:
        """Yield pairs of an old base and a block to convert, of which one is a given block."""
        channel = entry.channel
        if conversion.source == BASE:
            if entry.kind == BASE:
                for other in self._offered(channel, BASE, None):
                    if precedes(other.newest, entry.newest):
                        yield other, entry
                    elif precedes(entry.newest, other.newest):
                        yield entry, other
            return
        if not conversion.reads_base:
            if entry.kind == conversion.source:
                yield None, entry
            return
        strict = conversion.target != BASE
        if entry.kind == conversion.source:
            for base in self._offered(channel, BASE, None):
                if not strict or base.target == entry.start:
                    yield base, entry
        elif entry.kind == BASE:
            for delta in self._offered(channel, conversion.source, None):
                if not strict or delta.start == entry.target:
                    yield entry, delta

    def _chain(self, entry: Entry) -> None:
        """Consider the chains of a delta with the deltas that abut it."""
        kinds = (entry.kind,) if is_weak(entry.kind) else (STRONG, MONOTONE)
        for kind in kinds:
            chained = kind if kind == entry.kind else STRONG
            for other in self._offered(entry.channel, kind, None):
                for first, second in ((entry, other), (other, entry)):
                    if first.target == second.start:
                        key: BlockKey = (entry.channel, chained, first.start, second.target)
                        self._offer(ChainStep(entry.channel), key, ((first, second),), _FREE, _SUM)

    def _offer(
        self,
        step: Step,
        key: BlockKey,
        reads: tuple[tuple[Entry, ...], ...],
        cost: LinearModel,
        rows: LinearModel,
    ) -> None:
        """Consider a block, unless it is left out or known at no higher cost."""
        if key in self._left_out:
            return
        known = self.best.get(key)
        if known is not None and known.optimized:
            return
        read = tuple(itertools.chain.from_iterable(reads))
        sizes = [entry.rows for entry in read]
        written = max(0.0, rows(sizes))
        own = cost(sizes, written)
        plan, total = self._together(read, own)
        if known is not None and total >= known.cost:
            return
        ahead = newest(key[3])
        if known is None and self._is_left_out(key, ahead, total):
            self._left_out.add(key)
            return
        number = len(self.drafts)
        usable = self.rules.declared.holds(key[0], key[3]) if known is None else known.usable
        entry = Entry(*key, ahead, written, total, plan | {number}, self._count, maker=number, usable=usable)
        self.drafts.append(Draft(step, reads, own, written))
        self.written.append(entry)
        if known is not None:
            known.pruned = True
        self._push(entry)
        if self.rules.long_term:
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

    def _is_left_out(self, key: BlockKey, ahead: Newest, cost: float) -> bool:
        """Return whether a block breaks a limit, or is left out by another rule."""
        channel, kind, start, target = key
        if not self._keeps_limits(channel, start, target, cost):
            return True
        if self.rules.overkill(channel, kind, ahead):
            return True
        return self.rules.long_term and any(
            not each.pruned and precedes(ahead, each.newest) for each in self._ahead[channel, kind, start]
        )

    def _keeps_limits(self, channel: str, start: Provenance | None, target: Provenance, cost: float) -> bool:
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
        if channel not in self.refused or cost < self.refused[channel][0]:
            self.refused[channel] = (cost, result)
        return False

    def _drop_overtaken(self, entry: Entry) -> None:
        """Remove the blocks that a block is ahead of (6.3)."""
        rivals = self._ahead[entry.channel, entry.kind, entry.start]
        for each in rivals:
            if precedes(each.newest, entry.newest):
                each.pruned = True
                self._left_out.add(each.key)
                self.best.pop(each.key, None)
        rivals[:] = [each for each in rivals if not each.pruned]
        rivals.append(entry)


_FREE = LinearModel(0.0, (0.0, 0.0))
_SUM = LinearModel(0.0, (1.0, 1.0))


def _start(delta: Entry) -> Provenance:
    """Return the provenance that a delta is relative to."""
    assert delta.start is not None
    return delta.start


def _all_monotone(ports: tuple[Filling, ...]) -> bool:
    """Return whether all deltas that are read are monotone."""
    return all(entry.kind in (BASE, MONOTONE) for filling in ports for entry in filling[2])
