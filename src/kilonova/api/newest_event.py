"""Cached number of the newest event, for the event streams."""

from __future__ import annotations

import time

from fastapi.concurrency import run_in_threadpool

from kilonova.service.project import Project

INTERVAL = 0.2
"""Seconds between queries."""


class NewestEvent:
    """Cached number of a project's newest event: queried once per interval, however many streams there are."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._number = 0
        self._next = 0.0

    async def __call__(self) -> int:
        """Return the number, at most two intervals old; 0 if there is none, or it has not been queried yet."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + INTERVAL  # concurrent callers get the previous number
            self._number = await run_in_threadpool(self._project.reader.newest_event)
        return self._number
