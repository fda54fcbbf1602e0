"""Garbage collection decisions: the blocks that may be removed, and what retains the rest (logic evolution, A.2).

Each placement of a block in a channel is decided by itself; the block's files are deleted when it is placed nowhere any
more. A block may be removed from a channel iff

0. the channel has no retention time, or no point that it retains needs the block;
1. it is *subsumed*: there is another base of the channel at its end or later, or a delta that was merged from it
   and its neighbours covers it;
2. no future run reads it: no cursor lies before its end with the block on the path from there to the newest
   point, no OLD or CHANGES reader needs it for the snapshot at its cursor, and it is not pinned;
3. no retained block has a provenance reference to it: logical references (a base to the base of an input
   that it reflects), or physical ones (from a block to any block read to write it) if the user asks for them.

A base reflects that of an input if its version, without its own task, is the version of that, whichever way it was
computed; or if a run has read it up to there. In production, logical references are enough; for testing the logic of
incremental tasks, all blocks can be retained (logic evolution, 4.3).
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

from kilonova.errors import NotFound
from kilonova.model.block import Base, Block, Delta
from kilonova.model.channel import ChannelState, PointState
from kilonova.model.schedule import duration
from kilonova.model.version import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Live logic version of a task that reads a channel by cursor.

    Attributes:
        task: the task's name.
        cursor: the point up to which it has read.
        started: whether it has run; if not, it will start from a snapshot.
        beginning: whether its first run is in progress; its next run will need the deltas since then.
        needs_snapshot: whether it will read the snapshot at its cursor (OLD, or CHANGES of a weak delta).
    """

    task: str
    cursor: int
    started: bool
    beginning: bool
    needs_snapshot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Point of a channel up to which a logic version reads it, because later ones lack columns that it requires.

    Attributes:
        task: the task's name.
        cursor: the point up to which it has read.
        point: the point up to which it reads.
    """

    task: str
    cursor: int
    point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Logical reference: the point `at` of channel `of` was computed from `channel` up to `point`."""

    of: str
    at: int
    channel: str
    point: int


class PlacedBlock(NamedTuple):
    """Placement of a block, by which decisions about it are told apart: its channel and the block's number."""

    channel: str
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GCRoots:
    """Everything that may retain blocks, at one moment.

    Attributes:
        states: the state of every channel.
        consumers: the tasks that read each channel by cursor.
        stops: the tasks that read each channel only up to a point, before the newest one.
        pins: the holders of pins on each block.
        physical: pairs (block read, block written from it), each as placed.
        logical: points and the points that they reflect.
        now: the time at which channels with a retention time are looked at; what may be removed then may be later, too,
            so that roots are equal if all else is.
    """

    states: Mapping[str, ChannelState]
    consumers: Mapping[str, tuple[Consumer, ...]]
    stops: Mapping[str, tuple[Stop, ...]] = field(default_factory=dict)
    pins: Mapping[int, tuple[str, ...]]
    physical: frozenset[tuple[PlacedBlock, PlacedBlock]]
    logical: frozenset[Reference]
    now: datetime = field(compare=False)


class Provenance(enum.Enum):
    """Kind of provenance references that retain blocks; ALL retains every block, referred to or not."""

    LOGICAL = "logical"
    PHYSICAL = "physical"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class GCDecision:
    """Decision about a block in a channel: `held_by` is what retains it; None if it may be removed."""

    channel: str
    block: Block
    held_by: str | None

    @property
    def goes(self) -> bool:
        """Return whether the block may be removed from the channel."""
        return self.held_by is None

    @property
    def place(self) -> PlacedBlock:
        """The placement that is decided about."""
        return PlacedBlock(self.channel, self.block.number)


def decide_collection(
    roots: GCRoots, channels: tuple[str, ...] | None = None, provenance: Provenance = Provenance.LOGICAL
) -> tuple[GCDecision, ...]:
    """Decide for every placement of a block whether it may be removed.

    Args:
        roots: everything that may retain blocks.
        channels: the channels to collect; None for all.
        provenance: which references count.

    Returns:
        A decision per block of those channels, by channel and block number.
    """
    chosen = sorted(roots.states) if channels is None else list(channels)
    blocks = {
        PlacedBlock(name, block.number): block
        for name in chosen
        for block in sorted(roots.states[name].blocks, key=lambda block: block.number)
    }
    if provenance is Provenance.ALL:
        return tuple(
            GCDecision(channel=place.channel, block=block, held_by="all blocks are retained")
            for place, block in blocks.items()
        )
    held = {PlacedBlock(name, number): why for name in chosen for number, why in _held(name, roots).items()}
    held |= _held_by_provenance(set(blocks.keys() - held.keys()), roots, provenance)
    return tuple(
        GCDecision(channel=place.channel, block=block, held_by=held.get(place)) for place, block in blocks.items()
    )


