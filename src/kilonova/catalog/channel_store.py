"""Channels in the catalog: declarations, points, and blocks with their placements.

A block is *writing* while a run writes it, and has no placement then; *live* once it was placed; *doomed*, to be
deleted, when its last placement was removed or its run failed; and *gone* once its files were deleted. Placements that
were removed stay recorded, not live, for the history of their channel.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import (
    CTE,
    ColumnElement,
    Row,
    Select,
    Table,
    Text,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from kilonova.catalog import codec, tables
from kilonova.catalog.database import NotCached, Transaction, insert_all, inserted_id, is_among, is_given
from kilonova.catalog.read_cache import CachedChannel, ChannelFingerprint, NamedRows
from kilonova.errors import BrokenInvariant, Conflict, LeaseLost, NotFound, closest_name
from kilonova.model.block import Base, Block, BlockName, Delta, Kind, Statistics
from kilonova.model.channel import Channel, ChannelState, Point, PointState
from kilonova.model.column_rules import STRICT
from kilonova.model.compaction_policy import Policy
from kilonova.model.run import RunState
from kilonova.model.schema import Schema
from kilonova.model.version import Version

LIVE, WRITING, DOOMED, GONE = "live", "writing", "doomed", "gone"
"""States of a block: readable, being written by a run, marked for deletion, deleted."""

_SUFFIX = 6
"""Number of random bytes in the suffix of a block's name, and in the stamp that distinguishes placements."""

_STAMP = 8
"""Number of random bytes in the stamp of a channel, which is unique among all of the channel's states."""

_FEW = 1000
"""Number of points of a channel up to which all of them are reread when one is new."""

_Item = TypeVar("_Item")

_LISTED = 1000
"""Number of points or blocks up to which a brief transaction lists them."""

_RUNNING = RunState.RUNNING.value


def channel_names(tx: Transaction, after: str = "", limit: int | None = None) -> list[str]:
    """Return the names of the channels after a name, sorted, at most `limit`."""
    name = tables.channel.c.name
    return list(tx.connection.execute(select(name).where(name > after).order_by(name).limit(limit)).scalars())


def channel_id(tx: Transaction, name: str) -> int:
    """Return the id of a channel.

    Raises:
        NotFound: there is no such channel.
    """
    if name not in tx.channels:
        found = tx.connection.execute(select(tables.channel.c.id).where(tables.channel.c.name == name)).scalar()
        if found is None:
            raise NotFound("there is no such channel", channel=name, hint=closest_name(name, channel_names(tx)))
        tx.channels[name] = int(found)
    return tx.channels[name]


def look_up_ids(tx: Transaction, names: Iterable[str]) -> None:
    """Look up the ids of channels in one statement, for `channel_id`; names without a channel are passed over."""
    unknown = set(names) - tx.channels.keys()
    if unknown:
        rows = tx.connection.execute(_ids(tx.connection.dialect.name), {"names": list(unknown)})
        tx.channels.update((row.name, row.id) for row in rows)


@cache
def _ids(dialect: str) -> Select[Any]:
    channel = tables.channel.c
    return select(channel.name, channel.id).where(is_given(dialect, channel.name, "names"))


def channel(tx: Transaction, name: str) -> Channel:
    """Return the declaration of a channel.

    Raises:
        NotFound: there is no such channel.
    """
    row = tx.connection.execute(select(tables.channel).where(tables.channel.c.id == channel_id(tx, name))).one()
    return _channel(row)


def _channel(row: Row[Any]) -> Channel:
    return Channel(
        name=row.name,
        schema=None if row.schema is None else codec.schema_from_json(row.schema),
        encoding=codec.encoding_from_json(row.encoding),
        description=row.description or "",
        checks=codec.checks_from_json(row.checks or []),
        watch=None if row.watch is None else codec.directory_from_json(row.watch),
        adopts=bool(row.adopts),
        several_writers=bool(row.several_writers),
        sequence_by=row.sequence_by,
        retention=row.retention,
        rules=STRICT if row.rules is None else codec.rules_from_json(row.rules),
        added=tuple(row.added or ()),
        accepts=row.accepts,
    )


