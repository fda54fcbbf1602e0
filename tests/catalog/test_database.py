"""Making, checking and refusing databases."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, insert, inspect, select, text
from sqlalchemy.exc import InterfaceError

from kilonova.catalog import database, tables
from kilonova.catalog.database import REVISION, Catalog
from kilonova.errors import CatalogError, CatalogUnavailable, Conflict
from tests.databases import NOON, contents, empty_database


def execute(url: str, *statements: str) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def test_an_empty_database_is_no_catalog(url: str) -> None:
    catalog = Catalog(url)
    assert catalog.revision() is None
    with pytest.raises(CatalogError, match="there is no catalog"):
        catalog.identity()
    if catalog.dialect == "sqlite":
        assert not Path(url.removeprefix("sqlite:///")).exists()


def test_a_created_catalog_keeps_its_identity(url: str) -> None:
    catalog = Catalog(url)
    catalog.create()
    identity = catalog.identity()
    before = contents(catalog)
    catalog.create()
    assert catalog.identity() == Catalog(url).identity() == identity
    assert contents(catalog) == before


def test_two_catalogs_have_two_identities(catalog: Catalog, tmp_path: Path) -> None:
    other = Catalog(f"sqlite:///{tmp_path}/other.db")
    other.create()
    assert other.identity() != catalog.identity()


def test_the_folder_of_the_file_is_made(tmp_path: Path) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path}/deep/down/100% here/catalog.db")
    catalog.create()
    assert catalog.identity()


def test_several_processes_may_create_it_at_once(url: str) -> None:
    catalogs = [Catalog(url) for _ in range(4)]
    threads = [threading.Thread(target=catalog.create) for catalog in catalogs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({catalog.identity() for catalog in catalogs}) == 1


def test_creation_is_all_or_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    catalog = Catalog(url)
    with monkeypatch.context() as patch:
        patch.setattr(database.uuid, "uuid4", crash)
        with pytest.raises(KeyboardInterrupt):
            catalog.create()
    assert catalog.revision() is None
    catalog.create()
    assert catalog.identity()


def test_the_revisions_make_exactly_the_declared_tables(catalog: Catalog) -> None:
    with catalog.reading() as tx:
        context = MigrationContext.configure(tx.connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []


def test_the_revisions_name_indices_and_keys_as_the_tables_do(catalog: Catalog, tmp_path: Path) -> None:
    """Alembic's comparison passes over primary keys, defaults and the order of columns."""
    plain = create_engine(f"sqlite:///{tmp_path}/plain.db") if catalog.dialect == "sqlite" else None

    def shape(connection: object) -> dict[str, object]:
        found = inspect(connection)
        return {
            name: (
                [(c["name"], str(c["type"]), c["nullable"], c.get("default")) for c in found.get_columns(name)],
                found.get_pk_constraint(name)["constrained_columns"],
                sorted((*k["constrained_columns"], k["referred_table"]) for k in found.get_foreign_keys(name)),
                sorted((i["name"], tuple(i["column_names"]), bool(i["unique"])) for i in found.get_indexes(name)),
                sorted(tuple(u["column_names"]) for u in found.get_unique_constraints(name)),
            )
            for name in found.get_table_names()
            if name != "alembic_version"
        }

    with catalog.writing() as tx:
        revised = shape(tx.connection)
        if plain is None:
            tx.connection.execute(text("DROP TABLE alembic_version"))
            tables.metadata.drop_all(tx.connection)
            tables.metadata.create_all(tx.connection)
            declared = shape(tx.connection)
    if plain is not None:
        with plain.begin() as connection:
            tables.metadata.create_all(connection)
            declared = shape(connection)
        plain.dispose()
    assert revised == declared


def test_the_newest_revision_is_the_one_that_the_release_asks_for() -> None:
    folder = Path(database.__file__).parent / "revisions"
    assert ScriptDirectory(str(folder)).get_heads() == [REVISION]


def test_a_newer_catalog_is_refused_and_left_alone(catalog: Catalog) -> None:
    with catalog.writing() as tx:
        tx.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = contents(catalog)
    with pytest.raises(CatalogError, match="newer release"):
        catalog.identity()
    with pytest.raises(CatalogError, match="newer release"):
        catalog.create()
    assert contents(catalog) == before
    assert catalog.revision() == "9999"


def test_transactions_of_a_process_that_had_the_catalog_open_are_refused_once_another_release_upgraded_it(
    catalog: Catalog,
) -> None:
    with catalog.reading() as tx:
        assert tx.identity()
    execute(catalog.url, "UPDATE alembic_version SET version_num = '9999'")
    before = contents(catalog)
    for begin in (catalog.reading, catalog.writing, catalog.rehearsing):
        with pytest.raises(CatalogError, match="newer release"), begin() as tx:
            tx.connection.execute(text("DELETE FROM identity"))
    assert contents(catalog) == before
    execute(catalog.url, f"UPDATE alembic_version SET version_num = '{REVISION}'")
    with catalog.writing() as tx:
        assert tx.identity()


