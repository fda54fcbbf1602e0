"""Watcher of directories: scans them, and lets workers ingest their files.

Each scan has a thread of its own, because a directory may hang: that delays nothing else. The outcomes of scans are
handled in the server's thread. Files are ingested by a worker, repeatedly until there are no more, while firings take
their turns in between.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from kilonova.catalog.files import ScanResult
from kilonova.errors import KilonovaError

_MOST = 16
"""Maximum number of directories that are scanned at once, not counting those that hang."""

_HANGS = 60.0
"""Seconds after which a scan counts as hanging."""


class DirectoryWatcher:
    """Scans directories and starts ingests of their files.

    Args:
        look: scans the directory of a channel; called from threads.
        take: lets a worker ingest the files of a channel's directory; the result says whether it ingested some.
        nudge: wakes the server, so that it handles the outcome of a scan.
    """

    def __init__(
        self,
        look: Callable[[str], ScanResult | None],
        take: Callable[[str], Future[Any]],
        nudge: Callable[[], None],
    ) -> None:
        self._look = look
        self._take = take
        self._nudge = nudge
        self._looking: dict[str, float] = {}
        self._taking: dict[str, Future[Any]] = {}
        self._again: list[str] = []
        self._heard: deque[tuple[str, ScanResult | Exception | None]] = deque()

    @property
    def busy(self) -> frozenset[str]:
        """The channels whose directories are being scanned, or whose files are being ingested."""
        return frozenset((*self._looking, *self._taking, *self._again))

    @property
    def full(self) -> bool:
        """Return whether no more directories can be scanned now."""
        late = time.monotonic() - _HANGS
        return sum(began > late for began in self._looking.values()) >= _MOST

    def look(self, channels: Iterable[str]) -> None:
        """Scan the directories of channels, except those that are being scanned already."""
        for channel in channels:
            if channel not in self.busy and not self.full:
                self._looking[channel] = time.monotonic()
                threading.Thread(target=self._looked, args=(channel,), name=f"look-{channel}", daemon=True).start()

    def _looked(self, channel: str) -> None:
        outcome: ScanResult | Exception | None
        try:
            outcome = self._look(channel)
        except Exception as error:
            outcome = error
        self._heard.append((channel, outcome))
        self._nudge()

    def hear(self) -> list[str]:
        """Handle the outcomes of scans and ingests, and start ingests.

        Returns:
            The problems.
        """
        problems = []
        while self._heard:
            channel, outcome = self._heard.popleft()
            del self._looking[channel]
            if isinstance(outcome, ScanResult) and outcome.ready:
                self._taking[channel] = self._take(channel)
            elif isinstance(outcome, Exception):
                problems.append(_told(f"the directory of {channel} cannot be scanned", outcome))
        for channel, future in list(self._taking.items()):
            if future.done():
                del self._taking[channel]
                error = None if future.cancelled() else future.exception()
                if error is not None:
                    problems.append(_told(f"files of {channel} cannot be ingested now", error))
                elif not future.cancelled() and future.result():
                    self._again.append(channel)
        return problems

    def go_on(self) -> None:
        """Continue with the directories from which files were ingested."""
        while self._again:
            channel = self._again.pop()
            self._taking[channel] = self._take(channel)


def _told(what: str, error: BaseException) -> str:
    return f"{what}: {error if isinstance(error, KilonovaError) or str(error) else type(error).__name__}"
