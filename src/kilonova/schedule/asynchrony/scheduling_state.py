"""Input of the scheduler's decisions: the blocks of each channel, the outputs and the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kilonova.schedule.asynchrony.data_block import BlockType, DataBlock
from kilonova.schedule.asynchrony.provenance import ArrivalTimes, Provenance


@dataclass(frozen=True, slots=True)
class OutputState:
    """An output channel: one that consumers outside of the workflow read.

    Attributes:
        channel: its name.
        accepts: the block types that all of its consumers accept.
        head: the provenance of the relation that they have been given: that of point 0 at first.
    """

    channel: str
    accepts: frozenset[BlockType]
    head: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingState:
    """State from which the scheduler decides.

    Attributes:
        now: the present time, later than every arrival.
        times: the points of each source channel, with their arrivals.
        blocks: the blocks of each channel, the empty base at point 0 among them, unless it is no longer of use.
        outputs: the output channels. Their bounds start runs; those of other channels restrict what may be read.
        cursors: what a task has read so far, by task and the place of the port: its deltas start there. Without it, a
            delta may start anywhere.
    """

    now: datetime
    times: Mapping[str, ArrivalTimes]
    blocks: Mapping[str, tuple[DataBlock, ...]]
    outputs: tuple[OutputState, ...]
    cursors: Mapping[tuple[str, int], Provenance] = field(default_factory=dict)