def placed_blocks() -> Select[Any]:
    """Return a query for blocks with their placements, as `block_from` reads them."""
    place = tables.placement.c
    columns = (place.channel_id, place.start, place.end, place.stamp, place.manifest)
    return select(tables.block, *columns).join(tables.placement, place.block_id == tables.block.c.id)


def block_from(row: Row[Any]) -> Block:
    """Return a block from a row of `placed_blocks`."""
    return Block(
        number=row.id,
        kind=kind_from(row),
        schema=codec.schema_from_json(row.schema),
        encoding=codec.block_encoding_from_json(row.encoding),
        columns=codec.schema_from_json(row.columns),
        buckets=row.buckets,
        statistics=Statistics(
            rows=row.rows, bytes=row.bytes, files=row.files, removals=row.removals, net_rows=row.net_rows
        ),
        external=None if row.external is None else codec.external_from_json(row.external),
        suffix=row.suffix or "",
        stored=None if row.stored is None else codec.stored_from_json(row.stored),
        manifest=row.manifest,
    )


def placed_by(records: Table) -> ColumnElement[bool]:
    """Return the condition that joins placements with records of outputs or inputs of runs."""
    place = tables.placement.c
    return (place.channel_id == records.c.channel_id) & (place.block_id == records.c.block_id)


def kind_from(row: Row[Any]) -> Kind:
    """Return the kind of a block, with its points, from the row of its placement."""
    return Base(row.end) if row.start is None else Delta(row.start, row.end)


def channel_state(tx: Transaction, name: str) -> ChannelState:
    """Return a channel with its points and live blocks.

    Raises:
        NotFound: there is no such channel.
    """
    return channel_states(tx, [name])[name]


def channel_states(tx: Transaction, names: Iterable[str] | None = None) -> dict[str, ChannelState]:
    """Return channels by name, each with its points and live blocks; all channels if no names are given.

    Raises:
        NotFound: there is no channel of one of the names.
        NotCached: the transaction is brief, and many points or blocks are to be listed.
    """
    wanted = None if names is None else list(dict.fromkeys(names))
    query = _channels(tx.connection.dialect.name, some=wanted is not None)
    rows = {row.id: row for row in tx.connection.execute(query, {} if wanted is None else {"names": wanted})}
    tx.channels.update((row.name, number) for number, row in rows.items())
    for name in wanted or ():
        channel_id(tx, name)
    known = {number: tx.read.states.get(number) or tx.before.states.get(number) for number in rows}
    states: dict[str, ChannelState] = {}
    fingerprints: dict[int, ChannelFingerprint] = {}
    changed: dict[int, Channel] = {}
    listed = 0
    for number, row in rows.items():
        each = _channel(row)
        fingerprints[number] = ChannelFingerprint(row.stamp, each, row.read, row.origin or 0)
        before = known[number]
        if before is not None and before.fingerprint == fingerprints[number]:
            states[row.name] = before.state
        else:
            changed[number] = each
            last = fingerprints[number].origin
            if before is not None and before.state.points:
                listed += len(before.state.points) + len(before.state.blocks)
                last = before.state.points[-1].number
            listed += max(0, row.newest - last)
    if tx.brief and listed > _LISTED:
        raise NotCached
    since = dict.fromkeys(changed, 0)
    points, blocks = (_points(tx, changed, since), _live(tx, changed)) if changed else ({}, {})
    for number, each in changed.items():
        fingerprint = fingerprints[number]
        states[each.name] = ChannelState(each, points[number], blocks[number], since[number], fingerprint.origin)
        if fingerprint.stamp is not None:
            tx.read.states[number] = CachedChannel(fingerprint, states[each.name])
    return {row.name: states[row.name] for row in rows.values()}


