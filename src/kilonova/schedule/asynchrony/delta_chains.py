"""Pruning: chains of deltas that are combined before the search (asynchronous scheduling, 6.2.2).

Two abutting deltas become one, unless a base stands between them or the processing frontier lies there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockType, DataBlock
from kilonova.schedule.asynchrony.provenance import Newest, Provenance, newest


def with_compulsory_chains(blocks: tuple[DataBlock, ...], frontier: frozenset[Newest]) -> tuple[DataBlock, ...]:
    """Return the blocks of a channel with abutting deltas of one type combined, where there is no other way.

    Args:
        blocks: the blocks.
        frontier: the frontier set of the channel: what has been read up to there must be told from the rest.
    """
    deltas = [block for block in blocks if block.kind != BASE]
    if len(deltas) < 2:
        return blocks
    bases = {block.target for block in blocks if block.kind == BASE}
    begun = Counter((_family(block.kind), block.start) for block in blocks)
    ended = Counter((_family(block.kind), block.target) for block in blocks)
    following = {(block.kind, block.start): block for block in blocks}
    preceding = {(block.kind, block.target) for block in blocks}

    def joins(kind: BlockType, between: Provenance) -> bool:
        family = _family(kind)
        one_way = begun[family, between] == 1 and ended[family, between] == 1
        alike = (kind, between) in following and (kind, between) in preceding
        return one_way and alike and between not in bases and newest(between) not in frontier

    if not any(joins(block.kind, block.target) for block in deltas):
        return blocks
    found = [block for block in blocks if block.kind == BASE]
    for block in deltas:
        assert block.start is not None
        if joins(block.kind, block.start):
            continue
        while joins(block.kind, block.target):
            block = _combined(block, following[block.kind, block.target])
        found.append(block)
    return tuple(found)


def _family(kind: BlockType) -> BlockType:
    """Return the type with whose deltas those of a type can be chained: monotone deltas are strong ones."""
    return STRONG if kind == MONOTONE else kind


def _combined(one: DataBlock, other: DataBlock) -> DataBlock:
    """Return the delta over two abutting ones."""
    points = None if one.points is None or other.points is None else (one.points[0], other.points[1])
    return replace(one, target=other.target, rows=one.rows + other.rows, points=points)
