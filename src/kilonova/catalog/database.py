"""Transactions of the catalog.

`Catalog.reading()` opens a transaction with a consistent snapshot, `Catalog.writing()` the only writing transaction:
`BEGIN IMMEDIATE` on SQLite, an advisory lock on PostgreSQL. Writing transactions are a few statements long and never
wait for Spark, so one at a time is enough, and both databases give the same guarantees.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote_plus

from sqlalchemy import (
    ARRAY,
    JSON,
    ColumnElement,
    Connection,
    CursorResult,
    Engine,
    Insert,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DataError, DBAPIError, OperationalError, SQLAlchemyError

from kilonova.catalog import tables
from kilonova.catalog.read_cache import ReadCache
from kilonova.catalog.writer_queue import WriterQueue
from kilonova.errors import CatalogError, CatalogFull, CatalogUnavailable, Conflict, DeclarationError, KilonovaError

_Value = TypeVar("_Value", int, str)

_LOCK = 0x6B696C6F6E6F7661
"""Advisory lock of the writers of a PostgreSQL catalog; each catalog has its own database."""

NOTICE = "kilonova"
"""Name of the PostgreSQL `NOTIFY` channel on which events are announced."""

REVISION = "0039"
"""Revision of the tables that this release requires."""

_OLDEST = "0033"
"""Oldest revision of the tables that can be upgraded."""

IDENTITY, _REGISTRY = "catalog", "registry"
"""Names of the catalog's identity, and of the random stamp that changes with the registered tasks and bindings."""

_PATIENCE = 60
"""Seconds for which a writer waits for the lock."""

_SESSION = {"lock_timeout": _PATIENCE, "statement_timeout": 120, "idle_in_transaction_session_timeout": 30}
"""Time limits of a PostgreSQL session in seconds: the database ends the session of a client that hangs within a
transaction or is disconnected, which releases the writers' lock."""

_CONNECTION = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Options of libpq with which either side detects a lost connection within half a minute."""

_WAITS = {"55P03": "another process holds its lock", "57014": "a statement took too long"}
"""Error codes of PostgreSQL for exceeded time limits, with their descriptions."""

_FULL = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "53100")
"""Error codes for a full disk; SQLite needs disk space for reading, too, if no other process has the database open."""

_HUNG = "25P03"
"""Error code of PostgreSQL for a session that was ended because it was idle in a transaction."""


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Transaction:
    """Open transaction.

    Attributes:
        connection: the connection.
        now: the time at which it began.
        channels: the ids of channels that were looked up in it, by name.
        before: the cache of earlier transactions of this process.
        read: the rows that it has read itself.
        stamps: the stamp of the registered tasks and bindings, until it changes them; null if none were registered yet.
        brief: whether it must be short: `NotCached` is raised instead of loading much that is not cached.
    """

    connection: Connection
    now: datetime
    brief: bool = False
    channels: dict[str, int] = field(default_factory=dict)
    before: ReadCache = field(default_factory=ReadCache)
    read: ReadCache = field(default_factory=ReadCache)
    stamps: dict[str, str | None] = field(default_factory=dict)

    def definitions(self, kind: str) -> dict[Any, Any]:
        """Return the cache of a kind of facts about the registered tasks and bindings; an empty one if they changed.

        Raises:
            NotCached: the transaction is brief, and the cache is empty: all tasks may have to be searched.
        """
        stamp = self.stamps.get(_REGISTRY)
        known = {} if stamp is None else self.before.definitions_of(stamp).setdefault(kind, {})
        if self.brief and not known:
            raise NotCached
        return known

    def mark_registry_changed(self) -> None:
        """Record that tasks or bindings change, which invalidates what is cached about them."""
        if self.stamps.pop(_REGISTRY, "") != "":
            stamp = {"value": uuid.uuid4().hex}
            mine = update(tables.identity).where(tables.identity.c.name == _REGISTRY)
            if not self.connection.execute(mine.values(stamp)).rowcount:
                self.connection.execute(insert(tables.identity).values(name=_REGISTRY, **stamp))

    def identity(self) -> str:
        """Return the identity of the catalog, which distinguishes its blocks from those of other catalogs."""
        query = select(tables.identity.c.value).where(tables.identity.c.name == IDENTITY)
        return str(self.connection.execute(query).scalar_one())


def inserted_id(result: CursorResult[Any]) -> int:
    """Return the primary key of an inserted row."""
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])


def insert_all(tx: Transaction, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows, which all have the same columns; do nothing if there are none."""
    if rows:
        tx.connection.execute(_insert(table), rows)


@cache
def _insert(table: Table) -> Insert:
    return insert(table)