def new_stamp() -> str:
    """Return a stamp for a channel."""
    return secrets.token_hex(_STAMP)


def mark_changed(tx: Transaction, channels: Collection[int] | Select[Any]) -> None:
    """Record that points or live blocks of channels have changed, which invalidates their cached state.

    Args:
        tx: a writing transaction.
        channels: their ids, or a query for them.
    """
    here = tables.channel.c.id.in_(channels)
    tx.connection.execute(update(tables.channel).where(here).values(stamp=new_stamp()))


def mark_written(tx: Transaction, run: int) -> list[str]:
    """Record that the channels have changed on which a run has reserved points, and return their names, sorted."""
    return sorted(tx.connection.execute(_WRITTEN, {"run": run, "new": new_stamp()}).scalars())


_WRITTEN = (
    update(tables.channel)
    .where(tables.channel.c.id.in_(select(tables.point.c.channel_id).where(tables.point.c.run_id == bindparam("run"))))
    .values(stamp=bindparam("new"))
    .returning(tables.channel.c.name)
)


@cache
def _channels(dialect: str, *, some: bool) -> Select[Any]:
    """Return a query for channels, of some names or all, with their lowest cursor, old numbering and newest point.

    These are the columns `read`, `origin` and `newest`.
    """
    channel, cursor, dropped, point = tables.channel.c, tables.cursor.c, tables.dropped.c, tables.point.c
    oldest = select(func.min(cursor.point)).where(cursor.channel_id == channel.id).scalar_subquery()
    past = select(dropped.point).where(dropped.name == channel.name).scalar_subquery()
    newest = select(func.coalesce(func.max(point.number), 0)).where(point.channel_id == channel.id).scalar_subquery()
    columns = (tables.channel, oldest.label("read"), past.label("origin"), newest.label("newest"))
    query = select(*columns).order_by(channel.name)
    return query.where(is_given(dialect, channel.name, "names")) if some else query


def _live(tx: Transaction, channels: Collection[int]) -> dict[int, tuple[Block, ...]]:
    """Return the live blocks of channels, by the channel's id; only blocks that are not cached are read."""
    place = tables.placement.c
    listed = tx.connection.execute(_live_names(tx.connection.dialect.name), {"channels": list(channels)})
    names = {row.channel_id: row.names for row in listed}
    known = {number: _known(tx.before.blocks, tx.read.blocks, number) for number in names}
    changed = {number: names[number].split(",") for number in names if names[number] != known[number].names}
    new = [_numbered(each) for n, some in changed.items() for each in some if each not in known[n].items]
    query = placed_blocks().where(is_among(tx, tables.block.c.id, new), place.channel_id.in_(changed))
    rows = {(row.channel_id, row.id): row for row in (tx.connection.execute(query) if new else ())}
    for number, some in changed.items():
        before = known[number].items
        items = {each: before.get(each) or block_from(rows[number, _numbered(each)]) for each in some}
        ordered = tuple(sorted(items.values(), key=lambda each: each.number))
        tx.read.blocks[number] = known[number] = NamedRows(names[number], items, ordered)
    return {number: known[number].ordered if number in known else () for number in channels}


@cache
def _live_names(dialect: str) -> Select[Any]:
    place = tables.placement.c
    name = cast(place.block_id, Text) + ":" + place.stamp
    return (
        select(place.channel_id, func.aggregate_strings(name, ",").label("names"))
        .where(is_given(dialect, place.channel_id, "channels"), place.live)
        .group_by(place.channel_id)
    )