def _held(name: str, roots: GCRoots) -> dict[int, str]:
    """Return why blocks of a channel are retained, by number, in time linear in its blocks for each distinct cursor."""
    state = roots.states[name]
    newest, blocks = state.latest_readable, state.blocks
    held = {b.number: f"pinned by {', '.join(roots.pins[b.number])}" for b in blocks if b.number in roots.pins}

    def hold(numbers: Iterable[int], reason: str) -> None:
        for number in numbers:
            held.setdefault(number, reason)

    if state.channel.retention is not None:
        first = _first_kept(state, roots.now - timedelta(seconds=state.channel.retention))
        reason = f"points of the last {duration(round(state.channel.retention))} stay readable"
        hold((block.number for block in blocks if block.end > first), reason)
        with suppress(NotFound):
            hold((block.number for block in state.snapshot(first).blocks), reason)
    hold(_unsubsumed(blocks), "no later base or longer delta contains its rows")
    hold((b.number for b in state.snapshot(newest).blocks), f"part of the newest snapshot, at point {newest}")
    if state.is_withheld(newest):
        kept = state.latest_kept
        reason = f"readers are given point {kept}, because newer ones violate a bound"
        hold((b.number for b in state.snapshot(kept).blocks), reason)
        hold((b.number for b in blocks if b.end > kept), reason)
    if state.latest > newest:
        hold((block.number for block in blocks if block.end > newest), "not readable yet")

    @cache
    def unread(cursor: int) -> tuple[int, ...]:
        return tuple(block.number for block in state.delta(cursor, newest).blocks)

    @cache
    def read(cursor: int) -> tuple[int, ...]:
        return tuple(block.number for block in state.snapshot(cursor).blocks)

    for consumer in roots.consumers.get(name, ()):
        if not consumer.started:
            if consumer.beginning:
                deltas = (block.number for block in blocks if isinstance(block.kind, Delta))
                hold(deltas, f"{consumer.task} is running for the first time")
            continue
        with suppress(NotFound):
            hold(unread(consumer.cursor), f"{consumer.task} has read up to point {consumer.cursor} only")
            if consumer.needs_snapshot:
                reason = f"{consumer.task} reads the snapshot at its cursor, point {consumer.cursor}"
                hold(read(consumer.cursor), reason)
    for stop in roots.stops.get(name, ()):
        with suppress(NotFound):
            reason = f"{stop.task} reads up to point {stop.point}, after which columns that it requires are missing"
            hold((block.number for block in state.snapshot(stop.point).blocks), reason)
            hold((block.number for block in state.delta(stop.cursor, stop.point).blocks), reason)
    return held


def _first_kept(state: ChannelState, since: datetime) -> int:
    """Return the point that was the newest readable one at a time; 0 if there was none."""
    readable = (p for p in state.points if p.state is PointState.FILLED and p.number <= state.latest_readable)
    return max((p.number for p in readable if p.time is not None and p.time <= since), default=0)


def _unsubsumed(blocks: Sequence[Block]) -> list[int]:
    """Return the blocks that are not subsumed by another base at their end or later, or by a longer delta.

    Of two bases at one point one is retained.
    """
    bases = [block for block in blocks if isinstance(block.kind, Base)]
    last = max((base.end for base in bases), default=-1)
    newest = (base for base in bases if base.end == last)
    kept = min(newest, key=lambda base: (base.external is not None, base.number), default=None)
    covered = _covered(blocks)
    return [block.number for block in blocks if (block.end > last and block.number not in covered) or block is kept]


def _covered(blocks: Sequence[Block]) -> set[int]:
    """Return the deltas that are covered by another one."""
    deltas = [block for block in blocks if isinstance(block.kind, Delta)]
    covered: set[int] = set()
    longest: Block | None = None
    for block in sorted(deltas, key=lambda block: (block.start, -block.end, block.number)):
        same = longest is not None and (block.start, block.end) == (longest.start, longest.end)
        if longest is not None and block.end <= longest.end and not same:
            covered.add(block.number)
        else:
            longest = block
    return covered


_References = dict[PlacedBlock, list[tuple[PlacedBlock, str]]]
"""What each block refers to, and how."""


def _held_by_provenance(going: set[PlacedBlock], roots: GCRoots, provenance: Provenance) -> dict[PlacedBlock, str]:
    """Return why candidate blocks are retained: a retained block refers to them, directly or transitively."""
    references = _physical(roots) if provenance is Provenance.PHYSICAL else _logical(roots)
    held: dict[PlacedBlock, str] = {}
    stays = [place for place in references if place not in going]
    while stays:
        for place, reason in references.get(stays.pop(), ()):
            if place in going and place not in held:
                held[place] = reason
                stays.append(place)
    return held


def _physical(roots: GCRoots) -> _References:
    """Return the blocks that each block was written from."""
    references: _References = defaultdict(list)
    for read, made in sorted(roots.physical):
        references[made].append((read, f"block {made.block} was computed from it"))
    return references


def _reflected(
    roots: GCRoots, bases: Mapping[tuple[str, int], Sequence[PlacedBlock]]
) -> Iterable[tuple[PlacedBlock, PlacedBlock, str]]:
    """Yield the bases that reflect others, by their versions, with those and how (logic evolution, A.1)."""
    by_version: dict[Version, list[PlacedBlock]] = defaultdict(list)
    for (name, point), places in bases.items():
        if (version := roots.states[name].version(point)).entries:
            by_version[version] += places
    for (name, point), places in bases.items():
        for version in roots.states[name].version(point).inputs():
            for read in by_version.get(version, ()):
                for made in places:
                    yield made, read, f"the base of {name} at point {point} reflects it"


def _logical(roots: GCRoots) -> _References:
    """Return the bases of other channels that each base reflects."""
    bases: dict[tuple[str, int], list[PlacedBlock]] = defaultdict(list)
    for name, state in roots.states.items():
        for block in state.blocks:
            if isinstance(block.kind, Base):
                bases[name, state.settled(block.end)].append(PlacedBlock(name, block.number))
    references: _References = defaultdict(list)
    for made, read, reason in _reflected(roots, bases):
        references[made].append((read, reason))
    for item in roots.logical:
        if item.of == item.channel:
            continue
        reason = f"the base of {item.of} at point {item.at} reflects it"
        reflected = bases.get((item.channel, roots.states[item.channel].settled(item.point)), ())
        for made in bases.get((item.of, roots.states[item.of].settled(item.at)), ()):
            references[made].extend((place, reason) for place in reflected)
    return references
