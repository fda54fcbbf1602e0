"""Waiting for a change in a catalog: a commit of another connection, or a timeout.

PostgreSQL notifies (`NOTIFY` within the transaction that writes an event); an SQLite file has a version number that
changes with each commit, which is polled every few milliseconds. Both may wake spuriously, and neither reports what has
changed: that is read from the events.
"""

from __future__ import annotations

import queue
import time
from contextlib import suppress

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from kilonova.catalog.database import NOTICE, Catalog

_PAUSE = 0.02
"""Seconds between polls of an SQLite file, and maximum delay until a nudge is noticed."""


class ChangeNotifier:
    """Listener that wakes when the catalog may have changed.

    Args:
        catalog: the catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._nudges: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._seen = -1

    def nudge(self) -> None:
        """Wake the waiting thread, from another thread or from a signal handler.

        A signal handler may interrupt `wait` anywhere: a lock that is not reentrant, such as that of an event, may be
        held there.
        """
        self._nudges.put(None)

    def wait(self, seconds: float, *, gather: bool = False) -> None:
        """Wait until the catalog may have changed, for at most the given number of seconds.

        While the database is unreachable, wait for the whole time or until a nudge.

        Args:
            seconds: the number of seconds.
            gather: whether to wait for a moment before any change is noticed, so that several are noticed together;
                nudges are noticed at once.
        """
        until = time.monotonic() + seconds
        nudged = False
        if gather:
            with suppress(queue.Empty):
                self._nudges.get(timeout=min(_PAUSE, seconds))
                nudged = True
        try:
            connection = self._opened()
            while not nudged and self._nudges.empty() and (left := until - time.monotonic()) > 0:
                if self._stirred(connection, min(_PAUSE, left)):
                    break
        except (SQLAlchemyError, OSError, _driver_error()):
            self.close()
            with suppress(queue.Empty):
                self._nudges.get(timeout=max(0.0, until - time.monotonic()))
        while not self._nudges.empty():
            self._nudges.get()

    def _opened(self) -> Connection:
        if self._connection is None:
            self._connection = self._catalog.watching()
            if self._catalog.dialect == "postgresql":
                self._connection.execute(text(f"LISTEN {NOTICE}"))
            self._seen = -1  # earlier commits count as a change
        return self._connection

    def _stirred(self, connection: Connection, seconds: float) -> bool:
        if self._catalog.dialect == "postgresql":
            fresh, self._seen = self._seen == -1, 0
            driver = connection.connection.driver_connection
            assert driver is not None
            stirred = any([True for _ in driver.notifies(timeout=seconds, stop_after=1)])
            for _ in driver.notifies(timeout=0):  # of other changes that are noticed with this one
                stirred = True
            return fresh or stirred
        time.sleep(seconds)
        seen = connection.exec_driver_sql("PRAGMA data_version").scalar()
        before, self._seen = self._seen, int(seen or 0)
        return before != self._seen

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.invalidate()
            connection.close()


def _driver_error() -> type[Exception]:
    import psycopg

    return psycopg.Error
