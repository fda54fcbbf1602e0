"""Pruning: chains of deltas that are combined before the search (asynchronous scheduling, 6.2.2).

Two abutting deltas become one, unless a base stands between them or the processing frontier lies there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kilonova.schedule.asynchrony.data_block import BASE, BlockType, DataBlock
from kilonova.schedule.asynchrony.provenance import Newest, Provenance, newest


def with_compulsory_chains(blocks: tuple[DataBlock, ...], frontier: frozenset[Newest]) -> tuple[DataBlock, ...]:
    """Return the blocks of a channel with abutting deltas of one type combined.

    Args:
        blocks: the blocks.
        frontier: the frontier set of the channel: what has been read up to there must be told from the rest.
    """
    bases = {block.target for block in blocks if block.kind == BASE}
    begun = Counter((block.kind, block.start) for block in blocks)
    ended = Counter((block.kind, block.target) for block in blocks)

    def joins(kind: BlockType, between: Provenance) -> bool:
        one_way = begun[kind, between] == 1 and ended[kind, between] == 1
        return one_way and between not in bases and newest(between) not in frontier

    deltas = [block for block in blocks if block.kind != BASE]
    if not any(joins(block.kind, block.target) for block in deltas):
        return blocks
    following = {(block.kind, block.start): block for block in deltas}
    found = [block for block in blocks if block.kind == BASE]
    for block in deltas:
        assert block.start is not None
        if joins(block.kind, block.start):
            continue
        while joins(block.kind, block.target):
            block = _combined(block, following[block.kind, block.target])
        found.append(block)
    return tuple(found)


def _combined(one: DataBlock, other: DataBlock) -> DataBlock:
    """Return the delta over two abutting ones."""
    points = None if one.points is None or other.points is None else (one.points[0], other.points[1])
    return replace(one, target=other.target, rows=one.rows + other.rows, points=points)
