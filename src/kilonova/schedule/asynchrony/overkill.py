"""Pruning: blocks that do more than is needed (asynchronous scheduling, 6.2.4).

A block is overkill if a stored block of its channel, which it is ahead of, keeps the channel's propagated limits and
can be read in its place: it is of the same type, or a base.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from kilonova.schedule.asynchrony.channel_limits import LimitCheck
from kilonova.schedule.asynchrony.data_block import BASE, BlockType, DataBlock
from kilonova.schedule.asynchrony.provenance import Newest, newest, precedes

IsOverkill = Callable[[str, BlockType, Newest], bool]


def overkill_rule(blocks: Mapping[str, tuple[DataBlock, ...]], channels: Iterable[str], kept: LimitCheck) -> IsOverkill:
    """Return whether a block of some channel, type and newest points is overkill.

    Args:
        blocks: the stored blocks.
        channels: the channels concerned.
        kept: the check of the propagated limits.
    """
    enough: dict[str, dict[BlockType, list[Newest]]] = {}
    for channel in channels:
        found: dict[BlockType, list[Newest]] = defaultdict(list)
        for block in blocks.get(channel, ()):
            if kept.holds(channel, block.target):
                found[block.kind].append(newest(block.target))
        enough[channel] = found

    def is_overkill(channel: str, kind: BlockType, ahead: Newest) -> bool:
        known = enough[channel]
        return any(precedes(each, ahead) for each in known.get(kind, ())) or (
            kind != BASE and any(precedes(each, ahead) for each in known.get(BASE, ()))
        )

    return is_overkill
