"""Which blocks garbage collection may take, and what holds the rest (logic evolution, A.2).

A block goes iff

1. it is *subsumed*: another base of the channel stands at its end or later;
2. no future run reads it: no cursor lies before its end with the block on the way from there to the newest
   point, no OLD or CHANGES reader needs it for the snapshot at its cursor, and nobody has it pinned;
3. no block that stays has a provenance reference to it: logical references (a base to the base of an input
   that it reflects) always count, physical ones (any block read to make one) where the user asks for them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from kilonova.errors import UnknownName
from kilonova.model.block import Base, Block, Delta
from kilonova.model.channel import Chronicle


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A task that reads a channel by cursor.

    Attributes:
        task: its name.
        cursor: the point up to which it has read.
        started: whether its present logic has run; if not, it will begin from a snapshot.
        beginning: whether it is doing so now, and will want what has come since when it ends.
        needs_snapshot: whether it will read the snapshot at its cursor (OLD, or CHANGES of a weak delta).
    """

    task: str
    cursor: int
    started: bool
    beginning: bool
    needs_snapshot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A point of channel `of` was made by reading `channel` up to `point`."""

    of: str
    at: int
    channel: str
    point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """All that may hold blocks, at one moment.

    Attributes:
        chronicles: every channel.
        consumers: who reads each channel by cursor.
        pins: who has each block pinned.
        physical: (block read, block made of it).
        logical: points and the points that they reflect.
    """

    chronicles: Mapping[str, Chronicle]
    consumers: Mapping[str, tuple[Consumer, ...]]
    pins: Mapping[int, tuple[str, ...]]
    physical: frozenset[tuple[int, int]]
    logical: frozenset[Reference]


class Provenance(enum.Enum):
    """Which provenance references hold blocks back."""

    LOGICAL = "logical"
    PHYSICAL = "physical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a block goes; if not, what holds it."""

    channel: str
    block: Block
    held_by: str | None

    @property
    def goes(self) -> bool:
        """Whether the block may be collected."""
        return self.held_by is None


def collect(
    holdings: Holdings, channels: tuple[str, ...] | None = None, provenance: Provenance = Provenance.LOGICAL
) -> tuple[Verdict, ...]:
    """Decide for every block whether it goes.

    Args:
        holdings: what may hold blocks.
        channels: the channels to collect; None for all.
        provenance: which references count.

    Returns:
        A verdict per block of those channels, by channel and block number.
    """
    chosen = sorted(holdings.chronicles) if channels is None else list(channels)
    verdicts = {
        block.number: Verdict(
            channel=name, block=block, held_by=_needed(block, holdings.chronicles[name], holdings, name)
        )
        for name in chosen
        for block in sorted(holdings.chronicles[name].blocks, key=lambda block: block.number)
    }
    while True:
        going = {number for number, verdict in verdicts.items() if verdict.goes}
        held = _held_by_provenance(going, holdings, provenance)
        if not held:
            return tuple(verdicts.values())
        for number, reason in held.items():
            verdict = verdicts[number]
            verdicts[number] = Verdict(channel=verdict.channel, block=verdict.block, held_by=reason)


def _needed(block: Block, chronicle: Chronicle, holdings: Holdings, name: str) -> str | None:
    if block.number in holdings.pins:
        return f"pinned by {', '.join(holdings.pins[block.number])}"
    subsumed = any(
        isinstance(other.kind, Base)
        and other.number != block.number
        and other.end >= block.end
        and (other.end > block.end or not isinstance(block.kind, Base) or other.number < block.number)
        for other in chronicle.blocks
    )
    if not subsumed:
        return "no later base holds its rows"
    newest = chronicle.readable
    if block in chronicle.snapshot(newest).blocks:
        return f"part of the newest snapshot, at point {newest}"
    if chronicle.newest > newest and block.end > newest:
        return "not readable yet"
    for consumer in holdings.consumers.get(name, ()):
        if not consumer.started:
            if consumer.beginning and isinstance(block.kind, Delta):
                return f"{consumer.task} is running for the first time"
            continue
        try:
            if block in chronicle.delta(consumer.cursor, newest).blocks:
                return f"{consumer.task} has read up to point {consumer.cursor} only"
            if consumer.needs_snapshot and block in chronicle.snapshot(consumer.cursor).blocks:
                return f"{consumer.task} reads the snapshot at its cursor, point {consumer.cursor}"
        except UnknownName:
            continue
    return None


def _held_by_provenance(going: set[int], holdings: Holdings, provenance: Provenance) -> dict[int, str]:
    """Blocks about to go that a block which stays refers to."""
    held: dict[int, str] = {}
    if provenance is Provenance.PHYSICAL:
        for read, made in holdings.physical:
            if read in going and made not in going:
                held[read] = f"block {made} was made of it"
        return held
    bases = {
        name: [block for block in chronicle.blocks if isinstance(block.kind, Base)]
        for name, chronicle in holdings.chronicles.items()
    }
    for reference in holdings.logical:
        target, origin = holdings.chronicles[reference.of], holdings.chronicles[reference.channel]
        stays = any(target.same(base.end, reference.at) and base.number not in going for base in bases[reference.of])
        if not stays or target is origin:
            continue
        for block in bases[reference.channel]:
            if block.number in going and origin.same(block.end, reference.point):
                held[block.number] = f"the base of {reference.of} at point {reference.at} reflects it"
    return held