def _points(tx: Transaction, channels: Mapping[int, Channel], since: dict[int, int]) -> dict[int, tuple[Point, ...]]:
    """Return the needed points of channels, in order; only points that are not cached are read.

    Args:
        tx: an open transaction.
        channels: the channels, by id.
        since: receives the oldest listed point of each channel.
    """
    point, dialect = tables.point.c, tx.connection.dialect.name
    names: dict[int, str] = {}
    for row in tx.connection.execute(_point_names(dialect), {"channels": list(channels)}):
        since[row.id], names[row.id] = row.since, row.names
    known = {number: _known(tx.before.points, tx.read.points, number) for number in names}
    several = {number for number in names if channels[number].several_writers}
    changed = {n: names[n].split(",") for n in names if n in several or names[n] != known[n].names}
    first = {
        number: min(new)
        for number, some in changed.items()
        if (new := [_numbered(each) for each in some if number in several or each not in known[number].items])
    }
    rows: dict[tuple[int, int], Row[Any]] = {}
    few = [number for number in first if len(known[number].items) <= _FEW]
    for number in first.keys() - few:
        query = select(tables.point).where(point.channel_id == number, point.number >= first[number])
        rows |= {(number, row.number): row for row in tx.connection.execute(query)}
    if few:
        found = tx.connection.execute(_needed_points(dialect), {"channels": few})
        rows |= {(row.channel_id, row.number): row for row in found}
    for number, some in changed.items():
        items = {}
        for each in some:
            fresh = rows.get((number, _numbered(each)))
            items[each] = known[number].items[each] if fresh is None else _point(fresh)
        ordered = tuple(sorted(items.values(), key=lambda each: each.number))
        tx.read.points[number] = known[number] = NamedRows(names[number], items, ordered)
    return {number: known[number].ordered if number in known else () for number in channels}


@cache
def _point_names(dialect: str) -> Select[Any]:
    point, bounds = tables.point.c, needed(dialect)
    rewrites, extended = (func.coalesce(cast(each, Text), "") for each in (point.rewrites, point.extended_by))
    state = point.state + rewrites + case((point.withheld, "-"), else_="+") + extended
    name = cast(point.number, Text) + ":" + state + ":" + cast(point.run_id, Text)
    columns = (bounds.c.id, bounds.c.since, func.aggregate_strings(name, ",").label("names"))
    return _listed(bounds, *columns).group_by(bounds.c.id, bounds.c.since)


@cache
def _needed_points(dialect: str) -> Select[Any]:
    return _listed(needed(dialect), tables.point)


def _known(
    before: Mapping[int, NamedRows[_Item]], read: Mapping[int, NamedRows[_Item]], channel: int
) -> NamedRows[_Item]:
    """Return the cached rows of a channel."""
    return read.get(channel) or before.get(channel) or NamedRows()


def _numbered(name: str) -> int:
    """Return the number in the name of a row."""
    return int(name.partition(":")[0])


def _point(row: Row[Any]) -> Point:
    return Point(
        number=row.number,
        state=PointState(row.state),
        version=codec.version_from_json(row.version),
        time=row.time,
        run=row.run_id,
        withheld=bool(row.withheld),
        extended=None if row.extended is None else codec.version_from_json(row.extended),
    )


def _listed(bounds: CTE, *columns: Any) -> Select[Any]:
    """Return a query for columns of the needed points of channels.

    These are the points that are not cancelled, starting with the newest filled one that precedes all live blocks,
    cursors and reserved points; and the newest point. Their number depends on what is retained or still to be read,
    not on the length of the channel's history.
    """
    point = tables.point
    return (
        select(*columns)
        .select_from(point)
        .join(bounds, bounds.c.id == point.c.channel_id)
        .where(
            point.c.number >= bounds.c.since,
            or_(point.c.state != PointState.CANCELLED.value, point.c.number == bounds.c.newest),
        )
    )