def test_a_writer_that_waited_for_an_upgrade_is_refused(catalog: Catalog) -> None:
    refused: list[str] = []

    def write() -> None:
        with pytest.raises(CatalogError, match="newer release") as error, catalog.writing():
            raise AssertionError("the transaction has begun")
        refused.append(str(error.value))

    waiting = threading.Thread(target=write)
    with Catalog(catalog.url).writing() as tx:
        waiting.start()
        time.sleep(0.2)
        tx.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    waiting.join(60)
    assert len(refused) == 1


def test_a_catalog_whose_tables_were_dropped_is_none(catalog: Catalog) -> None:
    execute(catalog.url, "DROP TABLE alembic_version")
    for begin in (catalog.reading, catalog.writing):
        with pytest.raises(CatalogError, match=r"there is no catalog.*kilonova init"), begin():
            pass


def test_a_catalog_that_is_too_old_is_refused_and_left_alone(catalog: Catalog) -> None:
    with catalog.writing() as tx:
        tx.connection.execute(text("UPDATE alembic_version SET version_num = '0025'"))
    before = contents(catalog)
    for attempt in (catalog.identity, catalog.create):
        with pytest.raises(CatalogError, match=r"cannot be upgraded \(revision 0025\).*kilonova recover"):
            attempt()
    assert contents(catalog) == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("to do: buy milk\n" * 500)
    catalog = Catalog(f"sqlite:///{file}")
    for attempt in (catalog.identity, catalog.create, catalog.revision):
        with pytest.raises(CatalogError, match="not a catalog"):
            attempt()
    assert file.read_text() == "to do: buy milk\n" * 500


def test_another_programs_database_is_no_catalog(url: str) -> None:
    execute(url, "CREATE TABLE channel (frequency INTEGER)")
    catalog = Catalog(url)
    with pytest.raises(CatalogError, match="there is no catalog"):
        catalog.identity()
    with pytest.raises(CatalogError):
        catalog.create()
    assert catalog.revision() is None


