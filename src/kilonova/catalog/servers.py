"""Servers that share a catalog, each alive while it renews its lease by heartbeats."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, insert, select, update

from kilonova.catalog import events, firings, runs, tables
from kilonova.catalog.database import Transaction
from kilonova.model.event import Event, EventKind
from kilonova.model.firing import Firing
from kilonova.model.run import Run

ALIVE, STOPPED, SILENT = "alive", "stopped", "silent"
"""States of a server: sending heartbeats, shut down normally, lease expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """Server with its state and lease.

    Attributes:
        name: its name, unique among all servers that have ever run.
        release: the release that it runs.
        state: `alive`, `stopped` or `silent`.
        started: the time when it started.
        lease_until: the time when its lease expires without another heartbeat.
    """

    name: str
    release: str
    state: str
    started: datetime
    lease_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """Server with its firings, runs and subscriptions.

    Attributes:
        server: the server.
        firings: the firings that it has claimed or runs, newest first.
        runs: the running runs of these firings.
        subscriptions: the names of the subscriptions that it serves, sorted.
        lost: the events recorded when other servers found its lease expired and took over its claims.
    """

    server: ServerRecord
    firings: tuple[Firing, ...]
    runs: tuple[Run, ...]
    subscriptions: tuple[str, ...]
    lost: tuple[Event, ...]


def register(tx: Transaction, name: str, release: str, lease: timedelta) -> None:
    """Register a server that starts."""
    tx.connection.execute(
        insert(tables.server).values(
            name=name, release=release, state=ALIVE, started=tx.now, lease_until=tx.now + lease
        )
    )
    events.record(tx, EventKind.SERVER_STARTED, text=name)


def heartbeat(tx: Transaction, name: str, lease: timedelta) -> bool:
    """Renew the lease of a server.

    Returns:
        Whether it was still registered as alive; otherwise others have taken over its claims.
    """
    result = tx.connection.execute(
        update(tables.server)
        .where(tables.server.c.name == name, tables.server.c.state == ALIVE)
        .values(lease_until=tx.now + lease)
    )
    return bool(result.rowcount)


def deregister(tx: Transaction, name: str) -> None:
    """Record that a server shuts down."""
    tx.connection.execute(
        update(tables.server).where(tables.server.c.name == name, tables.server.c.state == ALIVE).values(state=STOPPED)
    )
    events.record(tx, EventKind.SERVER_STOPPED, text=name)


def expire(tx: Transaction) -> list[str]:
    """Mark servers whose lease has expired as silent.

    Returns:
        Their names.
    """
    query = select(tables.server.c.name).where(tables.server.c.state == ALIVE, tables.server.c.lease_until < tx.now)
    silent = list(tx.connection.execute(query).scalars())
    for name in silent:
        tx.connection.execute(update(tables.server).where(tables.server.c.name == name).values(state=SILENT))
        events.record(tx, EventKind.SERVER_SILENT, text=name)
    return silent


def forget(tx: Transaction, before: datetime) -> None:
    """Delete the records of servers that were last alive before a time."""
    table = tables.server
    tx.connection.execute(delete(table).where(table.c.state != ALIVE, table.c.lease_until < before))


def servers(tx: Transaction, limit: int) -> list[ServerRecord]:
    """Return the servers, live ones first, and those that started last first among each."""
    table = tables.server
    rows = tx.connection.execute(select(table).order_by(table.c.state != ALIVE, table.c.started.desc()).limit(limit))
    return [
        ServerRecord(
            name=row.name, release=row.release, state=row.state, started=row.started, lease_until=row.lease_until
        )
        for row in rows
    ]


def alive(tx: Transaction) -> list[ServerRecord]:
    """Return the servers that are alive: those that have not stopped and whose leases have not expired."""
    return [each for each in servers(tx, _MOST) if each.state == ALIVE and each.lease_until >= tx.now]


_MOST = 1_000
"""Number of servers that are searched for live ones."""


def server_statuses(tx: Transaction, limit: int) -> list[ServerStatus]:
    """Return the servers in the order of `servers`, each with its firings, runs and subscriptions."""
    found = servers(tx, limit)
    names = {server.name for server in found}
    taken = firings.held(tx, names)
    going = {run.number: run for run in runs.find_runs(tx, {firing.run for firing in taken if firing.run is not None})}
    subscription = tables.subscription
    leases = (
        select(subscription.c.name, subscription.c.holder)
        .where(subscription.c.lease_until >= tx.now)
        .order_by(subscription.c.name)
    )
    served = tx.connection.execute(leases).all()
    silent = events.before(tx, None, _LOST, kinds=[EventKind.SERVER_SILENT])
    return [
        ServerStatus(
            server=server,
            firings=(own := tuple(firing for firing in taken if firing.server == server.name)),
            runs=tuple(going[number] for number in dict.fromkeys(firing.run for firing in own) if number in going),
            subscriptions=tuple(row.name for row in served if row.holder == server.name),
            lost=tuple(event for event in silent if event.text == server.name),
        )
        for server in found
    ]


_LOST = 1_000
"""Number of the last events of silent servers that are searched."""