def needed(dialect: str | None = None) -> CTE:
    """Return the range of needed points per channel: `id`, the oldest needed point `since`, and `newest`.

    Args:
        dialect: the database's dialect, for the channels whose ids are the parameter `channels`; None for all channels.
    """
    place, cursor, here = tables.placement, tables.cursor, tables.channel.c.id
    point, older = tables.point.alias("ahead"), tables.point.alias("older")
    kept = select(func.min(func.coalesce(place.c.start, place.c.end))).where(place.c.channel_id == here, place.c.live)
    read = select(func.min(cursor.c.point)).where(cursor.c.channel_id == here)
    newest = select(func.max(point.c.number)).where(point.c.channel_id == here)
    reserved = select(func.min(point.c.number)).where(
        point.c.channel_id == here, point.c.state == PointState.RESERVED.value
    )
    ends = select(
        here.label("id"),
        kept.scalar_subquery().label("kept"),
        read.scalar_subquery().label("read"),
        reserved.scalar_subquery().label("reserved"),
        newest.scalar_subquery().label("newest"),
    )
    lows = (ends if dialect is None else ends.where(is_given(dialect, here, "channels"))).cte("lows")
    low = _lesser(_lesser(lows.c.read, lows.c.kept), lows.c.reserved)
    since = select(func.max(older.c.number)).where(
        older.c.channel_id == lows.c.id, older.c.state == PointState.FILLED.value, older.c.number <= low
    )
    bounds = select(lows.c.id, func.coalesce(since.scalar_subquery(), 0).label("since"), lows.c.newest)
    return bounds.cte("needed").prefix_with("MATERIALIZED")  # otherwise it is recomputed for each point


