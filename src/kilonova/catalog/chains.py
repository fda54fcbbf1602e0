"""Channels as the catalog keeps them: declarations, points and live blocks."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    CTE,
    ColumnElement,
    Row,
    Select,
    Text,
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
from kilonova.catalog.database import Transaction, inserted
from kilonova.catalog.remembered import Listed
from kilonova.errors import LeaseLost, UnknownName, closest
from kilonova.model.block import Base, Block, BlockName, Delta, Kind, Statistics
from kilonova.model.channel import Channel, Chronicle, Point, PointState
from kilonova.model.policy import Policy
from kilonova.model.run import RunState
from kilonova.model.schema import Schema
from kilonova.model.version import Version

LIVE, WRITING, DOOMED, GONE = "live", "writing", "doomed", "gone"
"""A block's states: being written by a run, readable, to be deleted, deleted."""

_SUFFIX = 6
"""Of how many random bytes the suffix of a block's name is made."""

_AT_ONCE = 10_000
"""How many parameters a statement is given at most."""

_FEW = 1000
"""Up to how many points a channel has that are read all together where one is new."""

_Item = TypeVar("_Item")

_RUNNING = RunState.RUNNING.value


def channel_names(tx: Transaction, after: str = "", limit: int | None = None) -> list[str]:
    """The names of the channels, sorted: those after a name, and at most so many."""
    name = tables.channel.c.name
    return list(tx.connection.execute(select(name).where(name > after).order_by(name).limit(limit)).scalars())


def channel_id(tx: Transaction, name: str) -> int:
    """The catalog's number of a channel.

    Raises:
        UnknownName: there is no such channel.
    """
    if name not in tx.channels:
        found = tx.connection.execute(select(tables.channel.c.id).where(tables.channel.c.name == name)).scalar()
        if found is None:
            raise UnknownName("there is no such channel", channel=name, hint=closest(name, channel_names(tx)))
        tx.channels[name] = int(found)
    return tx.channels[name]


