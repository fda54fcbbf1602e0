"""What a channel of points offers to a plan: its blocks with their provenance.

Of a channel, the snapshots at some points can be read, and the changes between them. These are the points at which
readers stand, their cursors, and the newest one: nothing that lies between them has to be told apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kilonova.model.block import Base, Block
from kilonova.model.channel import ChannelState
from kilonova.model.encoding import Append
from kilonova.model.version import Path
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, DataBlock
from kilonova.schedule.asynchrony.provenance import ORIGIN, Provenance, provenance_of


def observed_blocks(state: ChannelState, paths: Sequence[Path], cursors: Collection[int]) -> tuple[DataBlock, ...]:
    """Return a base at each point that matters, and a delta from each to the next.

    Args:
        state: the channel.
        paths: its paths, of which a source channel has one.
        cursors: the points up to which its readers have read.
    """
    newest = state.latest_kept
    wanted = {state.settled(point) for point in (*cursors, newest) if point <= newest}
    if not cursors:
        wanted.add(0)
    kept = sorted(point for point in wanted if point == 0 or point >= state.first_retained)
    kind = MONOTONE if isinstance(state.channel.encoding, Append) else STRONG
    blocks: list[DataBlock] = []
    for place, point in enumerate(kept):
        target = _provenance(state, point, paths)
        blocks.append(DataBlock(state.channel.name, BASE, None, target, _snapshot_rows(state, point), (point, point)))
        if place and blocks[-2].target != target:
            before = kept[place - 1]
            start = _provenance(state, before, paths)
            rows = _change_rows(state, before, point)
            blocks.append(DataBlock(state.channel.name, kind, start, target, rows, (before, point)))
    return tuple(blocks)


def _provenance(state: ChannelState, point: int, paths: Sequence[Path]) -> Provenance:
    """Return the provenance of a point."""
    if not point:
        return (ORIGIN,) * len(paths)
    found = next(each for each in state.points if each.number == point)
    return provenance_of(found.reflected, paths)


def _snapshot_rows(state: ChannelState, point: int) -> float:
    """Return the number of rows of a snapshot, at most."""
    return float(sum(_net_rows(block) for block in state.snapshot(point).blocks)) if point else 0.0


def _change_rows(state: ChannelState, start: int, end: int) -> float:
    """Return the number of rows of the change between two points, as far as deltas show it."""
    deltas = state.path(start, end)
    if deltas is None:
        return abs(_snapshot_rows(state, end) - _snapshot_rows(state, start))
    return float(sum(block.statistics.rows for block in deltas))


def _net_rows(block: Block) -> int:
    """Return how many rows a block adds to the relation, at most."""
    seen = block.statistics
    return seen.rows if isinstance(block.kind, Base) or seen.net_rows is None else seen.net_rows
