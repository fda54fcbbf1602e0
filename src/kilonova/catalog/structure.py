"""Changes of a workflow's structure in the catalog (logic evolution, 3.2): no block is read or written.

A task is inserted as a no-op of the logic version `START`: its channel has the points and blocks of its input, by
reference. The versions of all points downstream are rewritten as if it had always been there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from sqlalchemy import Text, cast, delete, func, or_, select, update

from kilonova.catalog import channel_registry, channel_store, codec, registry, tables
from kilonova.catalog.channel_store import channel_id
from kilonova.catalog.database import Transaction, insert_all, is_among
from kilonova.model.channel import Channel, ChannelState, PointState
from kilonova.model.task import Task
from kilonova.model.version import START, Version


def registered_names(tx: Transaction) -> frozenset[str]:
    """Return the names of all tasks that are registered or were."""
    return frozenset(tx.connection.execute(select(tables.task.c.name)).scalars())


def running_tasks(tx: Transaction) -> dict[str, int]:
    """Return the runs that have claimed tasks, by task."""
    query = select(tables.task.c.name, tables.claim.c.run_id).join(
        tables.claim, tables.claim.c.task_id == tables.task.c.id
    )
    return {row.name: row.run_id for row in tx.connection.execute(query)}


def has_been_inserted(tx: Transaction, task: str) -> bool:
    """Return whether a task has, or had, the logic version `START`."""
    version = tables.logic.c
    query = select(version.version).where(version.task_id == registry.task_id(tx, task), version.version == START)
    return tx.connection.execute(query).first() is not None


def add_copy(
    tx: Transaction,
    channel: Channel,
    origin: ChannelState,
    task: str,
    workflow: str,
    version: Callable[[Version], Version],
    reason: str,
) -> tuple[int, ...]:
    """Register a channel with the readable points of another one, and its blocks by reference.

    Args:
        tx: a writing transaction.
        channel: the channel, with the columns and the encoding of the other one.
        origin: the state of the other channel.
        task: the task that writes the channel.
        workflow: the workflow that declares it.
        version: returns the version of a point for that of the other channel's point.
        reason: why the runs that have written the blocks have written this channel, for display.

    Returns:
        The numbers of the blocks.
    """
    channel_registry.add_channels(tx, [channel], workflow)
    old, new = channel_id(tx, origin.channel.name), channel_id(tx, channel.name)
    last, point, output = origin.latest_readable, tables.point, tables.run_output
    mine = point.c.channel_id == old, point.c.number <= last, point.c.number >= origin.first_retained
    rows = [dict(row) for row in tx.connection.execute(select(point).where(*mine)).mappings()]
    for row in rows:
        row["channel_id"] = new
        for column in ("version", "extended"):
            if row["state"] == PointState.FILLED.value and row[column] is not None:
                row[column] = codec.version_to_json(version(codec.version_from_json(row[column])))
    insert_all(tx, point, rows)
    blocks = [block for block in origin.blocks if block.end <= last]
    for block in blocks:
        channel_store.place(tx, new, replace(block, manifest=None))
    numbers = tuple(block.number for block in blocks)
    written = select(output).where(output.c.channel_id == old, is_among(tx, output.c.block_id, numbers))
    made = [dict(row) for row in tx.connection.execute(written).mappings()]
    insert_all(
        tx,
        output,
        [row | {"channel_id": new, "task": task, "reason": reason, "seconds": 0.0, "method": None} for row in made],
    )
    return numbers


def add_beginning(tx: Transaction, task: Task, workflow: str, cursors: Mapping[str, int]) -> None:
    """Register the logic version `START` of a task, superseded by the version that is registered next.

    Other versions of the task end: what it has written is the output of this one.

    Args:
        tx: a writing transaction.
        task: the task at this version.
        workflow: the workflow that declares the task.
        cursors: the points up to which it has read channels.
    """
    registry.put_superseded(tx, task, workflow, START)
    key = registry.task_id(tx, task.name)
    rows = [
        {"task_id": key, "logic": START, "channel_id": channel_id(tx, channel), "point": point}
        for channel, point in cursors.items()
    ]
    tx.connection.execute(delete(tables.cursor).where(tables.cursor.c.task_id == key))
    insert_all(tx, tables.cursor, rows)


def move_input(tx: Transaction, task: Task, logic: int, old: str, new: str) -> None:
    """Let a logic version of a task read a channel where it read another one that has the same rows at each point.

    Args:
        tx: a writing transaction.
        task: the task, which reads the new channel.
        logic: the logic version.
        old: the channel that it has read.
        new: the new channel.
    """
    registry.replace_variants(tx, task, logic)
    key, cursor = registry.task_id(tx, task.name), tables.cursor.c
    mine = cursor.task_id == key, cursor.logic == logic, cursor.channel_id == channel_id(tx, old)
    tx.connection.execute(update(tables.cursor).where(*mine).values(channel_id=channel_id(tx, new)))
    channel_store.mark_changed(tx, [channel_id(tx, old), channel_id(tx, new)])


def replace_inputs(tx: Transaction, task: Task, logic: int, inputs: Mapping[str, str], grown: Collection[str]) -> None:
    """Let a logic version of a task read channels where it read others that have other rows.

    Its cursors stay on the others until its next run, which reads the differences.

    Args:
        tx: a writing transaction.
        task: the task, which reads the new channels.
        logic: the logic version.
        inputs: the channel that it has read for each new one.
        grown: the new channels that have all rows of the old ones.
    """
    registry.replace_variants(tx, task, logic)
    key, version = registry.task_id(tx, task.name), tables.logic.c
    mine = version.task_id == key, version.version == logic
    replaced = [[new, old, new in grown] for new, old in inputs.items()]
    tx.connection.execute(update(tables.logic).where(*mine).values(replaced=replaced))


def take_over(tx: Transaction, task: str, logic: int) -> None:
    """Let a new logic version of an inserted task continue from what it has as a no-op."""
    key, cursor, version = registry.task_id(tx, task), tables.cursor.c, tables.logic.c
    mine = cursor.task_id == key, cursor.logic == START
    tx.connection.execute(update(tables.cursor).where(*mine).values(logic=logic))
    own = version.task_id == key, version.version == START
    tx.connection.execute(update(tables.logic).where(*own).values(live=False, superseded=False))
    tx.mark_registry_changed()


def rewrite_versions(tx: Transaction, tasks: Collection[str], change: Callable[[Version], Version]) -> None:
    """Rewrite the versions of the points of all channels that some tasks have contributed to.

    Args:
        tx: a writing transaction.
        tasks: the tasks.
        change: returns the new version for an old one.
    """
    point = tables.point
    text = cast(point.c.version, Text)
    through = or_(*(text.contains(json.dumps(name), autoescape=True) for name in tasks))
    changed: set[int] = set()
    for row in tx.connection.execute(select(point).where(point.c.state == PointState.FILLED.value, through)).all():
        before = codec.version_from_json(row.version)
        if (after := change(before)) == before:
            continue
        here = point.c.channel_id == row.channel_id, point.c.number == row.number
        rewritten = {"version": codec.version_to_json(after), "rewrites": func.coalesce(point.c.rewrites, 0) + 1}
        if row.extended is not None:
            rewritten["extended"] = codec.version_to_json(change(codec.version_from_json(row.extended)))
        tx.connection.execute(update(point).where(*here).values(rewritten))
        changed.add(row.channel_id)
    if changed:
        channel_store.mark_changed(tx, changed)
