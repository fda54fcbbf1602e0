"""A server's lookout over watched directories: who looks at which, and whose files a worker takes.

Each look is a thread of its own, because a directory may hang: that holds up nothing but itself. What becomes of looks
is heard in the server's thread. Files are taken by a worker, which is asked again until there are no more, after what
has fired meanwhile had its turn.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from kilonova.catalog.files import Looked
from kilonova.errors import KilonovaError

_MOST = 16
"""How many directories are looked at at once, not counting those that hang."""

_HANGS = 60.0
"""Seconds after which a look counts as one that hangs."""


class Lookout:
    """Looks at directories.

    Args:
        look: looks at the directory of a channel; called from threads.
        take: lets a worker take the files of a channel's directory; the result says whether it took some.
        nudge: makes the server hear what has become of a look.
    """

    def __init__(
        self,
        look: Callable[[str], Looked | None],
        take: Callable[[str], Future[Any]],
        nudge: Callable[[], None],
    ) -> None:
        self._look = look
        self._take = take
        self._nudge = nudge
        self._looking: dict[str, float] = {}
        self._taking: dict[str, Future[Any]] = {}
        self._again: list[str] = []
        self._heard: deque[tuple[str, Looked | Exception | None]] = deque()

    @property
    def busy(self) -> frozenset[str]:
        """The channels whose directories are being looked at, or whose files are being taken."""
        return frozenset((*self._looking, *self._taking, *self._again))

    @property
    def full(self) -> bool:
        """Whether no more directories can be looked at now."""
        late = time.monotonic() - _HANGS
        return sum(began > late for began in self._looking.values()) >= _MOST

    def look(self, channels: Iterable[str]) -> None:
        """Look at the directories of channels, but for those at which it is looking already."""
        for channel in channels:
            if channel not in self.busy and not self.full:
                self._looking[channel] = time.monotonic()
                threading.Thread(target=self._looked, args=(channel,), name=f"look-{channel}", daemon=True).start()

    def _looked(self, channel: str) -> None:
        outcome: Looked | Exception | None
        try:
            outcome = self._look(channel)
        except Exception as error:
            outcome = error
        self._heard.append((channel, outcome))
        self._nudge()

    def hear(self) -> list[str]:
        """See what has become of looks, and let files be taken.

        Returns:
            What went wrong.
        """
        problems = []
        while self._heard:
            channel, outcome = self._heard.popleft()
            del self._looking[channel]
            if isinstance(outcome, Looked) and outcome.ready:
                self._taking[channel] = self._take(channel)
            elif isinstance(outcome, Exception):
                problems.append(_told(f"the directory of {channel} cannot be looked at", outcome))
        for channel, future in list(self._taking.items()):
            if future.done():
                del self._taking[channel]
                error = None if future.cancelled() else future.exception()
                if error is not None:
                    problems.append(_told(f"files of {channel} cannot be taken now", error))
                elif not future.cancelled() and future.result():
                    self._again.append(channel)
        return problems

    def go_on(self) -> None:
        """Let more be taken of the directories from which something was taken."""
        while self._again:
            channel = self._again.pop()
            self._taking[channel] = self._take(channel)


def _told(what: str, error: BaseException) -> str:
    return f"{what}: {error if isinstance(error, KilonovaError) or str(error) else type(error).__name__}"
