"""Where transactions begin.

`Catalog.reading()` gives a consistent snapshot; `Catalog.writing()` a transaction that is alone in writing:
SQLite's `BEGIN IMMEDIATE`, and an advisory lock on PostgreSQL. Writing transactions are a few statements
long and never wait for Spark, so one at a time is enough, and what holds for one database holds for both.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Engine,
    Table,
    Text,
    cast,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DataError, DBAPIError, NoSuchModuleError, OperationalError, SQLAlchemyError

from kilonova.catalog import tables
from kilonova.catalog.remembered import Remembered
from kilonova.errors import Busy, CatalogAway, CatalogError, CatalogFull, DeclarationError, KilonovaError

_LOCK = 0x6B696C6F6E6F7661
"""The advisory lock that writers of a PostgreSQL catalog take; one catalog has one database."""

NOTICE = "kilonova"
"""The channel on which a PostgreSQL catalog says that something has happened."""

REVISION = "0022"
"""The revision of the tables that this release works with."""


_PATIENCE = 60
"""Seconds for which a writer waits for others."""

_SESSION = {"lock_timeout": _PATIENCE, "statement_timeout": 120, "idle_in_transaction_session_timeout": 30}
"""Time limits of a PostgreSQL session in seconds: a client that hangs within a transaction, or is cut off, is ended by
the database, which frees the writers' lock."""

_CONNECTION = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Options of libpq with which either side notices within half a minute that the other is gone."""

_WAITS = {"55P03": "another process holds its lock", "57014": "a statement took too long"}
"""PostgreSQL's error codes for what its limits end."""

_FULL = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "53100")
"""Error codes for a full disk; SQLite needs room for reading, too, if nobody else has the database open."""

_HUNG = "25P03"
"""PostgreSQL's error code for a session that was ended because it did nothing within a transaction."""


def utc_now() -> datetime:
    """The present moment."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open transaction.

    Attributes:
        connection: the connection.
        now: the moment at which it began.
        channels: the numbers of channels that were looked up in it, by name.
        before: what transactions of this process have read before it.
        read: what it has read itself.
    """

    connection: Connection
    now: datetime
    channels: dict[str, int] = field(default_factory=dict)
    before: Remembered = field(default_factory=Remembered)
    read: Remembered = field(default_factory=Remembered)

    def identity(self) -> str:
        """The identity of the catalog, by which its blocks are told from those of others."""
        return str(self.connection.execute(select(tables.identity.c.value)).scalar_one())


def inserted(result: CursorResult[Any]) -> int:
    """The number that the database gave to an inserted row."""
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])