def channel(tx: Transaction, name: str) -> Channel:
    """A channel's declaration.

    Raises:
        UnknownName: there is no such channel.
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
    )


def block_from(row: Row[Any]) -> Block:
    """A block from its row."""
    return Block(
        number=row.id,
        kind=kind_from(row),
        schema=codec.schema_from_json(row.schema),
        encoding=codec.encoding_from_json(row.encoding),
        columns=codec.schema_from_json(row.columns),
        buckets=row.buckets,
        statistics=Statistics(rows=row.rows, bytes=row.bytes, files=row.files, removals=row.removals),
        external=None if row.external is None else codec.external_from_json(row.external),
        suffix=row.suffix or "",
        stored=None if row.stored is None else codec.stored_from_json(row.stored),
        manifest=row.manifest,
    )


def kind_from(row: Row[Any]) -> Kind:
    """Which points a block leads to, from its row."""
    return Base(row.end) if row.start is None else Delta(row.start, row.end)


def chronicle(tx: Transaction, name: str) -> Chronicle:
    """A channel with its points and live blocks.

    Raises:
        UnknownName: there is no such channel.
    """
    return chronicles(tx, [name])[name]


def chronicles(tx: Transaction, names: Iterable[str] | None = None) -> dict[str, Chronicle]:
    """Channels by name, each with its points and live blocks; all of them where no names are given.

    Raises:
        UnknownName: a name is not that of a channel.
    """
    query = select(tables.channel).order_by(tables.channel.c.name)
    wanted = None if names is None else list(dict.fromkeys(names))
    if wanted is not None:
        query = query.where(tables.channel.c.name.in_(wanted))
    rows = {row.id: row for row in tx.connection.execute(query)}
    found = {row.name for row in rows.values()}
    for name in wanted or ():
        if name not in found:
            channel_id(tx, name)
    past, since = _dropped(tx, found), dict.fromkeys(rows, 0)
    channels = {number: _channel(row) for number, row in rows.items()}
    points = _points(tx, channels, since)
    blocks = _live(tx, channels)
    return {
        each.name: Chronicle(each, points[number], blocks[number], since[number], past.get(each.name, 0))
        for number, each in channels.items()
    }


def _live(tx: Transaction, channels: Collection[int]) -> dict[int, tuple[Block, ...]]:
    """The live blocks of channels, by number; only those are read that were not read before."""
    block = tables.block.c
    name = cast(block.id, Text) + ":" + func.coalesce(block.suffix, "")
    listed = (
        select(block.channel_id, func.aggregate_strings(name, ",").label("names"))
        .where(block.channel_id.in_(channels), block.state == LIVE)
        .group_by(block.channel_id)
    )
    names = {row.channel_id: row.names for row in tx.connection.execute(listed)}
    known = {number: _known(tx.before.blocks, tx.read.blocks, number) for number in names}
    changed = {number: names[number].split(",") for number in names if names[number] != known[number].names}
    new = [_numbered(each) for n, some in changed.items() for each in some if each not in known[n].items]
    rows: dict[int, Row[Any]] = {}
    for first in range(0, len(new), _AT_ONCE):
        query = select(tables.block).where(block.id.in_(new[first : first + _AT_ONCE]))
        rows |= {row.id: row for row in tx.connection.execute(query)}
    for number, some in changed.items():
        before = known[number].items
        items = {each: before.get(each) or block_from(rows[_numbered(each)]) for each in some}
        ordered = tuple(sorted(items.values(), key=lambda each: each.number))
        tx.read.blocks[number] = known[number] = Listed(names[number], items, ordered)
    return {number: known[number].ordered if number in known else () for number in channels}


def _points(tx: Transaction, channels: Mapping[int, Channel], since: dict[int, int]) -> dict[int, tuple[Point, ...]]:
    """The points of channels that somebody may need, in order; only those are read that were not read before.

    Args:
        tx: an open transaction.
        channels: the channels, by number.
        since: is told the oldest point that is listed of each.
    """
    point, bounds = tables.point.c, needed(channels)
    name = cast(point.number, Text) + ":" + point.state + ":" + cast(point.run_id, Text)
    columns = (bounds.c.id, bounds.c.since, func.aggregate_strings(name, ",").label("names"))
    names: dict[int, str] = {}
    for row in tx.connection.execute(_listed(bounds, *columns).group_by(bounds.c.id, bounds.c.since)):
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
        query = _listed(needed(few), tables.point)
        rows |= {(row.channel_id, row.number): row for row in tx.connection.execute(query)}
    for number, some in changed.items():
        items = {}
        for each in some:
            fresh = rows.get((number, _numbered(each)))
            items[each] = known[number].items[each] if fresh is None else _point(fresh)
        ordered = tuple(sorted(items.values(), key=lambda each: each.number))
        tx.read.points[number] = known[number] = Listed(names[number], items, ordered)
    return {number: known[number].ordered if number in known else () for number in channels}


def _known(before: Mapping[int, Listed[_Item]], read: Mapping[int, Listed[_Item]], channel: int) -> Listed[_Item]:
    """Return what has been read of a channel."""
    return read.get(channel) or before.get(channel) or Listed()


def _numbered(name: str) -> int:
    """Return the number of what has a name."""
    return int(name.partition(":")[0])


def _point(row: Row[Any]) -> Point:
    return Point(
        number=row.number,
        state=PointState(row.state),
        version=codec.version_from_json(row.version),
        time=row.time,
        run=row.run_id,
    )


def _dropped(tx: Transaction, names: Collection[str]) -> dict[str, int]:
    """Newest points of the channels of some names that were dropped, by name."""
    rows = tx.connection.execute(select(tables.dropped))
    return {row.name: row.point for row in rows if row.name in names}


def _listed(bounds: CTE, *columns: Any) -> Select[Any]:
    """Columns of the points of channels that somebody may need.

    Those are points that are not cancelled, from the newest one on that lies before all live blocks, cursors and
    reserved points; and the newest. However long a channel's history is, there are no more of them than of what is
    kept or has yet to be read.
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


def needed(channels: Collection[int] | None = None) -> CTE:
    """From which point on somebody may need a channel, and the newest: `id`, `since` and `newest` of each.

    Args:
        channels: the numbers of the channels; None for all.
    """
    block, cursor, here = tables.block, tables.cursor, tables.channel.c.id
    point, older = tables.point.alias("ahead"), tables.point.alias("older")
    kept = select(func.min(func.coalesce(block.c.start, block.c.end))).where(
        block.c.channel_id == here, block.c.state == LIVE
    )
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
    lows = (ends if channels is None else ends.where(here.in_(channels))).cte("lows")
    low = _lesser(_lesser(lows.c.read, lows.c.kept), lows.c.reserved)
    since = select(func.max(older.c.number)).where(
        older.c.channel_id == lows.c.id, older.c.state == PointState.FILLED.value, older.c.number <= low
    )
    bounds = select(lows.c.id, func.coalesce(since.scalar_subquery(), 0).label("since"), lows.c.newest)
    return bounds.cte("needed").prefix_with("MATERIALIZED")  # or it is reckoned anew for each point


def _lesser(one: ColumnElement[Any], other: ColumnElement[Any]) -> ColumnElement[Any]:
    """Lesser of two numbers, either of which may be null."""
    return case((one < other, one), else_=func.coalesce(other, one))


def set_schema(tx: Transaction, name: str, schema: Schema) -> None:
    """Write down the schema of a channel that was declared without one."""
    tx.connection.execute(
        update(tables.channel).where(tables.channel.c.name == name).values(schema=codec.schema_to_json(schema))
    )


