"""The servers that run over a catalog, each alive for as long as it says so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, insert, select, update

from kilonova.catalog import events, tables
from kilonova.catalog.database import Transaction
from kilonova.model.event import EventKind

ALIVE, STOPPED, SILENT = "alive", "stopped", "silent"
"""A server's states: it beats, it has ended by itself, or its lease ran out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server.

    Attributes:
        name: unique among all that ever ran.
        release: the release that it runs.
        state: `alive`, `stopped` or `silent`.
        started: when it started.
        lease_until: until when it is alive without another heartbeat.
    """

    name: str
    release: str
    state: str
    started: datetime
    lease_until: datetime


def enter(tx: Transaction, name: str, release: str, lease: timedelta) -> None:
    """A server starts."""
    tx.connection.execute(
        insert(tables.server).values(
            name=name, release=release, state=ALIVE, started=tx.now, lease_until=tx.now + lease
        )
    )
    events.tell(tx, EventKind.SERVER_STARTED, said=name)


def beat(tx: Transaction, name: str, lease: timedelta) -> bool:
    """A server says that it lives.

    Returns:
        Whether it was still taken to be alive; otherwise others have taken over what it had claimed.
    """
    result = tx.connection.execute(
        update(tables.server)
        .where(tables.server.c.name == name, tables.server.c.state == ALIVE)
        .values(lease_until=tx.now + lease)
    )
    return bool(result.rowcount)


def leave(tx: Transaction, name: str) -> None:
    """A server ends by itself."""
    tx.connection.execute(
        update(tables.server).where(tables.server.c.name == name, tables.server.c.state == ALIVE).values(state=STOPPED)
    )
    events.tell(tx, EventKind.SERVER_STOPPED, said=name)


def expire(tx: Transaction) -> list[str]:
    """Find the servers that have gone silent.

    Returns:
        Their names.
    """
    query = select(tables.server.c.name).where(tables.server.c.state == ALIVE, tables.server.c.lease_until < tx.now)
    silent = list(tx.connection.execute(query).scalars())
    for name in silent:
        tx.connection.execute(update(tables.server).where(tables.server.c.name == name).values(state=SILENT))
        events.tell(tx, EventKind.SERVER_SILENT, said=name)
    return silent


def forget(tx: Transaction, before: datetime) -> None:
    """Forget servers that were last alive before a moment."""
    table = tables.server
    tx.connection.execute(delete(table).where(table.c.state != ALIVE, table.c.lease_until < before))


def servers(tx: Transaction, limit: int) -> list[Server]:
    """The servers, those that started last first."""
    rows = tx.connection.execute(select(tables.server).order_by(tables.server.c.started.desc()).limit(limit))
    return [
        Server(name=row.name, release=row.release, state=row.state, started=row.started, lease_until=row.lease_until)
        for row in rows
    ]
