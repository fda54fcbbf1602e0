"""Pruning: blocks that are older than all that is still to be processed (asynchronous scheduling, 6.2.1).

The maximal pre-frontier base of a channel of which only changes are read may be its first base, so that deltas remain
that nothing applies to: they lead from points before the frontier at which neither the channel nor one downstream has a
base.
"""

from __future__ import annotations

from kilonova.schedule.asynchrony.data_block import BASE, DataBlock
from kilonova.schedule.asynchrony.frontiers import least_frontier
from kilonova.schedule.asynchrony.provenance import Newest, newest, precedes


def oldest_needed(blocks: tuple[DataBlock, ...], frontier: frozenset[Newest]) -> Newest | None:
    """Return the newest points of a channel's maximal pre-frontier base; None if it has none.

    That is the newest base up to the frontier: changes from there on can still be computed. The paper takes one before
    the frontier even if there is one at it, which keeps another base of each channel.
    """
    least = least_frontier(frontier)
    bases = [newest(block.target) for block in blocks if block.kind == BASE]
    return max((each for each in bases if each == least or precedes(each, least)), default=None)


def without_old_blocks(blocks: tuple[DataBlock, ...], frontier: frozenset[Newest]) -> tuple[DataBlock, ...]:
    """Return the blocks of a channel without those that precede its maximal pre-frontier base."""
    oldest = oldest_needed(blocks, frontier)
    if oldest is None:
        return blocks
    return tuple(block for block in blocks if not precedes(newest(block.target), oldest))


def without_inapplicable_deltas(
    blocks: tuple[DataBlock, ...], frontier: frozenset[Newest], bases: frozenset[Newest]
) -> tuple[DataBlock, ...]:
    """Return the blocks of a channel without deltas from before the frontier that do not continue anything.

    Args:
        blocks: the blocks.
        frontier: the frontier set of the channel.
        bases: the points that the bases of the channel, and those of channels downstream, reflect of it.
    """
    deltas = [(newest(block.start), newest(block.target), block) for block in blocks if block.start is not None]
    if not deltas:
        return blocks
    least = least_frontier(frontier)
    waiting = sorted((each for each in deltas if precedes(each[0], least)), key=lambda each: each[0])
    if not waiting:
        return blocks
    reached = [set(entries) for entries in zip(*bases, *frontier, strict=True)]
    while True:
        left = []
        for start, target, block in waiting:
            changes = [place for place, point in enumerate(start) if point != target[place]]
            if all(start[place] in reached[place] for place in changes):
                for place in changes:
                    reached[place].add(target[place])
            else:
                left.append((start, target, block))
        if len(left) == len(waiting):
            break
        waiting = left
    dropped = {id(block) for _, _, block in waiting}
    return tuple(block for block in blocks if id(block) not in dropped)