def newest(tx: Transaction, name: str) -> int:
    """The newest readable point of a channel that is filled, found without its blocks; 0 if there is none.

    Raises:
        UnknownName: there is no such channel.
    """
    number, here = tables.point.c.number, tables.point.c.channel_id == channel_id(tx, name)
    first = select(func.min(number)).where(here, tables.point.c.state == PointState.RESERVED.value)
    filled = select(func.max(number)).where(here, tables.point.c.state == PointState.FILLED.value)
    reserved = tx.connection.execute(first).scalar()
    return tx.connection.execute(filled if reserved is None else filled.where(number < reserved)).scalar() or 0


def policy(tx: Transaction, name: str) -> Policy:
    """When a channel is compacted by itself.

    Raises:
        UnknownName: there is no such channel.
    """
    query = select(tables.channel.c.policy).where(tables.channel.c.id == channel_id(tx, name))
    return codec.policy_from_json(tx.connection.execute(query).scalar())


def set_policy(tx: Transaction, name: str, policy: Policy) -> None:
    """Say when a channel is compacted by itself.

    Raises:
        UnknownName: there is no such channel.
    """
    number = channel_id(tx, name)
    tx.connection.execute(
        update(tables.channel).where(tables.channel.c.id == number).values(policy=codec.policy_to_json(policy))
    )


def reserve(tx: Transaction, name: str, run: int) -> int:
    """Reserve the next point of a channel for a run (Nova, section 4, the data manager).

    The points of a channel that is declared again after it was dropped have numbers after the old ones.

    Returns:
        The reserved point.
    """
    number = channel_id(tx, name)
    newest = tx.connection.execute(
        select(tables.point.c.number)
        .where(tables.point.c.channel_id == number)
        .order_by(tables.point.c.number.desc())
        .limit(1)
    ).scalar()
    if newest is None:
        newest = tx.connection.execute(select(tables.dropped.c.point).where(tables.dropped.c.name == name)).scalar()
    reserved = (newest or 0) + 1
    tx.connection.execute(
        insert(tables.point).values(
            channel_id=number, number=reserved, state=PointState.RESERVED.value, version=[], run_id=run
        )
    )
    return reserved


def settle(tx: Transaction, name: str, point: int, state: PointState, version: Version) -> None:
    """Fill or cancel a reserved point.

    In a channel of several writers, of which each says only what it has brought, a point reflects what those before it
    do as well; so do later ones that are filled already.
    """
    if state is PointState.FILLED and channel(tx, name).several_writers:
        here = tables.point.c.channel_id == channel_id(tx, name)
        filled = select(tables.point.c.number, tables.point.c.version).where(
            here, tables.point.c.state == PointState.FILLED.value
        )
        number = tables.point.c.number
        for row in tx.connection.execute(filled.where(number > point)).all():
            later = codec.version_from_json(row.version).beside(version)
            tx.connection.execute(
                update(tables.point).where(here, number == row.number).values(version=codec.version_to_json(later))
            )
        before = tx.connection.execute(filled.where(number < point).order_by(number.desc()).limit(1)).first()
        version = version if before is None else codec.version_from_json(before.version).beside(version)
    tx.connection.execute(
        update(tables.point)
        .where(tables.point.c.channel_id == channel_id(tx, name), tables.point.c.number == point)
        .values(state=state.value, version=codec.version_to_json(version), time=tx.now)
    )


def new_block(tx: Transaction, name: str, run: int) -> BlockName:
    """Name a block that a run is about to write, so that whatever it leaves on disk can be found again.

    Returns:
        The block's name, which no block of this or another catalog has had.

    Raises:
        LeaseLost: the run has ended, because another process took it over or somebody cancelled it; nobody would clean
            up after it again.
    """
    if tx.connection.execute(select(tables.run.c.state).where(tables.run.c.id == run)).scalar() != _RUNNING:
        raise LeaseLost(
            "the run was taken over by another process",
            run=run,
            hint="Its tasks will run again; nothing was published",
        )
    suffix = secrets.token_hex(_SUFFIX)
    result = tx.connection.execute(
        insert(tables.block).values(channel_id=channel_id(tx, name), run_id=run, state=WRITING, suffix=suffix)
    )
    return BlockName(inserted(result), suffix)


def publish(tx: Transaction, name: str, block: Block) -> None:
    """Make a written block of a channel live.

    Raises:
        UnknownName: the channel that it was written for was dropped meanwhile.
    """
    start = None if isinstance(block.kind, Base) else block.kind.start
    result = tx.connection.execute(
        update(tables.block)
        .where(
            tables.block.c.id == block.number,
            tables.block.c.state == WRITING,
            tables.block.c.channel_id == channel_id(tx, name),
        )
        .values(state=LIVE, start=start, **written(block))
    )
    if not result.rowcount:
        raise UnknownName("the channel was dropped while it was being written", channel=name)


