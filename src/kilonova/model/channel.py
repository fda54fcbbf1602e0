"""A channel is a named, time-varying relation: a chain of points with blocks between them.

Point 0 is the empty relation. Points are reserved in the order in which runs start, then filled or
cancelled; a cancelled point equals the one before it. Readers see points up to the lowest one still
reserved (Nova, footnote 7).
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Literal

from kilonova.errors import DeclarationError, NotFound
from kilonova.model.block import Base, Block, Delta
from kilonova.model.check import Check
from kilonova.model.column_rules import STRICT, ColumnRules
from kilonova.model.encoding import (
    Append,
    Changes,
    Custom,
    Encoding,
    Removal,
    Upsert,
    check_encoding,
    check_sequence,
    has_diff,
    is_append_only,
    key_of,
    merge_encoding,
    name_of,
)
from kilonova.model.point_ranges import describe_points
from kilonova.model.read_plan import ChangesRead, DeltaRead, DiffRead, ReadPlan, SnapshotRead
from kilonova.model.schema import Schema, check_names
from kilonova.model.version import Version
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.model.widening import is_wider

BlockType = Literal["base", "delta"]
"""Type of blocks: whole relations, or changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A channel as declared.

    Attributes:
        name: the name, unique within a catalog.
        schema: the relation's columns; None until the first run of the task that writes it determines them.
        encoding: the encoding of its deltas, unless a block has its own.
        description: a description of its contents, for display.
        checks: conditions that its rows satisfy at every point since the checks were added.
        watch: the directory whose files are ingested into it, if it is a source channel.
        adopts: whether no columns were declared, so that it takes the columns of the rows that its task returns.
        several_writers: whether several tasks and ingests may write it, each writing deltas at its own points.
        sequence_by: the column that orders the rows of a key: an ingested row replaces no row with a higher value. None
            if the row that is ingested last replaces the others.
        retention: seconds for which its points stay readable; None if they do only as long as their blocks are needed.
        rules: the rules for the columns of ingested rows.
        added: the names of columns that ingests have added to those that were declared.
        accepts: the only type of blocks that its readers accept; None if they accept both (asynchronous scheduling, 5).

    Raises:
        DeclarationError: the name, the schema or the encoding is invalid.
    """

    name: str
    schema: Schema | None
    encoding: Encoding
    description: str = ""
    checks: tuple[Check, ...] = ()
    watch: WatchedDirectory | None = None
    adopts: bool = False
    several_writers: bool = False
    sequence_by: str | None = None
    retention: float | None = None
    rules: ColumnRules = STRICT
    added: tuple[str, ...] = ()
    accepts: BlockType | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise DeclarationError(
                f"{self.name!r} is not a valid name",
                hint="Use letters, digits and underscores, starting with a letter",
            )
        if self.checks and not isinstance(self.encoding, Append | Upsert | Changes):
            raise DeclarationError(
                f"checks are not supported by the encoding {name_of(self.encoding)}, whose deltas are not rows",
                channel=self.name,
                hint="Declare the checks on a view of the channel",
            )
        try:
            if self.schema is not None:
                check_names(self.schema)
                check_encoding(self.encoding, self.schema)
                check_sequence(self.sequence_by, self.encoding, self.schema)
            self.rules.check(self.schema, self.encoding, several_writers=self.several_writers)
        except DeclarationError as error:
            raise error.with_context(channel=self.name) from None
        if self.sequence_by is not None and (self.schema is None or self.several_writers):
            raise DeclarationError(
                "sequence_by requires declared columns and a channel that only ingests write",
                channel=self.name,
                hint="Declare the columns, and leave out several_writers",
            )

    @property
    def key(self) -> tuple[str, ...]:
        """The declared key, empty if there is none."""
        return key_of(self.encoding)

    def fits_alike(self, other: Channel) -> bool:
        """Return whether the same rows can be ingested into this channel as into another declaration of it."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in ("schema", "encoding", "checks", "sequence_by", "rules")
        )


