"""Empty databases to test on: SQLite files, and databases of one PostgreSQL server per test process."""

from __future__ import annotations

import functools
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pgserver
import psycopg
from sqlalchemy import text

from kilonova.catalog import tables
from kilonova.catalog.database import Catalog, Transaction

DIALECTS = ("sqlite", "postgresql")
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)

_numbers = itertools.count(1)


@dataclass
class Clock:
    """A clock that stands still until it is told to move."""

    now: datetime = field(default=NOON)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@functools.cache
def _server() -> pgserver.PostgresServer:
    """This process's server; it goes with the process. What it holds need not survive the machine."""
    folder = Path(tempfile.mkdtemp(prefix="kilonova-pg-"))
    server = pgserver.get_server(folder / "data", cleanup_mode="delete")
    for setting in ("fsync = off", "synchronous_commit = off", "full_page_writes = off"):
        _command(server, f"ALTER SYSTEM SET {setting}")
    _command(server, "SELECT pg_reload_conf()")
    return server


def _command(server: pgserver.PostgresServer, statement: str) -> None:
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(statement)


@contextmanager
def empty_database(dialect: str) -> Iterator[str]:
    """The URL of a database without a table, or of an SQLite file that is not there yet."""
    if dialect == "sqlite":
        memory = Path("/dev/shm")  # where waiting for the disk costs nothing
        folder = tempfile.mkdtemp(prefix="kilonova-db-", dir=memory if memory.is_dir() else None)
        try:
            yield f"sqlite:///{folder}/catalog.db"
        finally:
            shutil.rmtree(folder)
        return
    name = f"test_{next(_numbers)}"
    _command(_server(), f"CREATE DATABASE {name}")
    try:
        yield _server().get_uri(name)
    finally:
        _command(_server(), f"DROP DATABASE {name} WITH (FORCE)")


def emptied(catalog: Catalog) -> None:
    """Take all rows out of a catalog but its identity; numbers begin at 1 again."""
    names = [table.name for table in reversed(tables.metadata.sorted_tables) if table.name != "identity"]
    with catalog.writing() as tx:
        tx.mark_registry_changed()
        if catalog.dialect == "postgresql":
            tx.connection.execute(text(f"TRUNCATE {', '.join(names)} RESTART IDENTITY CASCADE"))
            return
        for name in names:
            tx.connection.execute(text(f"DELETE FROM {name}"))


def rows(tx: Transaction, table: str) -> list[tuple[object, ...]]:
    """All rows of a table, sorted, for comparing the catalog with itself."""
    found = tx.connection.execute(tables.metadata.tables[table].select())
    return sorted((tuple(row) for row in found), key=repr)


def contents(catalog: Catalog) -> dict[str, list[tuple[object, ...]]]:
    """All that a catalog holds, whatever its revision."""
    with catalog.watching() as connection:
        tx = Transaction(connection, catalog.clock())
        return {name: rows(tx, name) for name in tables.metadata.tables}
