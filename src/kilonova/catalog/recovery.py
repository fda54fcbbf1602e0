"""Recovery of a catalog from the blocks of a warehouse, within one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import func, insert, select, text, update

from kilonova.catalog import channel_registry, channel_store, codec, events, registry, runs, tables
from kilonova.catalog.database import IDENTITY, Transaction, insert_all, is_among
from kilonova.catalog.validity import present
from kilonova.errors import Conflict
from kilonova.model.block import Block, BlockName
from kilonova.model.channel import Channel, PointState
from kilonova.model.column_rules import OnNewColumn
from kilonova.model.encoding import Changes, Removal
from kilonova.model.event import EventKind
from kilonova.model.run import RunKind, RunState
from kilonova.model.schema import Schema
from kilonova.model.version import Version
from kilonova.schedule.recovery import FoundBlock, RecoveredChannel

_NONE = "none"
"""Suffix of the placeholder row for the highest block number in the warehouse: no directory has it."""


def check_nothing_runs(tx: Transaction) -> None:
    """Check that no run is running, so that the catalog can be recovered.

    Raises:
        Conflict: a run is running.
    """
    running = select(tables.run.c.id).where(
        tables.run.c.state == RunState.RUNNING.value, tables.run.c.lease_until >= tx.now
    )
    number = tx.connection.execute(running.limit(1)).scalar()
    if number is not None:
        raise Conflict("a run is still running", run=int(number), hint="Stop all servers and runs, and recover then")


def known_blocks(tx: Transaction) -> dict[str, list[FoundBlock]]:
    """Return the live blocks of a catalog, by channel."""
    merging = select(tables.run.c.id).where(tables.run.c.kind == RunKind.COMPACTION.value)
    compactions = set(tx.connection.execute(merging).scalars())
    run_of = {row.id: row.run_id for row in tx.connection.execute(select(tables.block.c.id, tables.block.c.run_id))}
    return {
        name: [
            FoundBlock(
                block=block,
                version=state.version(block.end),
                task=None,
                run=run_of[block.number],
                merges=run_of[block.number] in compactions,
                known=True,
            )
            for block in state.blocks
        ]
        for name, state in channel_store.channel_states(tx).items()
    }


def filled_points(tx: Transaction) -> dict[str, set[int]]:
    """Return the filled points in a catalog, by channel."""
    query = (
        select(tables.channel.c.name, tables.point.c.number)
        .join(tables.point, tables.point.c.channel_id == tables.channel.c.id)
        .where(tables.point.c.state == PointState.FILLED.value)
    )
    found: dict[str, set[int]] = {}
    for row in tx.connection.execute(query):
        found.setdefault(row.name, set()).add(row.number)
    return found


def put_recovered(
    tx: Transaction,
    channels: Sequence[RecoveredChannel],
    *,
    identity: str,
    lost: Iterable[int],
    names: Iterable[BlockName],
    run: int,
    logics: Mapping[str, int],
    owner: str,
) -> int:
    """Record recovered channels, in addition to those in the catalog; the cursors of existing tasks are reset.

    Args:
        tx: a writing transaction.
        channels: the channels.
        identity: the new identity of the catalog.
        lost: the numbers of live blocks whose files are missing.
        names: the names of all blocks in the warehouse; their numbers are not reused.
        run: the newest run found in the warehouse.
        logics: the newest logic version found for each task.
        owner: this process.

    Returns:
        The number of the recovery run.
    """
    number = _put_run(tx, run, owner)
    existing = set(channel_store.channel_names(tx))
    new = [_declared(each) for each in channels if each.name not in existing and each.blocks]
    channel_registry.add_channels(tx, new, channel_registry.RECOVERED)
    _lose(tx, lost)
    for each in channels:
        if each.blocks:
            _put_channel(tx, each, number)
            _add_columns(tx, each)
    runs.expire(tx)
    _put_highest(tx, names, number)
    registry.continue_versions(tx, logics)
    _reset_tasks(tx)
    tx.connection.execute(update(tables.identity).where(tables.identity.c.name == IDENTITY).values(value=identity))
    _continue_numbering(tx)
    recovered = [each.name for each in channels if each.blocks]
    events.record(tx, EventKind.RECOVERED, run=number, channels=recovered, text="the catalog was recovered")
    return number


def _put_run(tx: Transaction, newest: int, owner: str) -> int:
    """Record the recovery as a run, with a number above the newest known run."""
    last = tx.connection.execute(select(func.max(tables.run.c.id))).scalar() or 0
    number = max(last, newest) + 1
    tx.connection.execute(
        insert(tables.run).values(
            id=number,
            kind=RunKind.RECOVERY.value,
            state=RunState.SUCCEEDED.value,
            tasks=[],
            owner=owner,
            started=tx.now,
            ended=tx.now,
            lease_until=tx.now,
        )
    )
    return number


def _lose(tx: Transaction, lost: Iterable[int]) -> None:
    """Record that the files of blocks have been lost, which ends their placements."""
    numbers, place = list(lost), tables.placement.c
    here = is_among(tx, place.block_id, numbers)
    channel_store.mark_changed(tx, select(place.channel_id).where(here, place.live))
    tx.connection.execute(update(tables.placement).where(here).values(live=False))
    channel_store.mark_deleted(tx, numbers)


def _reset_tasks(tx: Transaction) -> None:
    """Let existing tasks start from scratch; drop those that write channels with several writers."""
    for task, known in registry.tasks(tx).items():
        if any(channel_store.channel(tx, channel).several_writers for channel in known.task.writes):
            registry.drop_task(tx, task)
        else:
            registry.reset_cursors(tx, task)


def _continue_numbering(tx: Transaction) -> None:
    """Let PostgreSQL continue the numbers of runs and blocks; SQLite does by itself."""
    if tx.connection.dialect.name == "postgresql":
        for table in ("run", "block"):
            highest = f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))"
            tx.connection.execute(text(highest))


def _declared(channel: RecoveredChannel) -> Channel:
    """Return the declaration of a channel as inferred from its blocks."""
    newest = max(channel.blocks, key=lambda each: (each.block.end, each.block.number)).block
    with_rows = [each.block for each in channel.blocks if not isinstance(each.block.encoding, Removal)]
    own = [block for block in with_rows if not isinstance(block.encoding, Changes)] or with_rows
    encoding = max(own, key=lambda block: (block.end, block.number)).row_encoding
    writers = {each.task for each in channel.blocks if not each.merges}
    return Channel(name=channel.name, schema=newest.schema, encoding=encoding, several_writers=len(writers) > 1)


def _add_columns(tx: Transaction, channel: RecoveredChannel) -> None:
    """Add the columns to a channel that ingests have added to it since the catalog was saved, by its rules."""
    known, newest = channel_store.channel(tx, channel.name), _declared(channel).schema
    if known.rules.on_new_column is not OnNewColumn.ADD or known.schema is None or newest is None:
        return
    more = newest.without(*known.schema.names)
    if more.columns:
        schema = Schema((*known.schema.columns, *more.columns))
        channel_registry.change_channel(tx, replace(known, schema=schema, added=(*known.added, *more.names)))


def _put_channel(tx: Transaction, channel: RecoveredChannel, run: int) -> None:
    """Record the points and blocks of a channel that the catalog lacks."""
    connection, here = tx.connection, channel_store.channel_id(tx, channel.name)
    channel_store.mark_changed(tx, [here])
    point = tables.point.c
    states = {
        row.number: row.state
        for row in connection.execute(select(point.number, point.state).where(point.channel_id == here))
    }
    points = channel.points
    for number in points:
        if states.get(number, PointState.FILLED.value) != PointState.FILLED.value:
            connection.execute(
                update(tables.point)
                .where(point.channel_id == here, point.number == number)
                .values(_point(number, points, tx, run))
            )
    since = min(points)
    insert_all(
        tx,
        tables.point,
        [
            {"channel_id": here, **_point(number, points, tx, run)}
            for number in range(since, channel.newest + 1)
            if number not in states
        ],
    )
    recorded = set(
        connection.execute(
            select(tables.run_output.c.point).where(
                tables.run_output.c.channel_id == here, tables.run_output.c.run_id == run
            )
        ).scalars()
    )
    for each in sorted(channel.blocks, key=lambda each: each.merges):
        if each.known:
            continue
        _put_block(tx, here, each.block, run)
        if each.block.end not in recorded:
            recorded.add(each.block.end)
            connection.execute(
                insert(tables.run_output).values(
                    run_id=run,
                    channel_id=here,
                    point=each.block.end,
                    block_id=each.block.number,
                    task=each.task,
                    reason="recovered",
                    seconds=0.0,
                )
            )


def _point(number: int, points: Mapping[int, Version], tx: Transaction, run: int) -> dict[str, Any]:
    state = PointState.FILLED if number in points else PointState.CANCELLED
    version = codec.version_to_json(points.get(number, Version()))
    readable = present(tx) if state is PointState.FILLED else None
    return {
        "number": number,
        "state": state.value,
        "version": version,
        "time": tx.now,
        "run_id": run,
        "readable": readable,
    }


def _put_block(tx: Transaction, channel: int, block: Block, run: int) -> None:
    """Record a block, unless another channel has it already, and its placement."""
    values = {"state": channel_store.LIVE, "target_id": None, **channel_store.block_columns(block)}
    known = tables.block.c.id == block.number
    if tx.connection.execute(select(tables.block.c.id).where(known)).first() is None:
        named = {"id": block.number, "run_id": run, "suffix": block.suffix or None}
        tx.connection.execute(insert(tables.block).values(named | values))
    else:
        tx.connection.execute(update(tables.block).where(known).values(values))
    channel_store.place(tx, channel, block)


def dropped_channels(tx: Transaction) -> dict[str, int]:
    """Return the newest point of each dropped channel, by name."""
    return {row.name: row.point for row in tx.connection.execute(select(tables.dropped))}


def placements(tx: Transaction) -> set[tuple[str, int]]:
    """Return the channel and number of each block that is or was placed."""
    query = select(tables.channel.c.name, tables.placement.c.block_id).join(
        tables.placement, tables.placement.c.channel_id == tables.channel.c.id
    )
    return {(row.name, row.block_id) for row in tx.connection.execute(query)}


def _put_highest(tx: Transaction, names: Iterable[BlockName], run: int) -> None:
    """Continue the numbering of blocks after the highest number in the warehouse."""
    highest = max((name.number for name in names), default=0)
    newest = tx.connection.execute(select(func.max(tables.block.c.id))).scalar() or 0
    if highest > newest:
        tx.connection.execute(
            insert(tables.block).values(id=highest, run_id=run, state=channel_store.GONE, suffix=_NONE)
        )