def declared_output(channel: Channel, output: Channel) -> Channel:
    """Return a channel whose rows are declared as those of another one: its columns, encoding and checks."""
    return replace(channel, schema=output.schema, encoding=output.encoding, checks=output.checks, adopts=output.adopts)


class PointState(enum.Enum):
    """State of a point: `RESERVED → FILLED | CANCELLED`."""

    RESERVED = "reserved"
    FILLED = "filled"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A numbered state of a channel: Nova's sequence number.

    Attributes:
        number: 1, 2, 3, …; point 0 is the empty relation and is not recorded.
        state: reserved, filled or cancelled.
        version: the version that it reflects; empty unless filled.
        time: time at which it was filled or cancelled; None while reserved.
        run: the run that reserved it.
        withheld: whether readers are not given it, because it violates a bound on inconsistency.
        extended: the version that it reflects as well, because runs have read more since, and changed nothing; None if
            there were none.
    """

    number: int
    state: PointState
    version: Version
    time: datetime | None
    run: int
    withheld: bool = False
    extended: Version | None = None

    @property
    def reflected(self) -> Version:
        """The newest version that it reflects."""
        return self.version if self.extended is None else self.extended


def _number(point: Point) -> int:
    return point.number


@dataclass(frozen=True)
class ChannelState:
    """A channel with its points and live blocks, as seen by one reader at one moment.

    Attributes:
        channel: the declaration.
        points: points in order; cancelled ones other than the latest may be left out, and those before
            `first_retained`.
        blocks: the live blocks, in any order.
        first_retained: the oldest point that is listed, if older ones are left out because nothing needs them any
            more; else 0.
        origin: the newest point of dropped channels of the same name, after which this channel's numbers continue;
            else 0.
    """

    channel: Channel
    points: tuple[Point, ...]
    blocks: tuple[Block, ...]
    first_retained: int = 0
    origin: int = 0

    @property
    def latest(self) -> int:
        """The newest point in any state; `origin` if there is none."""
        return self.points[-1].number if self.points else self.origin

    @cached_property
    def latest_readable(self) -> int:
        """The newest readable point: the one below the lowest that is still reserved."""
        reserved = (point.number - 1 for point in self.points if point.state is PointState.RESERVED)
        return next(reserved, self.latest)

    @property
    def latest_distinct(self) -> int:
        """The newest readable point that is not cancelled."""
        return self.settled(self.latest_readable)

    @cached_property
    def latest_kept(self) -> int:
        """The newest point that readers are given: the newest readable one, unless it is withheld.

        Then it is the newest of those that can be read and are not; 0 if there is none.
        """
        if not self.is_withheld(self.latest_readable):
            return self.latest_readable
        return max((point.number for point in self.readable_points if not point.withheld), default=0)

    def is_withheld(self, number: int) -> bool:
        """Return whether readers are not given a point, because it violates a bound on inconsistency."""
        settled = self.settled(number)
        return bool(settled) and self.points[bisect_left(self.points, settled, key=_number)].withheld

    def settled(self, number: int) -> int:
        """Return the oldest point that equals point `number`, skipping cancelled points backwards."""
        if (found := self._settled.get(number)) is not None:
            return found
        index = bisect_right(self.points, number, key=_number)
        while index and self.points[index - 1].state is PointState.CANCELLED:
            index -= 1
        return self.points[index - 1].number if index else 0

    @cached_property
    def _settled(self) -> dict[int, int]:
        """Mapping of each listed point to the oldest point that equals it."""
        settled, last = {}, 0
        for point in self.points:
            if point.state is not PointState.CANCELLED:
                last = point.number
            settled[point.number] = last
        return settled

    @property
    def current(self) -> Channel:
        """The channel with its current schema, and with the encoding of its rows if that has no declared key yet."""
        return self.channel_with(self.schema_at(self.latest_readable))

    def channel_with(self, schema: Schema | None) -> Channel:
        """Return the channel with columns of its newest rows, and with their encoding if they lack the declared key."""
        encoding = self.channel.encoding
        if schema is not None and not {*key_of(encoding)} <= {*schema.names}:  # it was redeclared, and not recomputed
            encoding = self.snapshot(self.latest_readable).encoding
        return replace(self.channel, schema=schema, encoding=encoding)

    @property
    def committed(self) -> Version:
        """The version that the newest filled point reflects, readable or not: all that has been written."""
        filled = (point for point in reversed(self.points) if point.state is PointState.FILLED)
        return next((point.reflected for point in filled), Version())

    @property
    def size(self) -> int:
        """The size in bytes of the blocks of the newest readable snapshot."""
        return sum(block.statistics.bytes for block in self.snapshot(self.latest_readable).blocks)

    @property
    def has_weighted_deltas(self) -> bool:
        """Return whether the newest readable snapshot is a base and strong deltas, which are summed without a merge."""
        kinds = {type(block.encoding) for block in self.snapshot(self.latest_readable).deltas}
        return Changes in kinds and kinds <= {Append, Changes}

    @property
    def stored_schema(self) -> Schema | None:
        """The columns of the newest readable snapshot, state columns included."""
        return self.snapshot(self.latest_readable).complete.schema

    def is_equivalent(self, one: int, other: int) -> bool:
        """Return whether two points are equal by construction: only cancelled points lie between them."""
        return self.settled(one) == self.settled(other)

    def version(self, number: int) -> Version:
        """Return the version that a point reflects; the empty version for point 0."""
        settled = self.settled(number)
        return self.points[bisect_left(self.points, settled, key=_number)].version if settled else Version()

    def reflected(self, number: int) -> Version:
        """Return the newest version that a point reflects: runs may have read more since, and changed nothing.

        What is computed from the point has its `version`, so that all of it agrees.
        """
        settled = self.settled(number)
        return self.points[bisect_left(self.points, settled, key=_number)].reflected if settled else Version()

    def schema_at(self, number: int) -> Schema | None:
        """Return the relation's schema at a point: the declared one at the newest, that of a block at earlier ones.

        Until a task has recomputed a redeclared channel, the newest point has the schema of its block as well, if that
        block has another key.
        """
        settled, declared = self.settled(number), self.channel.schema
        block = next(iter(self._ends.get(settled, ())), None)
        if block is None or (
            declared is not None and settled == self.latest_distinct and self._keyed_alike(block, declared)
        ):
            return declared
        return block.schema

    def has_other_key(self, number: int) -> bool:
        """Return whether the relation at a point has another key than now, so that their rows cannot be merged."""
        points = {self.settled(number), self.latest_distinct}
        blocks = [next(iter(self._ends.get(point, ())), None) for point in points]
        keys = {_key_columns(block) for block in blocks if block is not None}
        return len(keys) > 1

    def written_schema(self, number: int) -> Schema | None:
        """Return the columns with which the relation was written at a point: S(C, V) (logic evolution, section 3.3).

        A column whose type was widened since has the type with which it is read. None for points whose blocks are gone.
        """
        settled = self.settled(number)
        if settled not in self._written_schemas:
            blocks = self._ends.get(settled)
            first = None if not blocks else min(blocks, key=lambda block: block.number)
            self._written_schemas[settled] = None if first is None else self._widened(first.schema.user_columns)
        return self._written_schemas[settled]

    @cached_property
    def _written_schemas(self) -> dict[int, Schema | None]:
        """Cache of the columns of points that have been requested."""
        return {}

    def _widened(self, written: Schema) -> Schema:
        """Return the columns of a block with the wider types that the channel declares for them."""
        declared = {c.identity: c.type for c in (self.channel.schema.columns if self.channel.schema else ())}
        types = (declared.get(column.identity, column.type) for column in written.columns)
        return Schema(
            tuple(
                replace(column, type=kind) if is_wider(kind, column.type) else column
                for column, kind in zip(written.columns, types, strict=True)
            )
        )

    def has_other_columns(self, block: Block) -> bool:
        """Return whether a block that follows the newest readable point has other columns, or types, than that."""
        written = self.written_schema(self.latest_readable)
        if written is None:
            return False
        before, after = ({(c.name, c.type) for c in s.columns} for s in (written, block.schema.user_columns))
        return before != after

    @property
    def has_ingests(self) -> bool:
        """Return whether rows were ingested into the channel, so that it is a source."""
        return any(path == (self.channel.name,) for path, _ in self.committed.entries)

    def _keyed_alike(self, block: Block, declared: Schema) -> bool:
        """Return whether a block can be merged as one of a relation with the declared columns and key."""
        key = {*key_of(block.encoding), *key_of(self.channel.encoding)}
        stored, wanted = ({c for c in schema.columns if c.name in key} for schema in (block.schema, declared))
        return stored == wanted

    def up_to(self, number: int) -> ChannelState:
        """Return this channel as a task sees it that reads it only up to a point, in its present declaration.

        Raises:
            NotFound: the point is not readable, or has been collected.
        """
        self._check(number)
        if number >= self.latest_readable:
            return self
        points = self.points[: bisect_right(self.points, number, key=_number)]
        if number and (not points or points[-1].number < number):  # a cancelled point may be left out
            points += (Point(number=number, state=PointState.CANCELLED, version=Version(), time=None, run=0),)
        return replace(self, points=points, blocks=tuple(b for b in self.blocks if self.settled(b.end) <= number))

    def with_block(self, block: Block, version: Version, run: int) -> ChannelState:
        """Return this channel as a later task of the same run sees it: the run's own point filled by `block`.

        Points below it that other runs have reserved count as cancelled, unless there are several writers: then it
        cannot be read yet. Points above it are not visible.
        """
        number = block.end
        own = Point(number=number, state=PointState.FILLED, version=version, time=None, run=run)
        below = tuple(other for other in self.blocks if other.end < number)
        channel = replace(self.channel, schema=block.schema) if self.channel.adopts else self.channel
        return replace(self, channel=channel, points=(*self._before(number), own), blocks=(*below, block))

    def with_extension(self, number: int, version: Version) -> ChannelState:
        """Return this channel as a later task of the same run sees it: what was read for a point changed nothing."""
        before = [place for place, p in enumerate(self.points) if p.state is PointState.FILLED and p.number < number]
        if not before:
            return self
        points = list(self.points)
        points[before[-1]] = replace(points[before[-1]], extended=version)
        return replace(self, points=tuple(points))

    def with_cancelled(self, number: int, run: int) -> ChannelState:
        """Return this channel as a later task of the same run sees it: the run's own point cancelled."""
        own = Point(number=number, state=PointState.CANCELLED, version=Version(), time=None, run=run)
        return replace(self, points=(*self._before(number), own))

    def _before(self, number: int) -> tuple[Point, ...]:
        """Return the points before one of a run's own, as that run sees them."""
        kept = self.channel.several_writers
        return tuple(p for p in self.points if p.number < number and (kept or p.state is not PointState.RESERVED))

    def path(self, start: int, end: int, encoding: Encoding | None = None) -> tuple[Block, ...] | None:
        """Return the shortest path of delta blocks from one point to another, or None if there is none.

        Args:
            start: the one point.
            end: the other one.
            encoding: the encoding in which all deltas of the path can be read; None for any.
        """
        goal = self.settled(end)
        begin = self.settled(start)
        came: dict[int, tuple[int, Block] | None] = {begin: None}
        frontier = [begin]
        while frontier and goal not in came:
            reached: list[int] = []
            for number in frontier:
                for block in self._steps.get(number, ()):
                    end = self.settled(block.end)
                    usable = encoding is None or encoding in (block.encoding, merge_encoding(block.encoding))
                    if usable and end not in came and end <= goal:
                        came[end] = (number, block)
                        reached.append(end)
            frontier = reached
        if goal not in came:
            return None
        path: list[Block] = []
        while (step := came[goal]) is not None:
            goal = step[0]
            path.append(step[1])
        return tuple(reversed(path))

    @cached_property
    def _steps(self) -> dict[int, list[Block]]:
        """The delta blocks that start at each point, keyed by the oldest point that equals it."""
        steps: dict[int, list[Block]] = {}
        for block in self.blocks:
            if isinstance(block.kind, Delta):
                steps.setdefault(self.settled(block.kind.start), []).append(block)
        return steps

    @cached_property
    def _ends(self) -> dict[int, list[Block]]:
        """The blocks that end at each point, keyed by the oldest point that equals it."""
        ends: dict[int, list[Block]] = {}
        for block in self.blocks:
            ends.setdefault(self.settled(block.end), []).append(block)
        return ends

    @cached_property
    def _snapshots(self) -> dict[int, SnapshotRead]:
        """Cache of the snapshots that have been requested."""
        return {}

    def snapshot(self, at: int) -> SnapshotRead:
        """Return the read plan of the relation at a point, from the newest base that leads there.

        Raises:
            NotFound: the point is not readable, or has been collected.
        """
        if at not in self._snapshots:
            self._snapshots[at] = self._assembled(at)
        return self._snapshots[at]

    def as_written(self, at: int) -> SnapshotRead:
        """Return the read plan of the relation at a point, with the columns that it had when it was written.

        They have the names that the channel declares for them.

        Raises:
            NotFound: the point is not readable, or has been collected.
        """
        found, declared = self.snapshot(at), self.channel.schema
        newest = next(reversed(found.blocks), None)
        if newest is None:
            return found
        names = {} if declared is None else newest.schema.new_names(declared)
        return replace(found, schema=newest.schema.renamed(names))

    def _assembled(self, at: int) -> SnapshotRead:
        """Assemble a snapshot; see `snapshot`."""
        self._check(at)
        bases = sorted(
            (b for b in self.blocks if isinstance(b.kind, Base) and self.settled(b.end) <= at),
            key=lambda block: (-block.end, block.external is not None),
        )
        schema = self.schema_at(at)
        for base in bases:
            deltas = self.path(base.end, at)
            if deltas is not None:
                return SnapshotRead(
                    at=at, schema=schema, encoding=self._encoding_of(base, *deltas), base=base, deltas=deltas
                )
        deltas = self.path(0, at)
        if deltas is None:
            raise self._collected(at)
        return SnapshotRead(at=at, schema=schema, encoding=self._encoding_of(*deltas), base=None, deltas=deltas)

    def _encoding_of(self, *blocks: Block) -> Encoding:
        """Return the encoding of a relation: the declared one, unless its blocks have another key."""
        declared = self.channel.encoding
        return blocks[0].row_encoding if blocks and key_of(blocks[0].encoding) != key_of(declared) else declared

    @cached_property
    def readable_points(self) -> tuple[Point, ...]:
        """The filled points that can be read, in order: those to which deltas lead from a base, or from point 0."""
        frontier = [0, *(self.settled(block.end) for block in self.blocks if isinstance(block.kind, Base))]
        reached = set(frontier)
        while frontier:
            for block in self._steps.get(frontier.pop(), ()):
                if (end := self.settled(block.end)) not in reached:
                    reached.add(end)
                    frontier.append(end)
        return tuple(
            point
            for point in self.points
            if point.state is PointState.FILLED
            and point.number in reached
            and self.first_retained <= point.number <= self.latest_readable
        )

    @cached_property
    def readable_ranges(self) -> tuple[tuple[int, int], ...]:
        """The first and the last number of each range of points that can be read, in order; 0 always can.

        A cancelled point can be read if the one that it equals can.
        """
        readable = {point.number for point in self.readable_points}
        filled = [p.number for p in self.points if p.state is PointState.FILLED and p.number <= self.latest_readable]
        ends = [number - 1 for number in filled[1:]] + [self.latest_readable]
        begun = (filled or [self.latest_readable + 1])[0]
        ranges = [(0, 0 if self.first_retained or self.origin else begun - 1)]
        for first, last in zip(filled, ends, strict=False):
            if first not in readable:
                continue
            before = ranges[-1]
            ranges[-1:] = [(before[0], last)] if before[1] == first - 1 else [before, (first, last)]
        return tuple(ranges)

    def delta(self, start: int, end: int) -> ReadPlan:
        """Return the read plan of the change between two points in the channel's own encoding (mode NEW).

        Deltas are chained where deltas of that encoding lead from one point to the other; else snapshots are diffed.

        Raises:
            NotFound: a point is not readable, or garbage collection has left neither way.
        """
        self._check(start)
        self._check(end)
        encoding = self.channel.encoding
        path = self.path(start, end, encoding)
        if path is not None:
            return DeltaRead(start=start, end=end, schema=self.schema_at(end), encoding=encoding, deltas=path)
        return DiffRead(old=self.snapshot(start), new=self.snapshot(end), encoding=encoding)

    def changes(self, start: int, end: int) -> ReadPlan:
        """Return the read plan of the change between two points as a strong delta (mode CHANGES)."""
        self._check(start)
        self._check(end)
        path = self.path(start, end)
        if path is not None and any(isinstance(block.encoding, Removal) for block in path):
            path = None
        schema = self.schema_at(end)
        if path is not None and all(isinstance(block.encoding, Changes | Append) for block in path):
            return DeltaRead(start=start, end=end, schema=schema, encoding=Changes(), deltas=path)
        old = self.snapshot(start)
        encodings = {merge_encoding(block.row_encoding) for block in path or ()}
        if path and len(encodings) == 1 and old.blocks:
            chain = DeltaRead(start=start, end=end, schema=schema, encoding=encodings.pop(), deltas=path)
            return ChangesRead(old=old, delta=chain)
        return DiffRead(old=old, new=self.snapshot(end), encoding=Changes())

    def can_say(self, start: int, end: int) -> bool:
        """Return whether the channel's own encoding can express the change between two points (mode NEW).

        Deltas of that encoding can. Where there are none, because the relation was recomputed, the difference of the
        two snapshots can, unless rows may have been removed that the encoding cannot remove, the channel had another
        encoding at the first point, whose deltas are interpreted differently, or garbage collection took the first.
        """
        encoding = self.channel.encoding
        if self.settled(start) == 0 and not isinstance(encoding, Custom):
            return True
        try:
            if isinstance(self.delta(start, end), DeltaRead):
                return True
        except NotFound:
            return False
        return has_diff(encoding) and not self._encoded_otherwise(start)

    def _encoded_otherwise(self, number: int) -> bool:
        """Return whether the channel had another encoding at a point; strong deltas occur in channels of any."""
        ends = self._ends.get(self.settled(number), ())
        found = {block.encoding for block in ends if not isinstance(block.encoding, Removal | Changes)}
        return not found <= {self.channel.encoding}

    def may_remove(self, start: int, end: int) -> bool:
        """Return whether the change between two points may remove rows (mode INSERTS requires that it does not)."""
        if self.settled(start) == 0:
            return False
        path = self.path(start, end)
        if path is None:
            return True
        return any(not is_append_only(block.encoding) and block.removes for block in path)

    def _collected(self, number: int) -> NotFound:
        return NotFound(
            "the point can no longer be read: its blocks were garbage-collected",
            channel=self.channel.name,
            point=number,
            hint=self._readable(),
        )

    def _check(self, number: int) -> None:
        if 0 < number < self.origin:
            raise NotFound(
                "the point belonged to a dropped channel of the same name",
                channel=self.channel.name,
                point=number,
                hint=f"The points of the present channel are numbered from {self.origin + 1}",
            )
        if 0 < number < self.first_retained:
            raise self._collected(number)
        if not 0 <= number <= self.latest_readable:
            raise NotFound(
                "there is no such point to read",
                channel=self.channel.name,
                point=number,
                hint=self._readable(),
            )

    def _readable(self) -> str:
        """Return which points can be read, as a hint."""
        if self.readable_ranges == ((0, 0),):
            return "Only point 0, the empty relation, can be read"
        return f"The readable points are {describe_points(self.readable_ranges)}"


def _key_columns(block: Block) -> frozenset[tuple[str, tuple[str, int]]]:
    """Return the names and identities of the columns by which a block is laid out."""
    key = {*key_of(block.encoding)}
    return frozenset((column.name, column.identity) for column in block.schema.columns if column.name in key)
