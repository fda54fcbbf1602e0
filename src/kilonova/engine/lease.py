"""Lease of a run: renewed by a thread for as long as its process is alive and works on it.

The thread also checks once a second whether the run was ended elsewhere: it was cancelled, or another process has taken
it over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from kilonova.catalog import runs
from kilonova.catalog.database import Catalog

_CHECK_INTERVAL = 1.0
"""Seconds between checks whether the run was ended elsewhere."""


@contextmanager
def renewed_lease(
    catalog: Catalog, run: int, length: timedelta, lost: Callable[[], None], *, since: float
) -> Iterator[None]:
    """Renew a run's lease within a `with` block.

    Args:
        catalog: the catalog that stores the lease.
        run: the run.
        length: the period for which a heartbeat is valid; one is sent every third of it.
        lost: called once the run was ended elsewhere, and again at each check, because work to be stopped may begin
            after the first call.
        since: when the lease began, on the monotonic clock: a run may have waited since it started.
    """
    ended = threading.Event()

    def beat() -> None:
        third = length.total_seconds() / 3
        beaten, running = since, True
        while not ended.wait(min(_CHECK_INTERVAL, third)):
            try:
                if running and time.monotonic() >= beaten + third:
                    with catalog.writing() as tx:
                        running = runs.renew_lease(tx, run, length)
                    beaten = time.monotonic()
                elif running:
                    with catalog.reading() as tx:
                        running = runs.is_running(tx, run)
                if not running:
                    lost()
            except Exception:  # the next heartbeat may succeed; the commit decides whether the lease is still valid
                continue

    thread = threading.Thread(target=beat, name=f"lease-{run}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
