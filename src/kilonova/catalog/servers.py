"""The servers that run over a catalog, each alive for as long as it says so."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attending:
    """A server, and what it has taken on.

    Attributes:
        server: the server.
        firings: those that it has claimed or runs, newest first.
        runs: the runs of these firings that go on.
        outlets: the outlets that it serves, by name.
        lost: the events by which others have found that it had gone silent, and took over what it had claimed.
    """

    server: Server
    firings: tuple[Firing, ...]
    runs: tuple[Run, ...]
    outlets: tuple[str, ...]
    lost: tuple[Event, ...]


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
    """The servers, those that are alive first, of these and of the others those that started last."""
    table = tables.server
    rows = tx.connection.execute(select(table).order_by(table.c.state != ALIVE, table.c.started.desc()).limit(limit))
    return [
        Server(name=row.name, release=row.release, state=row.state, started=row.started, lease_until=row.lease_until)
        for row in rows
    ]


def attendance(tx: Transaction, limit: int) -> list[Attending]:
    """The servers, in the order of `servers`, and what each has taken on."""
    found = servers(tx, limit)
    names = {server.name for server in found}
    taken = firings.held(tx, names)
    going = {run.number: run for run in runs.some(tx, {firing.run for firing in taken if firing.run is not None})}
    outlet = tables.outlet
    leases = select(outlet.c.name, outlet.c.holder).where(outlet.c.lease_until >= tx.now).order_by(outlet.c.name)
    served = tx.connection.execute(leases).all()
    silent = events.before(tx, None, _LOST, kinds=[EventKind.SERVER_SILENT])
    return [
        Attending(
            server=server,
            firings=(own := tuple(firing for firing in taken if firing.server == server.name)),
            runs=tuple(going[number] for number in dict.fromkeys(firing.run for firing in own) if number in going),
            outlets=tuple(row.name for row in served if row.holder == server.name),
            lost=tuple(event for event in silent if event.text == server.name),
        )
        for server in found
    ]


_LOST = 1_000
"""How many of the last events of silent servers are looked through."""