def update_all(tx: Transaction, table: Table, rows: list[dict[str, Any]]) -> None:
    """Update rows, each given by its `id` as `key` and the same columns to change; do nothing if there are none."""
    if rows:
        tx.connection.execute(update(table).where(table.c.id == bindparam("key")), rows)


def is_among(tx: Transaction, column: ColumnElement[_Value], values: Iterable[_Value]) -> ColumnElement[bool]:
    """Return the condition that a column has one of the given values, which are passed as a single parameter.

    Databases limit the parameters of a statement, and preparing one with thousands takes longer than executing it.
    """
    if tx.connection.dialect.name == "postgresql":
        return column == any_(literal(list(values), ARRAY(column.type)))
    return column.in_(select(func.json_each(json.dumps(list(values))).table_valued("value").c.value))


def is_given(dialect: str, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return the condition that a column has one of the values in a list, which is passed as the parameter `name`.

    Statements that every run executes are built once per dialect: building one takes as long as executing it.
    """
    if dialect == "postgresql":
        return column == any_(bindparam(name, type_=ARRAY(column.type)))
    return column.in_(select(func.json_each(bindparam(name, type_=JSON())).table_valued("value").c.value))


def contains_name(tx: Transaction, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return the condition that a JSON column contains a name, which is checked row by row.

    Unlike LIKE it is case-sensitive on SQLite; and PostgreSQL, which assumes that LIKE matches few rows, keeps reading
    in the order of an index instead of sorting all rows.
    """
    place = func.strpos if tx.connection.dialect.name == "postgresql" else func.instr
    return place(cast(column, Text), json.dumps(name)) > 0


class NotCached(Exception):
    """Internal exception for what a brief transaction would have to load: it is to be loaded by another one before."""


class _Undone(Exception):
    """Internal exception that rolls a transaction back."""


class _NoTables(Exception):
    """Internal exception for a database in which no catalog was created."""


_Begun = tuple[Connection, CursorResult[Any]]
"""Connection with a transaction, and the result of the query with which it began."""


class Catalog:
    """Metadata database.

    Args:
        url: an SQLAlchemy URL, `sqlite:///…` or `postgresql://…`.
        clock: returns the current time; tests pass their own. By default, transactions on PostgreSQL use the time of
            the database, so that leases are compared by one clock, and those on SQLite that of the machine.
        alone: lock an SQLite database exclusively, so that it can be read even if its disk is full.

    Raises:
        CatalogError: the URL is invalid or of an unknown kind.
    """

    def __init__(self, url: str, clock: Callable[[], datetime] = utc_now, *, alone: bool = False) -> None:
        self.url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        self.clock = clock
        self._remembered = ReadCache()
        try:
            self._engine = _engine(self.url, alone)
        except (ImportError, SQLAlchemyError, ValueError):  # their messages may contain the URL with its password
            raise CatalogError(
                "the catalog's URL cannot be used",
                hint="Use sqlite:///path or postgresql://host/database; write %2F for / and %40 for @ in a password",
            ) from None
        self._queue = WriterQueue(self._file, _PATIENCE) if self.dialect == "sqlite" else None

    @property
    def dialect(self) -> str:
        """Name of the database's dialect: `sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Open a read-only transaction with a consistent snapshot of the catalog.

        Raises:
            CatalogError: there is no catalog, or it is older or newer than this release.
        """
        with self._checked(self._snapshot) as tx:
            yield tx

    @contextmanager
    def writing(self, *, brief: bool = False) -> Iterator[Transaction]:
        """Open a writing transaction, one at a time; it commits at the end of the block, or rolls back on an error.

        Args:
            brief: whether to raise `NotCached` instead of loading much that is not cached.

        Raises:
            CatalogError: there is no catalog, or it is older or newer than this release.
            NotCached: it is brief, and much is to be loaded.
        """
        with self._checked(self._exclusive, brief=brief) as tx:
            yield tx

    @contextmanager
    def _checked(
        self, begun: Callable[[str], AbstractContextManager[_Begun]], *, brief: bool = False
    ) -> Iterator[Transaction]:
        """Open a transaction of a catalog of this release.

        Every transaction checks the revision of the tables, since another release may upgrade the catalog while this
        process has it open; and it reads the time, which in a writing one is after the wait for the writers' lock.
        """
        self._require_file()
        now = ", clock_timestamp()" if self.dialect == "postgresql" else ""
        stamp = f"(SELECT value FROM identity WHERE name = '{_REGISTRY}')"
        try:
            with begun(f"SELECT version_num, {stamp}{now} FROM alembic_version") as (connection, result):
                row: tuple[Any, ...] = tuple(result.first() or ())
                if not row:
                    raise self._missing()
                if row[0] != REVISION:
                    raise _unsuitable(row[0])
                moment = row[-1].astimezone(UTC) if now and self.clock is utc_now else self.clock()
                stamps = {_REGISTRY: row[1]}
                tx = Transaction(connection, moment, brief, before=self._remembered, stamps=stamps)
                yield tx
        except _NoTables:
            raise self._missing() from None
        self._remembered.update(tx.read)

    @contextmanager
    def rehearsing(self) -> Iterator[Transaction]:
        """Open a writing transaction that is always rolled back."""
        with suppress(_Undone), self.writing() as tx:
            yield tx
            raise _Undone

    @contextmanager
    def _snapshot(self, query: str) -> Iterator[_Begun]:
        """Open a read-only transaction, whatever the tables, with the result of a query."""
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ" if self.dialect == "postgresql" else "BEGIN"
        with self._translated(), self._transaction(begin, query) as begun:
            yield begun

    @contextmanager
    def _exclusive(self, query: str) -> Iterator[_Begun]:
        """Open a writing transaction, whatever the tables, with the result of a query."""
        begin = ["BEGIN IMMEDIATE"]
        if self.dialect == "postgresql":  # a snapshot taken before the lock is granted would be stale
            begin = ["BEGIN ISOLATION LEVEL READ COMMITTED", f"SELECT pg_advisory_xact_lock({_LOCK})"]
        turn = nullcontext() if self._queue is None else self._queue.turn()
        with self._translated(), turn, self._transaction(*begin, query) as begun:
            yield begun

    @contextmanager
    def _transaction(self, *statements: str) -> Iterator[_Begun]:
        """Execute statements, the first of which begins a transaction, in one round trip to PostgreSQL.

        A connection that the database closed while it was in the pool is replaced.
        """
        together = ("; ".join(statements),) if self.dialect == "postgresql" else statements
        for again in (True, False):
            connection = self._engine.connect()
            try:
                transaction = connection.begin()
                results = [connection.exec_driver_sql(each) for each in together]
                break
            except BaseException as error:
                connection.close()
                if isinstance(error, DBAPIError) and error.connection_invalidated and again:
                    continue
                if isinstance(error, DBAPIError) and _lacks_table(error):
                    raise _NoTables from None
                raise
        with connection, transaction:
            yield connection, results[-1]

    def _missing(self) -> CatalogError:
        return CatalogError(f"there is no catalog at {self.shown_url}", hint="Create one with: kilonova init")

    def _require_file(self) -> None:
        """Check that the file of an SQLite database exists, which would otherwise be created."""
        if not self._has_file():
            raise self._missing()

    @property
    def _file(self) -> Path | None:
        """The file of an SQLite database; None if it is in memory, or another database."""
        file = make_url(self.url).database if self.dialect == "sqlite" else None
        return Path(file) if file else None

    def _has_file(self) -> bool:
        try:
            return self._file is None or self._file.exists()
        except PermissionError:  # opening it tells more
            return True

    def watching(self) -> Connection:
        """Return an autocommit connection for detecting commits of other connections."""
        return self._engine.connect()

    def create(self) -> None:
        """Create the tables of this release, or upgrade those of an older revision.

        Raises:
            CatalogError: the catalog was created by a newer release, or by one that is too old.
        """
        from alembic import command
        from alembic.util import CommandError

        found = self.revision()
        if found == REVISION:
            return
        if found is not None and found < _OLDEST:
            raise _unsuitable(found)
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._exclusive("SELECT 1") as (connection, _):
            if self.dialect == "postgresql":
                connection.execute(text("SET LOCAL statement_timeout = 0"))
            try:
                command.upgrade(_alembic_config(connection), REVISION)
            except CommandError:
                raise _unsuitable(str(found)) from None
            if connection.execute(select(tables.identity.c.name)).first() is None:
                connection.execute(insert(tables.identity).values(name=IDENTITY, value=uuid.uuid4().hex[:8]))

    def revision(self) -> str | None:
        """Return the revision of the existing tables; None if there are none."""
        if not self._has_file():
            return None
        with self._snapshot("SELECT 1") as (connection, _):
            if not self._engine.dialect.has_table(connection, "alembic_version"):
                return None
            return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()

    def identity(self) -> str:
        """Return the identity of the catalog, which distinguishes its blocks from those of other catalogs.

        Raises:
            CatalogError: there is no catalog, or it is older or newer than this release.
        """
        with self.reading() as tx:
            return tx.identity()

    @property
    def shown_url(self) -> str:
        """URL without its passwords."""
        return without_passwords(self.url)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()
        if self._queue is not None:
            self._queue.close()

    def _said(self, error: DBAPIError) -> str:
        """Return the message of a database error, without the URL's passwords."""
        message = " ".join(str(error.orig).split())
        for secret in _passwords(make_url(self.url)):
            message = message.replace(secret, _MASK)
        return message

    def _unreachable(self, error: DBAPIError) -> CatalogUnavailable:
        return CatalogUnavailable(
            f"the catalog at {self.shown_url} cannot be reached: {self._said(error)}",
            hint="Check that the database runs and that the URL is right",
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KilonovaError:
            raise
        except UnicodeEncodeError as error:
            raise DeclarationError(f"the catalog cannot hold {error.object!a}", hint="Use valid Unicode") from None
        except OperationalError as error:
            if (waited := _WAITS.get(getattr(error.orig, "sqlstate", ""))) is not None:
                raise Conflict(f"the catalog is busy: {waited}", hint="Try again") from error
            if "locked" in str(error.orig) or "busy" in str(error.orig):
                raise Conflict("the catalog is locked by another process", hint="Try again") from error
            if _code(error.orig) in _FULL:
                raise CatalogFull(
                    f"the disk of the catalog is full: {error.orig}",
                    hint="Free some space: kilonova gc deletes what is not needed any more",
                ) from error
            if "readonly" in str(error.orig):
                raise CatalogError(f"the catalog cannot be written: {error.orig}") from error
            raise self._unreachable(error) from error
        except DataError as error:
            raise DeclarationError(f"the catalog cannot hold a value: {error.orig}", hint="Use another name") from None
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) == _HUNG:
                raise CatalogUnavailable(
                    "the database ended the transaction, because it was idle for too long",
                    hint="Try again; nothing was written",
                ) from error
            if error.connection_invalidated:
                raise self._unreachable(error) from error
            if "malformed" in str(error.orig) or "not a database" in str(error.orig):
                raise CatalogError(f"{self.shown_url} is not a catalog: {self._said(error)}") from error
            raise CatalogError(f"the database rejected the statement: {self._said(error)}") from error


_MASK = "***"
"""Replacement for a password that is not shown."""

_SECRET = re.compile("pass|secret|token|key", re.IGNORECASE)
"""Pattern of the names of URL parameters that are not shown."""


def without_passwords(url: str) -> str:
    """Mask the passwords of a database URL: that of its user, and those among its parameters.

    >>> without_passwords("postgresql://me:a@host/db?sslmode=require&sslpassword=b")
    'postgresql://me:***@host/db?sslmode=require&sslpassword=***'
    """
    made = make_url(url)
    query = {name: _MASK if _SECRET.search(name) else value for name, value in made.query.items()}
    shown = made.set(query=query).render_as_string(hide_password=True)
    return shown.replace(quote_plus(_MASK), _MASK)


def _passwords(url: URL) -> list[str]:
    """Return the passwords in a database URL, the longest first."""
    given = [each for name, value in url.query.items() if _SECRET.search(name) for each in _all(value)]
    return sorted({each for each in (url.password, *given) if each}, key=len, reverse=True)


def _all(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _code(error: BaseException | None) -> str | None:
    """Return the database's code of an error, from SQLite's or PostgreSQL's attribute."""
    code: str | None = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    return code


def _lacks_table(error: DBAPIError) -> bool:
    return _code(error.orig) == "42P01" or "no such table" in str(error.orig)


def _unsuitable(found: str) -> CatalogError:
    """Return the error for a catalog of another revision than this release requires."""
    if found < _OLDEST:
        return CatalogError(
            f"the catalog was created by a release that cannot be upgraded (revision {found})",
            hint="Remove the catalog and rebuild it from its warehouse with: kilonova recover. Nothing was changed",
        )
    if found < REVISION:
        return CatalogError(f"the catalog is at revision {found}", hint="Upgrade it with: kilonova init")
    return CatalogError(
        f"the catalog was created by a newer release (revision {found}, this release knows up to {REVISION})",
        hint="Upgrade Kilonova; nothing was changed",
    )


def _alembic_config(connection: Connection) -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "revisions").replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _engine(url: str, alone: bool) -> Engine:
    if not url.startswith("sqlite"):
        given = make_url(url).query
        options = {name: value for name, value in _CONNECTION.items() if name not in given}
        engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args=options)

        @event.listens_for(engine, "connect")
        def limited(connection: Any, _record: Any) -> None:
            connection.execute("".join(f"SET {name} = '{seconds}s';" for name, seconds in _SESSION.items()))

        @event.listens_for(engine, "after_cursor_execute")
        def executed(_connection: Connection, cursor: Any, statement: str, *_rest: Any) -> None:
            if statement.startswith("BEGIN"):  # of several statements, the result is that of the last
                cursor.set_result(-1)

        return engine
    engine = create_engine(url, connect_args={"timeout": _PATIENCE, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        if alone:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA cache_spill=OFF")  # write nothing before the commit
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    return engine
