"""The queue of the writers of an SQLite catalog, whatever becomes of its processes and its file."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from kilonova.catalog.database import Catalog
from kilonova.catalog.writer_queue import WriterQueue
from kilonova.errors import Conflict

_HOLDER = """
import sys
from pathlib import Path
from kilonova.catalog.writer_queue import WriterQueue
with WriterQueue(Path(sys.argv[1]), 10).turn():
    print("mine", flush=True)
    sys.stdin.readline()
"""

_COUNTER = """
import sys
from sqlalchemy import text
from kilonova.catalog.database import Catalog
catalog = Catalog(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    with catalog.writing() as tx:
        before = tx.connection.execute(text("SELECT value FROM identity WHERE name = 'count'")).scalar()
        after = {"value": int(before) + 1}
        tx.connection.execute(text("UPDATE identity SET value = :value WHERE name = 'count'"), after)
"""


@contextmanager
def process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run code in a process that has said its first word, and reads a line before it goes on."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline()
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def go_on(waiting: subprocess.Popen[str]) -> None:
    assert waiting.stdin is not None
    waiting.stdin.write("\n")
    waiting.stdin.flush()


def test_a_writer_waits_for_that_of_another_process(tmp_path: Path) -> None:
    queue, had = WriterQueue(tmp_path / "catalog.db", 30), threading.Event()

    def wait() -> None:
        with queue.turn():
            had.set()

    with process(_HOLDER, tmp_path / "catalog.db") as holder:
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not had.wait(0.3)
        go_on(holder)
        assert had.wait(30)
        waiting.join()


def test_a_turn_ends_with_its_process(tmp_path: Path) -> None:
    with process(_HOLDER, tmp_path / "catalog.db") as holder:
        holder.kill()
        with WriterQueue(tmp_path / "catalog.db", 30).turn():
            pass


def test_a_writer_does_not_wait_for_ever_for_a_process_that_hangs(tmp_path: Path) -> None:
    with process(_HOLDER, tmp_path / "catalog.db") as holder:
        holder.send_signal(signal.SIGSTOP)
        queue = WriterQueue(tmp_path / "catalog.db", 0.2)
        with pytest.raises(Conflict, match="locked by another process"), queue.turn():
            pass
        holder.send_signal(signal.SIGCONT)
        go_on(holder)
        holder.wait(30)
        with queue.turn():
            pass


@pytest.mark.parametrize("database", ["missing/catalog.db", None], ids=["without a directory", "in memory"])
def test_where_no_file_can_be_locked_turns_are_taken_within_the_process(tmp_path: Path, database: str | None) -> None:
    queue = WriterQueue(database and tmp_path / database, 0.1)
    raised: list[BaseException] = []

    def take() -> None:
        try:
            with queue.turn():
                pass
        except Conflict as error:
            raised.append(error)

    with queue.turn():
        other = threading.Thread(target=take)
        other.start()
        other.join()
    assert "locked by this process" in str(raised[0])
    with queue.turn():
        pass
    assert list(tmp_path.iterdir()) == []


def test_transactions_of_several_processes_exclude_each_other_even_if_the_file_is_removed(tmp_path: Path) -> None:
    url, each = f"sqlite:///{tmp_path}/catalog.db", 60
    catalog = Catalog(url)
    catalog.create()
    with catalog.writing() as tx:
        tx.connection.execute(text("INSERT INTO identity (name, value) VALUES ('count', '0')"))
    with process(_COUNTER, url, each) as one, process(_COUNTER, url, each) as other:
        go_on(one)
        go_on(other)
        while one.poll() is None:
            (tmp_path / "catalog.db-queue").unlink(missing_ok=True)
            with process(_COUNTER, url, 1) as late:
                go_on(late)
                assert late.wait(60) == 0
            each += 1
        assert (one.wait(60), other.wait(60)) == (0, 0)
    with catalog.reading() as tx:
        found = tx.connection.execute(text("SELECT value FROM identity WHERE name = 'count'")).scalar()
    assert found == str(60 + each)
    catalog.close()


def test_closing_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    queue = WriterQueue(tmp_path / "catalog.db", 1)
    with queue.turn():
        queue.close()
    with queue.turn():
        pass


def test_a_closed_catalog_can_be_used_again(tmp_path: Path) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path}/catalog.db")
    catalog.create()
    catalog.close()
    with catalog.writing() as tx:
        assert tx.identity()
    catalog.close()
