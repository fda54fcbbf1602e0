"""A run's lease, renewed by a thread for as long as its process lives and works on it."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import TracebackType

from kilonova.catalog import runs
from kilonova.catalog.database import Catalog


class Lease:
    """Keeps a run's lease alive within a `with` block.

    Args:
        catalog: where the lease is kept.
        run: the run.
        length: how long a heartbeat is good for; one is sent every third of it.
    """

    def __init__(self, catalog: Catalog, run: int, length: timedelta) -> None:
        self._catalog = catalog
        self._run = run
        self._length = length
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
        while not self._ended.wait(self._length.total_seconds() / 3):
            try:
                with self._catalog.writing() as tx:
                    if not runs.beat(tx, self._run, self._length):
                        return
            except Exception:  # the next beat may get through; whether the run may commit is decided there
                continue
