"""Reference planner: tries all sets of invocations, the cheapest sets first. Slow and short."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from kilonova.schedule.asynchrony.channel_limits import LimitCheck
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockKey, is_weak, key_of
from kilonova.schedule.asynchrony.provenance import EMPTY, Provenance, converted, is_consistent, newest, precedes
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState
from kilonova.schedule.asynchrony.state_changes import continuation
from kilonova.schedule.asynchrony.workflow_model import PortForm, PortSignature, VariantModel, WorkflowModel

Blocks = frozenset[BlockKey]


class TooMany(Exception):
    """There are more sets of invocations than the reference should try."""


def cheapest_plan(
    workflow: WorkflowModel, state: SchedulingState, output: OutputState, declared: LimitCheck, limit: int = 600
) -> float | None:
    """Return the cost of the cheapest way to a block that continues an output within all limits; None if there is none.

    Costs must not depend on sizes.
    """
    stored = frozenset(key_of(block) for blocks in state.blocks.values() for block in blocks)
    queue: list[tuple[float, int, Blocks]] = [(0.0, 0, stored)]
    seen: set[Blocks] = set()
    count = 0
    while queue:
        cost, _, blocks = heapq.heappop(queue)
        if blocks in seen:
            continue
        seen.add(blocks)
        if len(seen) > limit:
            raise TooMany
        if any(_is_wanted(key, output, declared) for key in blocks):
            return cost
        for key, own in _steps(workflow, state, blocks, declared):
            if key not in blocks and _is_allowed(key, state, declared):
                count += 1
                heapq.heappush(queue, (cost + own, count, blocks | {key}))
    return None


def _is_wanted(key: BlockKey, output: OutputState, declared: LimitCheck) -> bool:
    channel, kind, start, target = key
    if channel != output.channel or kind not in output.accepts:
        return False
    result = continuation(output.head, start, target)
    return result is not None and declared.breach(channel, result) is None


def _is_allowed(key: BlockKey, state: SchedulingState, declared: LimitCheck) -> bool:
    """Return whether a block keeps the limits: of an output, what results from it, as far as it changes."""
    channel, _, start, target = key
    for output in state.outputs:
        if output.channel == channel:
            result = target if start is None else converted(output.head, start, target)
            if result is not None:
                return declared.breach(channel, result, output.head) is None
    return declared.breach(channel, target) is None


def _steps(
    workflow: WorkflowModel, state: SchedulingState, blocks: Blocks, declared: LimitCheck
) -> Iterator[tuple[BlockKey, float]]:
    """Yield all blocks that one invocation can write, and its cost."""
    for task in workflow.tasks:
        paths = workflow.paths[task.writes]
        for variant in task.variants:
            for ports in itertools.product(*_readings(workflow, blocks, task.reads, variant, declared)):
                before = tuple(itertools.chain(*(port[0] for port in ports)))
                after = tuple(itertools.chain(*(port[1] for port in ports)))
                assert len(after) == len(paths), "paths that join again are not in these examples"
                ends = [after] if variant.produces == BASE else [before, after]
                if variant.synchronous and not all(is_consistent(each, paths, state.times) for each in ends):
                    continue
                kinds = {key[1] for port in ports for key in port[2]}
                kind = variant.produces
                if kind == STRONG and variant.keeps_monotone and STRONG not in kinds:
                    kind = MONOTONE
                yield (task.writes, kind, None if kind == BASE else before, after), variant.cost.fixed
    for channel in workflow.channels:
        own = [key for key in blocks if key[0] == channel.name]
        for one, other in itertools.product(own, own):
            if one[1] != BASE and other[1] != BASE and one[3] == other[2] and is_weak(one[1]) == is_weak(other[1]):
                yield (channel.name, one[1] if one[1] == other[1] else STRONG, one[2], other[3]), 0.0
        for conversion in channel.conversions:
            for base, block in itertools.product(own, own):
                if base[1] != BASE or block[1] != conversion.source:
                    continue
                key: BlockKey | None = None
                if conversion.source == BASE:
                    key = (channel.name, conversion.target, base[3], block[3])
                elif conversion.target == BASE:
                    target = converted(base[3], _not_none(block[2]), block[3])
                    key = None if target is None else (channel.name, BASE, None, target)
                elif base[3] == block[2]:
                    key = (channel.name, conversion.target, block[2], block[3])
                if key is not None and precedes(newest(base[3]), newest(key[3])):
                    yield key, conversion.cost.fixed


def _readings(
    workflow: WorkflowModel, blocks: Blocks, reads: tuple[str, ...], variant: VariantModel, declared: LimitCheck
) -> list[list[tuple[Provenance, Provenance, tuple[BlockKey, ...]]]]:
    return [
        list(_port_readings(workflow, blocks, channel, port, declared))
        for channel, port in zip(reads, variant.ports, strict=True)
    ]


def _port_readings(
    workflow: WorkflowModel, blocks: Blocks, channel: str, port: PortSignature, declared: LimitCheck
) -> Iterator[tuple[Provenance, Provenance, tuple[BlockKey, ...]]]:
    if port.form is PortForm.NOTHING:
        nothing = (EMPTY,) * len(workflow.paths[channel])
        yield nothing, nothing, ()
        return
    own = [key for key in blocks if key[0] == channel]
    bases = [key for key in own if key[1] == BASE]
    deltas = [key for key in own if key[1] in ({STRONG, MONOTONE} if port.delta == STRONG else {port.delta})]
    if port.form is PortForm.BASE:
        yield from ((key[3], key[3], (key,)) for key in bases if declared.holds(channel, key[3]))
        return
    for delta in deltas:
        if not declared.holds(channel, delta[3]):
            continue
        start = _not_none(delta[2])
        if port.form is PortForm.DELTA:
            yield start, delta[3], (delta,)
        else:
            yield from ((start, delta[3], (base, delta)) for base in bases if base[3] == start)


def _not_none(start: Provenance | None) -> Provenance:
    assert start is not None
    return start
