"""Streams of events."""

from __future__ import annotations

import asyncio

from anyio.from_thread import start_blocking_portal

from kilonova.api.newest_event import NewestEvent
from kilonova.service.project import Project


def test_the_newest_event_is_queried_once_for_all_listeners(shop: Project) -> None:
    looks: list[int] = []

    class Counted:
        def newest_event(self) -> int:
            looks.append(shop.reader.newest_event())
            return looks[-1]

    class Counting:
        reader = Counted()

    newest = NewestEvent(Counting())  # type: ignore[arg-type]

    async def listeners() -> list[int]:
        return await asyncio.gather(*(newest() for _ in range(20)))

    with start_blocking_portal() as elsewhere:  # the browser of other tests has a loop in this thread
        assert shop.reader.newest_event() in elsewhere.call(listeners)
    assert len(looks) == 1