def insert_all(tx: Transaction, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows, if there are any, all with the same columns."""
    if rows:
        tx.connection.execute(insert(table), rows)


def naming(tx: Transaction, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Where a JSON column has a name somewhere, which is looked up row by row.

    Unlike LIKE it tells capitals from small letters on SQLite; and PostgreSQL, which takes what LIKE finds for rare,
    goes on reading in the order of an index instead of sorting all that there is.
    """
    place = func.strpos if tx.connection.dialect.name == "postgresql" else func.instr
    return place(cast(column, Text), json.dumps(name)) > 0


class _Undone(Exception):
    """Ends a transaction without committing it."""


class Catalog:
    """The metadata database.

    Args:
        url: an SQLAlchemy URL, `sqlite:///…` or `postgresql://…`.
        clock: gives the present moment; tests pass their own. Unless they do, transactions on PostgreSQL take the
            database's time, so that leases are compared by one clock, and those on SQLite the machine's.
        alone: keep other processes out of an SQLite database, which can then be read though its disk is full.

    Raises:
        CatalogError: the URL is of no known kind.
    """

    def __init__(self, url: str, clock: Callable[[], datetime] = utc_now, *, alone: bool = False) -> None:
        self.url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        self.clock = clock
        self._turn = threading.Lock()
        self._remembered = Remembered()
        try:
            self._engine = _engine(self.url, alone)
        except (NoSuchModuleError, SQLAlchemyError, ValueError):  # whose texts may quote the URL, password and all
            raise CatalogError(
                "the catalog's URL cannot be used",
                hint="Use sqlite:///path or postgresql://host/database; write %2F for / and %40 for @ in a password",
            ) from None

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that sees one moment of the catalog and writes nothing."""
        with self._translated():
            options: dict[str, Any] = {"kilonova_begin": "BEGIN"}
            if self.dialect == "postgresql":
                options["isolation_level"] = "REPEATABLE READ"
            with self._engine.connect().execution_options(**options) as connection, connection.begin():
                tx = Transaction(connection, self._now(connection), before=self._remembered)
                yield tx
        self._remembered.update(tx.read)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that is the only one writing; it commits at the end of the block, or not at all."""
        with self._translated(), self._queued():
            options: dict[str, Any] = {"kilonova_begin": "BEGIN IMMEDIATE"}
            if self.dialect == "postgresql":  # a snapshot taken before the lock is granted would be stale
                options["isolation_level"] = "READ COMMITTED"
            with self._engine.connect().execution_options(**options) as connection, connection.begin():
                if self.dialect == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
                tx = Transaction(connection, self._now(connection), before=self._remembered)
                yield tx
        self._remembered.update(tx.read)

    @contextmanager
    def rehearsing(self) -> Iterator[Transaction]:
        """A transaction that writes, and of which nothing stays."""
        with suppress(_Undone), self.writing() as tx:
            yield tx
            raise _Undone

    def _now(self, connection: Connection) -> datetime:
        """Return the present moment: after a wait for the writers' lock, not before it."""
        if self.dialect == "sqlite" or self.clock is not utc_now:
            return self.clock()
        now: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        return now.astimezone(UTC)

    @contextmanager
    def _queued(self) -> Iterator[None]:
        """Let the writers of this process wait in a queue: SQLite lets them poll, more and more seldom."""
        if self.dialect != "sqlite":
            yield
            return
        if not self._turn.acquire(timeout=_PATIENCE):
            raise Busy("the catalog is locked by this process", hint="Try again")
        try:
            yield
        finally:
            self._turn.release()

    def watching(self) -> Connection:
        """A connection outside of transactions, by which to see that something has been committed."""
        return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT", kilonova_begin="")

    def create(self) -> None:
        """Bring the database to this release's tables, from nothing or from an older revision.

        Raises:
            CatalogError: it was made by a newer release.
        """
        from alembic import command
        from alembic.util import CommandError

        found = self.revision()
        if found == REVISION:
            return
        if self.dialect == "sqlite" and (file := make_url(self.url).database):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        with self.writing() as tx:
            if self.dialect == "postgresql":
                tx.connection.execute(text("SET LOCAL statement_timeout = 0"))
            try:
                command.upgrade(_alembic_config(tx.connection), REVISION)
            except CommandError:
                raise _newer(found) from None
            known = tx.connection.execute(select(tables.identity.c.name)).first()
            if known is None:
                tx.connection.execute(insert(tables.identity).values(name="catalog", value=uuid.uuid4().hex[:8]))

    def revision(self) -> str | None:
        """The revision of the tables found; None where there are none."""
        if self.dialect == "sqlite":
            file = make_url(self.url).database
            if file and not Path(file).exists():
                return None
        with self.reading() as tx:
            if not self._engine.dialect.has_table(tx.connection, "alembic_version"):
                return None
            return tx.connection.execute(text("SELECT version_num FROM alembic_version")).scalar()

    def check(self) -> str:
        """Refuse a database that is not at this release's revision.

        Returns:
            The identity of the catalog, by which its blocks are told from those of others.

        Raises:
            CatalogError: there is no catalog, or it is older or newer than this release.
        """
        found = self.revision()
        if found is None:
            raise CatalogError(f"there is no catalog at {self.shown_url}", hint="Make one with: kilonova init")
        if found != REVISION:
            if found < REVISION:
                raise CatalogError(f"the catalog is at revision {found}", hint="Bring it up with: kilonova init")
            raise _newer(found)
        with self.reading() as tx:
            return tx.identity()

    @property
    def shown_url(self) -> str:
        """The URL without its passwords."""
        return without_passwords(self.url)

    def close(self) -> None:
        """Give all connections back."""
        self._engine.dispose()

    def _said(self, error: DBAPIError) -> str:
        """What the database said, without the URL's passwords."""
        said = str(error.orig)
        for secret in _passwords(make_url(self.url)):
            said = said.replace(secret, _MASK)
        return said

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KilonovaError:
            raise
        except UnicodeEncodeError as error:
            raise DeclarationError(f"the catalog cannot hold {error.object!a}", hint="Use whole characters") from None
        except OperationalError as error:
            if (waited := _WAITS.get(getattr(error.orig, "sqlstate", ""))) is not None:
                raise Busy(f"the catalog is busy: {waited}", hint="Try again") from error
            if "locked" in str(error.orig) or "busy" in str(error.orig):
                raise Busy("the catalog is locked by another process", hint="Try again") from error
            if _code(error.orig) in _FULL:
                raise CatalogFull(
                    f"the disk of the catalog is full: {error.orig}",
                    hint="Free some room: kilonova gc deletes what is not needed any more",
                ) from error
            if "readonly" in str(error.orig):
                raise CatalogError(f"the catalog cannot be written: {error.orig}") from error
            raise CatalogAway(
                f"the catalog at {self.shown_url} cannot be reached: {self._said(error)}",
                hint="Check that the database runs and that the URL is right",
            ) from error
        except DataError as error:
            raise DeclarationError(f"the catalog cannot hold a value: {error.orig}", hint="Use another name") from None
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) == _HUNG:
                raise CatalogAway(
                    "the database ended the transaction, because this process did nothing in it for too long",
                    hint="Try again; nothing was written",
                ) from error
            if "malformed" in str(error.orig) or "not a database" in str(error.orig):
                raise CatalogError(f"{self.shown_url} is not a catalog: {self._said(error)}") from error
            raise CatalogError(f"the catalog refused: {self._said(error)}") from error


