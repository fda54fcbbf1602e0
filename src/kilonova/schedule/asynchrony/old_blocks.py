"""Pruning: blocks that are older than all that is still to be processed (asynchronous scheduling, 6.2.1)."""

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