def _lesser(one: ColumnElement[Any], other: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the lesser of two numbers, either of which may be null."""
    return case((one < other, one), else_=func.coalesce(other, one))


def set_schema(tx: Transaction, name: str, schema: Schema) -> None:
    """Record the schema of a channel that was declared without one."""
    tx.connection.execute(
        update(tables.channel).where(tables.channel.c.name == name).values(schema=codec.schema_to_json(schema))
    )


def listed_point(tx: Transaction, state: ChannelState, number: int) -> int:
    """Return the point by which a channel's state lists the rows of a point: 0 before the first filled point.

    A state does not list the oldest points once nothing needs them, so it cannot tell a cancelled first point, which
    is empty, from one whose blocks were collected.
    """
    if not state.origin < number < state.first_retained:
        return number
    point, here = tables.point.c, tables.point.c.channel_id == channel_id(tx, state.channel.name)
    filled = here & (point.state == PointState.FILLED.value) & (point.number <= number)
    first = tx.connection.execute(select(point.number).where(filled).limit(1)).first()
    return 0 if first is None else number


def policy(tx: Transaction, name: str) -> Policy:
    """Return the policy for automatic compaction of a channel.

    Raises:
        NotFound: there is no such channel.
    """
    query = select(tables.channel.c.policy).where(tables.channel.c.id == channel_id(tx, name))
    return codec.policy_from_json(tx.connection.execute(query).scalar())


def set_policy(tx: Transaction, name: str, policy: Policy) -> None:
    """Set the policy for automatic compaction of a channel.

    Raises:
        NotFound: there is no such channel.
    """
    number = channel_id(tx, name)
    tx.connection.execute(
        update(tables.channel).where(tables.channel.c.id == number).values(policy=codec.policy_to_json(policy))
    )


def reserve(tx: Transaction, wanted: Sequence[tuple[int, Iterable[str]]]) -> list[dict[str, int]]:
    """Reserve the next points of channels for runs (Nova, section 4, the data manager).

    The points of a channel that is declared again after it was dropped continue the old numbering.

    Args:
        tx: a writing transaction.
        wanted: the runs, each with the channels on which it writes, each as often as a point is reserved on it.

    Returns:
        For each run the reserved point of each of its channels: the first of several, which are consecutive.
    """
    counts = [(run, Counter(names)) for run, names in wanted]
    every = list(dict.fromkeys(name for _, names in counts for name in names))
    if not every:
        return [{} for _ in wanted]
    last = tx.connection.execute(_last_points(tx.connection.dialect.name), {"names": every})
    newest = {row.name: int(row.last) for row in last}
    look_up_ids(tx, every)
    ids = {name: channel_id(tx, name) for name in every}
    found: list[dict[str, int]] = []
    rows = []
    for run, names in counts:
        found.append({name: newest[name] + 1 for name in names})
        for name, count in names.items():
            for _ in range(count):
                newest[name] += 1
                row = {"channel_id": ids[name], "number": newest[name], "version": [], "run_id": run}
                rows.append(row | {"state": PointState.RESERVED.value})
    insert_all(tx, tables.point, rows)
    mark_changed(tx, list(ids.values()))
    return found


@cache
def _last_points(dialect: str) -> Select[Any]:
    """Return a query for the newest point of channels, which may be that of a dropped one of the same name, or 0."""
    here, dropped = tables.channel.c, tables.dropped.c
    last = select(func.max(tables.point.c.number)).where(tables.point.c.channel_id == here.id).scalar_subquery()
    before = select(dropped.point).where(dropped.name == here.name).scalar_subquery()
    return select(here.name, func.coalesce(last, before, 0).label("last")).where(is_given(dialect, here.name, "names"))


def fill_point(tx: Transaction, name: str, point: int, version: Version) -> None:
    """Fill a reserved point, without marking the channel as changed.

    In a channel of several writers, each of which reports only its own contribution, the version of a point includes
    those of the points before it; later points that are already filled are updated accordingly.

    Raises:
        BrokenInvariant: the version precedes that of an earlier point (logic evolution, 4.1).
    """
    here, number = tables.point.c.channel_id == channel_id(tx, name), tables.point.c.number
    known = (tables.point.c.version, tables.point.c.extended)
    filled = select(number, *known).where(here, tables.point.c.state == PointState.FILLED.value)
    earlier = filled.where(number < point).order_by(number.desc())
    row = tx.connection.execute(earlier.limit(1)).first()
    before = Version() if row is None else codec.version_from_json(row.version)
    if not version.reaches(before):  # otherwise it precedes no other: none of those is preceded by the one before it
        for each in tx.connection.execute(earlier):
            if version.precedes(reached := codec.version_from_json(each.version)):
                problem = f"the channel would go back from {reached} to {version}"
                raise BrokenInvariant(problem).with_context(channel=name, point=point)
    if channel(tx, name).several_writers:
        _add_contribution(tx, name, point, version)
        version = (before if row is None else _reflected(row)).beside(version)
    tx.connection.execute(
        update(tables.point)
        .where(here, number == point)
        .values(state=PointState.FILLED.value, version=codec.version_to_json(version), time=tx.now)
    )


def _reflected(row: Any) -> Version:
    """Return the newest version that a point reflects, from its row."""
    return codec.version_from_json(row.version if row.extended is None else row.extended)


def _add_contribution(tx: Transaction, name: str, point: int, version: Version) -> None:
    """Add what one of several writers has written at a point to the versions of later points that are filled."""
    table = tables.point.c
    here = table.channel_id == channel_id(tx, name)
    after = here, table.state == PointState.FILLED.value, table.number > point
    for each in tx.connection.execute(select(table.number, table.version).where(*after)).all():
        later = codec.version_to_json(codec.version_from_json(each.version).beside(version))
        tx.connection.execute(update(tables.point).where(here, table.number == each.number).values(version=later))


def extend_point(tx: Transaction, name: str, version: Version, run: int, *, before: int) -> None:
    """Record that the relation at the last filled point before one reflects a version, too.

    Args:
        tx: a writing transaction.
        name: the channel.
        version: the version.
        run: the run that has found it, such as one that read more, and changed nothing.
        before: the point; the one that the run had reserved, and has not filled.
    """
    table = tables.point.c
    here = table.channel_id == channel_id(tx, name)
    filled = select(table.number, table.version, table.extended).where(
        here, table.state == PointState.FILLED.value, table.number < before
    )
    row = tx.connection.execute(filled.order_by(table.number.desc()).limit(1)).first()
    if channel(tx, name).several_writers:
        _add_contribution(tx, name, before, version)
        version = version if row is None else _reflected(row).beside(version)
    if row is not None and version != _reflected(row):
        values = {"extended": codec.version_to_json(version), "extended_by": run}
        tx.connection.execute(update(tables.point).where(here, table.number == row.number).values(**values))


def new_block(tx: Transaction, name: str, run: int) -> BlockName:
    """Register a block that a run is about to write, so that leftover files can be found later.

    Returns:
        The block's name, which is unique among all blocks of this and other catalogs.

    Raises:
        LeaseLost: the run has ended, because its lease expired or it was cancelled; files that it wrote now would not
            be cleaned up.
    """
    if tx.connection.execute(select(tables.run.c.state).where(tables.run.c.id == run)).scalar() != _RUNNING:
        raise LeaseLost("the run was taken over by another process", run=run)
    suffix = secrets.token_hex(_SUFFIX)
    result = tx.connection.execute(
        insert(tables.block).values(target_id=channel_id(tx, name), run_id=run, state=WRITING, suffix=suffix)
    )
    return BlockName(inserted_id(result), suffix)


def publish(tx: Transaction, name: str, block: Block) -> None:
    """Place a written block in a channel; it becomes live with its first placement.

    Raises:
        Conflict: the block no longer exists.
    """
    written = (tables.block.c.id == block.number, tables.block.c.state == WRITING)
    values = {"state": LIVE, "target_id": None, **block_columns(block)}
    connection = tx.connection
    if not connection.execute(update(tables.block).where(*written).values(values)).rowcount:
        state = connection.execute(select(tables.block.c.state).where(tables.block.c.id == block.number)).scalar()
        if state != LIVE:
            raise Conflict("a block that the run shares with another was deleted", hint="Run it again")
    place(tx, channel_id(tx, name), block)


def place(tx: Transaction, channel: int, block: Block) -> None:
    """Record the placement of a live block in a channel."""
    tx.connection.execute(
        insert(tables.placement).values(
            channel_id=channel,
            block_id=block.number,
            start=None if isinstance(block.kind, Base) else block.kind.start,
            end=block.end,
            live=True,
            stamp=secrets.token_hex(_SUFFIX),
            manifest=block.manifest,
        )
    )
    mark_changed(tx, [channel])


def mark_merged(tx: Transaction, name: str, deltas: Sequence[int], into: int) -> None:
    """Record that deltas were merged: sums over the blocks of a channel count only the merged delta.

    Args:
        tx: a writing transaction.
        name: the channel.
        deltas: their numbers.
        into: the number of the merged delta.
    """
    tx.connection.execute(update(tables.placement).where(*_placements(tx, name, deltas)).values(merged_into=into))


def _placements(tx: Transaction, name: str, blocks: Iterable[int]) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that select the placements of blocks in a channel."""
    place = tables.placement.c
    return place.channel_id == channel_id(tx, name), is_among(tx, place.block_id, blocks)


def block_columns(block: Block) -> dict[str, Any]:
    """Return the columns of the row of a written block that describe its content."""
    return {
        "schema": codec.schema_to_json(block.schema),
        "encoding": codec.encoding_to_json(block.encoding),
        "columns": codec.schema_to_json(block.columns),
        "buckets": block.buckets,
        "rows": block.statistics.rows,
        "bytes": block.statistics.bytes,
        "files": block.statistics.files,
        "removals": block.statistics.removals,
        "net_rows": block.statistics.net_rows,
        "external": None if block.external is None else codec.external_to_json(block.external),
        "stored": None if block.stored is None else codec.stored_to_json(block.stored),
    }


def remove_blocks(tx: Transaction, name: str, blocks: Iterable[int]) -> list[BlockName]:
    """Remove blocks from a channel; those that are placed nowhere else are marked for deletion.

    Returns:
        The blocks marked for deletion: they are no longer readable, and their files are to be deleted after this
        transaction has committed.
    """
    numbers = list(blocks)
    tx.connection.execute(update(tables.placement).where(*_placements(tx, name, numbers)).values(live=False))
    mark_changed(tx, [channel_id(tx, name)])
    return _doom_unplaced(tx, numbers)


def _doom_unplaced(tx: Transaction, blocks: Collection[int]) -> list[BlockName]:
    """Mark those of some blocks for deletion that are no longer placed in any channel."""
    block, placed = tables.block, tables.placement.c
    elsewhere = select(placed.block_id).where(placed.block_id == block.c.id, placed.live).exists()
    query = select(block.c.id, block.c.suffix).where(is_among(tx, block.c.id, blocks), block.c.state == LIVE)
    names = [BlockName(row.id, row.suffix or "") for row in tx.connection.execute(query.where(~elsewhere))]
    _mark(tx, [name.number for name in names], DOOMED)
    return names


def pinned(tx: Transaction) -> dict[int, list[str]]:
    """Return the holders of pins, by block number."""
    found: dict[int, list[str]] = {}
    for row in tx.connection.execute(select(tables.pin).where(tables.pin.c.until >= tx.now)):
        for number in codec.numbers_from_json(row.blocks):
            found.setdefault(number, []).append(row.holder)
    return found


def marked_for_deletion(tx: Transaction) -> list[BlockName]:
    """Return the blocks marked for deletion that are not pinned, as those of a dropped channel may still be."""
    rows = tx.connection.execute(_DOOMED).all()
    read = pinned(tx) if rows else {}
    return [BlockName(row.id, row.suffix or "") for row in rows if row.id not in read]


_DOOMED = (
    select(tables.block.c.id, tables.block.c.suffix).where(tables.block.c.state == DOOMED).order_by(tables.block.c.id)
)


def mark_deleted(tx: Transaction, numbers: Iterable[int]) -> None:
    """Record that the files of blocks that were marked for deletion have been deleted."""
    _mark(tx, numbers, GONE)


def _mark(tx: Transaction, numbers: Iterable[int], state: str) -> None:
    """Set the state of blocks."""
    some = is_among(tx, tables.block.c.id, numbers)
    tx.connection.execute(update(tables.block).where(some).values(state=state))


def block_states(tx: Transaction, names: Sequence[BlockName] | None = None) -> dict[BlockName, str]:
    """Return the states of blocks that this catalog has registered; of all its blocks if no names are given."""
    query = select(tables.block.c.id, tables.block.c.suffix, tables.block.c.state)
    if names is None:
        return {BlockName(row.id, row.suffix or ""): row.state for row in tx.connection.execute(query)}
    these = query.where(is_among(tx, tables.block.c.id, [name.number for name in names]))
    found = {BlockName(row.id, row.suffix or ""): row.state for row in tx.connection.execute(these)}
    return {name: found[name] for name in names if name in found}


def drop_channel(tx: Transaction, name: str) -> list[tuple[BlockName, str]]:
    """Drop a channel with its points, placements, cursors, files, ingest keys and bounds.

    Its blocks that are placed in no other channel are marked for deletion.

    Returns:
        The other blocks, with the digests of the manifests of their placements in the channel.
    """
    number, state = channel_id(tx, name), channel_state(tx, name)
    connection = tx.connection
    connection.execute(delete(tables.dropped).where(tables.dropped.c.name == name))
    connection.execute(insert(tables.dropped).values(name=name, point=state.latest))
    for table in (
        tables.run_output,
        tables.run_input,
        tables.run_input_block,
        tables.cursor,
        tables.point,
        tables.placement,
        tables.file,
        tables.ingest_key,
        tables.bound,
    ):
        connection.execute(delete(table).where(table.c.channel_id == number))
    connection.execute(update(tables.block).where(tables.block.c.target_id == number).values(target_id=None))
    _doom_unplaced(tx, [block.number for block in state.blocks])
    connection.execute(delete(tables.channel).where(tables.channel.c.id == number))
    del tx.channels[name]
    states = block_states(tx, [block.name for block in state.blocks])
    return [(b.name, b.manifest) for b in state.blocks if b.manifest is not None and states.get(b.name) == LIVE]