_MASK = "***"
"""Stands where a password is not shown."""

_SECRET = re.compile("pass|secret|token|key", re.IGNORECASE)
"""What occurs in the names of a URL's parameters that are not shown."""


def without_passwords(url: str) -> str:
    """A database's URL as it may be shown: without the password of its user, and those among its parameters.

    >>> without_passwords("postgresql://me:a@host/db?sslmode=require&sslpassword=b")
    'postgresql://me:***@host/db?sslmode=require&sslpassword=***'
    """
    made = make_url(url)
    query = {name: _MASK if _SECRET.search(name) else value for name, value in made.query.items()}
    shown = made.set(query=query).render_as_string(hide_password=True)
    return shown.replace(quote_plus(_MASK), _MASK)


def _passwords(url: URL) -> list[str]:
    """The passwords in a database's URL, the longest first."""
    given = [each for name, value in url.query.items() if _SECRET.search(name) for each in _all(value)]
    return sorted({each for each in (url.password, *given) if each}, key=len, reverse=True)


def _all(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _code(error: BaseException | None) -> str | None:
    """The database's code of an error, which has another name in SQLite than in PostgreSQL."""
    code: str | None = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    return code


def _newer(found: str | None) -> CatalogError:
    return CatalogError(
        f"the catalog was made by a newer release (revision {found}, this release knows up to {REVISION})",
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
        engine = create_engine(url, pool_pre_ping=True, connect_args=options)

        @event.listens_for(engine, "connect")
        def limited(connection: Any, _record: Any) -> None:
            limits = "".join(f"SET {name} = '{seconds}s';" for name, seconds in _SESSION.items())
            connection.execute(limits)
            connection.commit()

        return engine
    engine = create_engine(url, connect_args={"timeout": _PATIENCE, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        if alone:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA cache_spill=OFF")  # nothing is written before the commit
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        if begin := connection.get_execution_options().get("kilonova_begin", "BEGIN"):
            connection.exec_driver_sql(begin)

    return engine