@contextmanager
def powerless() -> Iterator[None]:
    """Not as root, whom no permission stops."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_read_only_file_is_distinguished(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("readable")
    for place in (folder, *folder.parents):
        if place.stat().st_uid == os.getuid() and len(place.parts) > 2:
            place.chmod(place.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    url = f"sqlite:///{folder}/catalog.db"
    made = Catalog(url)
    made.create()
    made.close()
    (folder / "catalog.db").chmod(0o444)
    folder.chmod(0o555)
    catalog = Catalog(url)
    with powerless():
        with pytest.raises(CatalogError, match="cannot be"), catalog.writing():
            pass
        catalog.close()
    folder.chmod(0o755)


def test_an_unknown_kind_of_database_is_refused() -> None:
    for url in (
        "oracle+none://there/x",
        "no url at all",
        "mongodb://there/x",
        "mysql+oursql://there/x",
        "mysql://there/x",
    ):
        with pytest.raises(CatalogError, match="cannot be used"):
            Catalog(url)


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    catalog = Catalog("postgresql://me:secret@127.0.0.1:1/kilonova")
    with pytest.raises(CatalogError, match="cannot be reached") as caught:
        catalog.identity()
    assert "secret" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


def test_an_error_within_a_transaction_undoes_it(catalog: Catalog) -> None:
    before = contents(catalog)

    def interrupted() -> None:
        with catalog.writing() as tx:
            tx.connection.execute(insert(tables.identity).values(name="more", value="x"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert contents(catalog) == before


def test_a_reader_sees_one_moment(catalog: Catalog) -> None:
    names = select(tables.identity.c.name)
    with catalog.reading() as reader:
        assert reader.connection.execute(names).scalars().all() == ["catalog"]
        with catalog.writing() as writer:
            writer.connection.execute(insert(tables.identity).values(name="more", value="x"))
        assert reader.connection.execute(names).scalars().all() == ["catalog"]
    with catalog.reading() as reader:
        assert sorted(reader.connection.execute(names).scalars()) == ["catalog", "more"]


def test_writers_come_one_after_the_other(catalog: Catalog) -> None:
    """Everybody reads a number and writes the next; none is lost."""
    number = tables.identity.c.value
    with catalog.writing() as tx:
        tx.connection.execute(insert(tables.identity).values(name="n", value="0"))

    def count() -> None:
        mine = Catalog(catalog.url)
        for _ in range(10):
            with mine.writing() as tx:
                here = tables.identity.c.name == "n"
                seen = int(tx.connection.execute(select(number).where(here)).scalar_one())
                tx.connection.execute(tables.identity.update().where(here).values(value=str(seen + 1)))
        mine.close()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with catalog.reading() as tx:
        assert tx.connection.execute(select(number).where(tables.identity.c.name == "n")).scalar_one() == "40"


def test_a_writer_that_waits_too_long_gets_a_transient_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    one, two = Catalog(url), Catalog(url)
    one.create()

    def hasty() -> None:
        with two.reading() as tx:
            tx.connection.exec_driver_sql("PRAGMA busy_timeout = 10")
            tx.connection.execute(insert(tables.identity).values(name="more", value="x"))

    with one.writing(), pytest.raises(Conflict):
        hasty()


@pytest.fixture
def postgresql() -> Iterator[str]:
    with empty_database("postgresql") as url:
        Catalog(url).create()
        yield url


@pytest.mark.parametrize(("closed", "kind"), [(True, CatalogUnavailable), (False, CatalogError)])
def test_a_connection_that_the_database_has_closed_is_one_to_wait_for(
    tmp_path: Path, closed: bool, kind: type[CatalogError]
) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path}/catalog.db")
    catalog.create()
    with pytest.raises(CatalogError) as told, catalog.reading():
        raise InterfaceError("SELECT 1", {}, Exception("the cursor is closed"), connection_invalidated=closed)
    assert type(told.value) is kind
    catalog.close()


def test_a_client_that_hangs_within_a_transaction_loses_the_lock(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database._SESSION, "idle_in_transaction_session_timeout", 1)
    hanging, other = Catalog(postgresql), Catalog(postgresql)

    def hang() -> None:
        with hanging.writing() as held:
            with other.writing() as tx:  # granted once the database has ended the other's session
                tx.connection.execute(insert(tables.identity).values(name="other", value="written"))
            held.connection.execute(insert(tables.identity).values(name="hanging", value="lost"))

    with pytest.raises(CatalogUnavailable, match="was idle for too long"):
        hang()
    with other.reading() as tx:
        names = set(tx.connection.execute(select(tables.identity.c.name)).scalars())
    assert names == {"catalog", "other"}


def test_a_writer_does_not_wait_for_the_lock_for_ever(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database._SESSION, "lock_timeout", 1)
    holder, other = Catalog(postgresql), Catalog(postgresql)
    with holder.writing(), pytest.raises(Conflict, match="another process holds its lock"), other.writing():
        pass
    with other.writing():
        pass


def test_a_statement_that_takes_too_long_is_ended(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database._SESSION, "statement_timeout", 1)
    with pytest.raises(Conflict, match="took too long"), Catalog(postgresql).reading() as tx:
        tx.connection.execute(text("SELECT pg_sleep(60)"))


def test_servers_share_the_clock_of_the_database(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is wrong must not take others' leases for expired."""
    monkeypatch.setattr(database, "utc_now", lambda: NOON)
    catalog = Catalog(url, database.utc_now)
    catalog.create()
    for begin in (catalog.reading, catalog.writing):
        with begin() as tx:
            assert (tx.now == NOON) == (catalog.dialect == "sqlite")
            assert tx.now.utcoffset() == timedelta(0)


@pytest.mark.parametrize("name", ["password", "sslpassword"])
def test_passwords_among_the_parameters_of_a_url_are_masked(name: str) -> None:
    away = Catalog(f"postgresql://me@127.0.0.1:9/kilonova?{name}=hunter2&application_name=us")
    with pytest.raises(CatalogUnavailable) as told:
        away.identity()
    assert "hunter2" not in str(told.value)
    assert f"{name}=***" in str(told.value)


@pytest.mark.parametrize("url", ["postgresql://me@host:hunter2/db", "nothing://me:hunter2@host", "hunter2"])
def test_a_url_that_cannot_be_is_not_repeated(url: str) -> None:
    with pytest.raises(CatalogError) as told:
        Catalog(url)
    assert "hunter2" not in str(told.value)


def test_connections_that_the_database_closed_in_the_pool_are_replaced(postgresql: str) -> None:
    catalog = Catalog(postgresql)
    catalog.create()
    with catalog.reading() as tx, catalog.reading() as other:
        pids = [each.connection.execute(text("SELECT pg_backend_pid()")).scalar() for each in (tx, other)]
    execute(catalog.url, *(f"SELECT pg_terminate_backend({pid})" for pid in pids))
    with catalog.writing() as tx, catalog.reading() as other:
        assert tx.identity() == other.identity()
