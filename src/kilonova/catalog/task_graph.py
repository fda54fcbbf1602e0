"""Readers and writers of channels among the tasks in the catalog."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import Text, cast, func, or_, select

from kilonova.catalog import tables
from kilonova.catalog.channel_store import channel_id
from kilonova.catalog.database import NotCached, Transaction
from kilonova.catalog.registry import TaskVersion, is_of_version, live_versions
from kilonova.model.task import Mode


def followed_channels(tx: Transaction, channels: Iterable[str]) -> frozenset[str]:
    """Return the given channels whose changes any task reads: replaced rows are looked up when they are written."""
    return frozenset(_read_as(tx, (Mode.CHANGES,)).keys() & set(channels))


def incremental_readers(tx: Transaction, channels: Iterable[str]) -> frozenset[str]:
    """Return the views and other tasks that read what is new in any of the given channels, in any mode.

    Raises:
        NotCached: the transaction is brief, and this was not looked up since the registered tasks changed.
    """
    found = _read_as(tx, tuple(mode for mode in Mode if mode.advances))
    return frozenset().union(*(found.get(name, ()) for name in channels))


def _read_as(tx: Transaction, modes: tuple[Mode, ...]) -> Mapping[str, set[str]]:
    """Return the channels that live logic versions read in one of some modes, each with its views and other tasks."""
    known = tx.definitions("read_as")
    if modes not in known:
        if tx.brief:  # all tasks are searched
            raise NotCached
        values = [mode.value for mode in modes]
        ports, task = cast(tables.variant.c.ports, Text), tables.task.c
        query = (
            select(tables.variant.c.ports, func.coalesce(task.view, task.name).label("reader"))
            .join(tables.logic, is_of_version())
            .join(tables.task, task.id == tables.logic.c.task_id)
            .where(tables.logic.c.live, or_(*(ports.contains(json.dumps(value)) for value in values)))
        )
        found: dict[str, set[str]] = {}
        for row in tx.connection.execute(query):
            for _, name, mode in row.ports:
                if mode in values:
                    found.setdefault(name, set()).add(row.reader)
        known[modes] = found
    mapping: Mapping[str, set[str]] = known[modes]
    return mapping


def readers(tx: Transaction, channel: str) -> tuple[TaskVersion, ...]:
    """Return the live logic versions that read a channel and do not write it, by task, newest first.

    Raises:
        NotFound: there is no such channel.
    """
    channel_id(tx, channel)
    ports = cast(tables.variant.c.ports, Text)
    names = tx.connection.execute(
        select(tables.task.c.name)
        .join(tables.variant, tables.task.c.id == tables.variant.c.task_id)
        .join(tables.logic, is_of_version())
        .where(tables.logic.c.live, ports.contains(json.dumps(channel), autoescape=True))
    ).scalars()
    found = live_versions(tx, names)
    return tuple(each for name in sorted(found) for each in found[name] if channel in each.task.reads)


def writers(tx: Transaction, channels: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the active tasks that write each of the given channels, by channel; none for source channels."""
    wanted = list(channels)
    if not wanted:
        return {}
    text = cast(tables.logic.c.writes, Text)
    query = (
        select(tables.task.c.name, tables.logic.c.writes)
        .join(tables.logic, tables.logic.c.task_id == tables.task.c.id)
        .where(tables.logic.c.live)
    )
    if len(wanted) <= _FEW:
        query = query.where(or_(*(text.contains(json.dumps(name), autoescape=True) for name in wanted)))
    found: dict[str, dict[str, None]] = {channel: {} for channel in wanted}
    for row in tx.connection.execute(query.order_by(tables.task.c.name)):
        for channel in row.writes:
            if channel in found:
                found[channel][row.name] = None
    return {channel: tuple(names) for channel, names in found.items()}


_FEW = 10
"""Number of channels above which reading the outputs of all tasks is faster than searching for each channel."""


def upstream_tasks(tx: Transaction, channels: Collection[str]) -> tuple[str, ...]:
    """Return the tasks that write some channels, and those that these channels are computed from."""
    known, key = tx.definitions("upstream_tasks"), frozenset(channels)
    if key not in known:
        found: dict[str, None] = {}
        seen, waiting = set[str](), set(channels)
        while waiting:
            seen |= waiting
            names = [name for each in writers(tx, waiting).values() for name in each if name not in found]
            found |= dict.fromkeys(names)
            tasks = [versions[0].task for versions in live_versions(tx, names).values()] if names else []
            waiting = {name for task in tasks for name in (*task.reads, *task.sources)} - seen
        known[key] = tuple(found)
    upstream: tuple[str, ...] = known[key]
    return upstream
