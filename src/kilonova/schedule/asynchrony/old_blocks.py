"""Pruning: blocks that are older than all that is still to be processed (asynchronous scheduling, 6.2.1)."""

from __future__ import annotations

from kilonova.schedule.asynchrony.data_block import BASE, DataBlock
from kilonova.schedule.asynchrony.frontiers import least_frontier
from kilonova.schedule.asynchrony.provenance import Newest, newest, precedes


def without_old_blocks(blocks: tuple[DataBlock, ...], frontier: frozenset[Newest]) -> tuple[DataBlock, ...]:
    """Return the blocks of a channel without those that precede its maximal pre-frontier base.

    That is the newest base before the frontier: changes from there on can still be computed.
    """
    least = least_frontier(frontier)
    before = [each for block in blocks if block.kind == BASE and precedes(each := newest(block.target), least)]
    if not before:
        return blocks
    base = max(before)
    return tuple(block for block in blocks if not precedes(newest(block.target), base))
