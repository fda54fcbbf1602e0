"""Waiting until something may have happened in a catalog: what another connection has committed, or a time.

PostgreSQL tells (`NOTIFY` within the transaction that writes an event); an SQLite file has a number that changes with
each commit, which is looked at every few milliseconds. Either may wake for nothing, and neither tells what happened:
that is read from the events.
"""

from __future__ import annotations

import threading
import time

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from kilonova.catalog.database import NOTICE, Catalog

_PAUSE = 0.02
"""Seconds between looks at an SQLite file, and to a thread that has nudged."""


class Watch:
    """Wakes when something may have happened.

    Args:
        catalog: the catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._nudged = threading.Event()
        self._connection: Connection | None = None
        self._seen = -1

    def nudge(self) -> None:
        """Wake whoever waits, from another thread."""
        self._nudged.set()

    def wait(self, seconds: float) -> None:
        """Return as soon as something may have happened, after so many seconds at the latest.

        While the database cannot be reached this waits the whole time, or until there is a nudge.
        """
        until = time.monotonic() + seconds
        try:
            connection = self._opened()
            while not self._nudged.is_set() and (left := until - time.monotonic()) > 0:
                if self._stirred(connection, min(_PAUSE, left)):
                    break
        except (SQLAlchemyError, OSError, _driver_error()):
            self.close()
            self._nudged.wait(max(0.0, until - time.monotonic()))
        self._nudged.clear()

    def _opened(self) -> Connection:
        if self._connection is None:
            self._connection = self._catalog.watching()
            if self._catalog.dialect == "postgresql":
                self._connection.execute(text(f"LISTEN {NOTICE}"))
            self._seen = -1  # what was committed before is news
        return self._connection

    def _stirred(self, connection: Connection, seconds: float) -> bool:
        if self._catalog.dialect == "postgresql":
            fresh, self._seen = self._seen == -1, 0
            driver = connection.connection.driver_connection
            assert driver is not None
            return fresh or any(True for _ in driver.notifies(timeout=seconds, stop_after=1))
        time.sleep(seconds)
        seen = connection.exec_driver_sql("PRAGMA data_version").scalar()
        before, self._seen = self._seen, int(seen or 0)
        return before != self._seen

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.invalidate()
            connection.close()


def _driver_error() -> type[Exception]:
    import psycopg

    return psycopg.Error
