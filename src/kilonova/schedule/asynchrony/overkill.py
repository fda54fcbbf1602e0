"""Pruning: blocks that do more than is needed (asynchronous scheduling, 6.2.4).

A block is overkill if a stored block of its channel, which it is ahead of, keeps the channel's propagated limits and
can be read in its place: it is of the same type, or a base, or a monotone delta in place of a strong one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from kilonova.schedule.asynchrony.channel_limits import LimitCheck
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockType, DataBlock
from kilonova.schedule.asynchrony.provenance import Newest, newest, precedes

IsOverkill = Callable[[str, BlockType, Newest], bool]


def overkill_rule(
    blocks: Mapping[str, tuple[DataBlock, ...]],
    channels: Iterable[str],
    kept: LimitCheck,
    monotone_suffices: frozenset[str],
) -> IsOverkill:
    """Return whether a block of some channel, type and newest points is overkill.

    Args:
        blocks: the stored blocks.
        channels: the channels concerned.
        kept: the check of the propagated limits.
        monotone_suffices: the channels of which a monotone delta can be read wherever a strong one can.
    """
    enough: dict[str, dict[BlockType, list[Newest]]] = {}
    for channel in channels:
        found: dict[BlockType, list[Newest]] = defaultdict(list)
        for block in blocks.get(channel, ()):
            if kept.holds(channel, block.target):
                found[block.kind].append(newest(block.target))
        if channel in monotone_suffices and MONOTONE in found:
            found[STRONG] += found[MONOTONE]
        enough[channel] = found

    def is_overkill(channel: str, kind: BlockType, ahead: Newest) -> bool:
        known = enough[channel]
        for wanted in (kind,) if kind == BASE else (kind, BASE):
            for each in known.get(wanted, ()):
                if precedes(each, ahead):
                    return True
        return False

    return is_overkill
