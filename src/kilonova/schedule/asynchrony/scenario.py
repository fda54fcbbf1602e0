"""A scenario is a workflow with its bounds and consumers, and what arrives on its source channels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kilonova.model.bound import Bound
from kilonova.schedule.asynchrony.data_block import BlockType
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel


@dataclass(frozen=True, slots=True)
class Feed:
    """Data that arrive regularly on a source channel.

    Attributes:
        channel: the source channel.
        kind: the type of the deltas that arrive.
        rows: rows of an arrival.
        every: time between two arrivals.
        first: time from the beginning of the simulation to the first arrival.
        initial: rows that are there at the beginning.
    """

    channel: str
    kind: BlockType
    rows: float
    every: timedelta
    first: timedelta = timedelta()
    initial: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A workflow with its bounds, consumers and arrivals.

    Attributes:
        workflow: the workflow.
        bounds: its bounds.
        accepts: the block types that the consumers of each output channel accept.
        feeds: the arrivals.
        stored: rows of the channels at the beginning, all of them up to date; none if the channels are empty.
    """

    workflow: WorkflowModel
    bounds: tuple[Bound, ...]
    accepts: Mapping[str, frozenset[BlockType]]
    feeds: tuple[Feed, ...]
    stored: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Rows that arrive at a time."""

    time: datetime
    channel: str
    kind: BlockType
    rows: float


def arrivals_of(feeds: Sequence[Feed], start: datetime, duration: timedelta) -> list[Arrival]:
    """Return all arrivals of some feeds, in order; what is there at the beginning arrives then."""
    found = [Arrival(start, feed.channel, feed.kind, feed.initial) for feed in feeds if feed.initial]
    for feed in feeds:
        begin = feed.first or feed.every
        count = max(0, math.ceil((duration - begin) / feed.every))
        found += (
            Arrival(start + begin + number * feed.every, feed.channel, feed.kind, feed.rows) for number in range(count)
        )
    return sorted(found, key=lambda arrival: (arrival.time, arrival.channel))
