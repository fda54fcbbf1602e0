"""Lease of a run: renewed by a thread for as long as its process is alive and works on it.

The thread also checks once a second whether the run was ended elsewhere: it was cancelled, or another process has taken
it over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType

from kilonova.catalog import runs
from kilonova.catalog.database import Catalog

_CHECK_INTERVAL = 1.0
"""Seconds between checks whether the run was ended elsewhere."""


class Lease:
    """Context manager that renews a run's lease within a `with` block.

    Args:
        catalog: the catalog that stores the lease.
        run: the run.
        length: the period for which a heartbeat is valid; one is sent every third of it.
        lost: called once the run was ended elsewhere, and again at each check, because work to be stopped may begin
            after the first call.
    """

    def __init__(self, catalog: Catalog, run: int, length: timedelta, lost: Callable[[], None]) -> None:
        self._catalog = catalog
        self._run = run
        self._length = length
        self._lost = lost
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease-{run}", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        third = self._length.total_seconds() / 3
        beaten = time.monotonic()
        running = True
        while not self._ended.wait(min(_CHECK_INTERVAL, third)):
            try:
                if running and time.monotonic() >= beaten + third:
                    with self._catalog.writing() as tx:
                        running = runs.renew_lease(tx, self._run, self._length)
                    beaten = time.monotonic()
                elif running:
                    with self._catalog.reading() as tx:
                        running = runs.is_running(tx, self._run)
                if not running:
                    self._lost()
            except Exception:  # the next heartbeat may succeed; the commit decides whether the lease is still valid
                continue
