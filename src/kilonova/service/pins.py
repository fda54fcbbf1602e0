"""Pins that protect the blocks of reads from garbage collection while the reads are in progress.

A pin has a lease, so that the pins of a crashed process expire. While a project holds any, one thread renews their
leases; it ends with the last pin.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable
from datetime import timedelta

from kilonova.catalog import pins
from kilonova.catalog.database import Catalog, Transaction

_logger = logging.getLogger(__name__)


class Pins:
    """Pins of one process, renewed until they are released.

    Args:
        catalog: the catalog of the blocks.
        lease: how long a pin lasts without being renewed.
    """

    def __init__(self, catalog: Catalog, lease: timedelta) -> None:
        self._catalog = catalog
        self._lease = lease
        self._held: set[str] = set()
        self._given_up: set[str] = set()
        self._changed = threading.Condition(threading.RLock())  # a frame may be finalized in a thread that holds it
        self._thread: threading.Thread | None = None

    def pin(self, tx: Transaction, blocks: Iterable[int], holder: str | None = None) -> str:
        """Pin blocks.

        Args:
            tx: the writing transaction in which the blocks were found to exist.
            blocks: their numbers.
            holder: the holder's name, which no other has; None for a new one.

        Returns:
            The holder's name, to pass to `hold` and `release`.
        """
        holder = holder or f"reader {uuid.uuid4().hex}"
        pins.pin(tx, holder, blocks, self._lease)
        return holder

    def hold(self, holder: str) -> None:
        """Start renewing the pins of a holder."""
        with self._changed:
            self._held.add(holder)
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, name="pins", daemon=True)
                self._thread.start()

    def release(self, holder: str) -> None:
        """Delete the pins of a holder."""
        self.give_up(holder)
        self.settle()

    def give_up(self, holder: str) -> None:
        """Schedule pins for deletion by another thread: the caller may be inside a transaction."""
        with self._changed:
            self._given_up.add(holder)
            self._changed.notify_all()

    def settle(self) -> None:
        """Delete the pins that were given up; if that fails, their lease expires."""
        with self._changed:
            gone = self._given_up & self._held
            self._given_up.clear()
            self._held -= gone
            self._changed.notify_all()
        try:
            if gone:
                with self._catalog.writing() as tx:
                    for holder in gone:
                        pins.unpin(tx, holder)
        except Exception as error:
            _logger.debug("pins of reads were not deleted, and will expire: %s", error)

    def close(self) -> None:
        """Delete all pins."""
        with self._changed:
            self._given_up |= self._held
            thread = self._thread
        self.settle()
        if thread is not None:
            thread.join()

    def _renew(self) -> None:
        """Renew leases and delete pins that were given up, until none is held."""
        wait = self._lease.total_seconds() / 3
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._given_up or not self._held, wait)
            self.settle()
            with self._changed:
                held = set(self._held)
                if not held:
                    self._thread = None
                    return
            try:
                with self._catalog.writing() as tx:
                    pins.renew_pins(tx, held, self._lease)
            except Exception as error:
                _logger.warning("pins of reads were not renewed, and will expire: %s", error)