def mark_merged(tx: Transaction, deltas: Sequence[int], into: int) -> None:
    """Note that deltas were put together: what is counted by blocks counts the new one only.

    Args:
        tx: a writing transaction.
        deltas: their numbers.
        into: the number of the delta that they became.
    """
    for begin in range(0, len(deltas), _AT_ONCE):
        some = tables.block.c.id.in_(deltas[begin : begin + _AT_ONCE])
        tx.connection.execute(update(tables.block).where(some).values(merged_into=into))


def written(block: Block) -> dict[str, Any]:
    """What a run has written, as columns of the block's row: all but its state, its name and where it starts."""
    return {
        "end": block.end,
        "schema": codec.schema_to_json(block.schema),
        "encoding": codec.encoding_to_json(block.encoding),
        "columns": codec.schema_to_json(block.columns),
        "buckets": block.buckets,
        "rows": block.statistics.rows,
        "bytes": block.statistics.bytes,
        "files": block.statistics.files,
        "removals": block.statistics.removals,
        "external": None if block.external is None else codec.external_to_json(block.external),
        "stored": None if block.stored is None else codec.stored_to_json(block.stored),
        "manifest": block.manifest,
    }


def doom(tx: Transaction, numbers: Iterable[int]) -> None:
    """Take blocks out of sight; their files are deleted after this transaction has committed."""
    _mark(tx, numbers, DOOMED)


def pinned(tx: Transaction) -> dict[int, list[str]]:
    """Who has pinned blocks, by the blocks' numbers."""
    found: dict[int, list[str]] = {}
    for row in tx.connection.execute(select(tables.pin).where(tables.pin.c.until >= tx.now)):
        for number in codec.numbers_from_json(row.blocks):
            found.setdefault(number, []).append(row.holder)
    return found


def doomed(tx: Transaction) -> list[BlockName]:
    """The blocks whose files are to be deleted now: those of a dropped channel only once nobody reads them."""
    query = select(tables.block.c.id, tables.block.c.suffix).where(tables.block.c.state == DOOMED)
    rows = tx.connection.execute(query.order_by(tables.block.c.id)).all()
    read = pinned(tx) if rows else {}
    return [BlockName(row.id, row.suffix or "") for row in rows if row.id not in read]


def bury(tx: Transaction, numbers: Iterable[int]) -> None:
    """Write down that the files of doomed blocks are deleted."""
    _mark(tx, numbers, GONE)


def _mark(tx: Transaction, numbers: Iterable[int], state: str) -> None:
    """Give blocks another state."""
    every = list(numbers)
    for first in range(0, len(every), _AT_ONCE):
        some = tables.block.c.id.in_(every[first : first + _AT_ONCE])
        tx.connection.execute(update(tables.block).where(some).values(state=state))


def block_states(tx: Transaction, names: Sequence[BlockName] | None = None) -> dict[BlockName, str]:
    """The states of blocks, of those that this catalog has named; of all of them where no names are given."""
    query = select(tables.block.c.id, tables.block.c.suffix, tables.block.c.state)
    if names is None:
        return {BlockName(row.id, row.suffix or ""): row.state for row in tx.connection.execute(query)}
    found: dict[BlockName, str] = {}
    for first in range(0, len(names), _AT_ONCE):
        these = query.where(tables.block.c.id.in_([name.number for name in names[first : first + _AT_ONCE]]))
        found |= {BlockName(row.id, row.suffix or ""): row.state for row in tx.connection.execute(these)}
    return {name: found[name] for name in names if name in found}


def drop_channel(tx: Transaction, name: str) -> None:
    """Take a channel out of the catalog, with its points, cursors, files and keys of ingests; its blocks are doomed."""
    number, newest = channel_id(tx, name), chronicle(tx, name).newest
    connection = tx.connection
    connection.execute(delete(tables.dropped).where(tables.dropped.c.name == name))
    connection.execute(insert(tables.dropped).values(name=name, point=newest))
    for table in (
        tables.run_output,
        tables.run_input,
        tables.cursor,
        tables.point,
        tables.file,
        tables.ingest_key,
    ):
        connection.execute(delete(table).where(table.c.channel_id == number))
    connection.execute(
        update(tables.block)
        .where(tables.block.c.channel_id == number, tables.block.c.state == GONE)
        .values(channel_id=None)
    )
    connection.execute(
        update(tables.block).where(tables.block.c.channel_id == number).values(channel_id=None, state=DOOMED)
    )
    connection.execute(delete(tables.channel).where(tables.channel.c.id == number))
    del tx.channels[name]
