"""Which runs are merged, so as to read what they have in common once (Nova, section 4.2).

What may be merged waits for others, but no longer than it says. What waits and reads something in common is one batch;
its time is up when that of any member is.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kilonova.schedule.queueing import Waiting

Batch = tuple[Waiting, ...]
"""What starts together, the most urgent first."""


def batched(waiting: Iterable[Waiting], now: datetime) -> tuple[tuple[Batch, ...], datetime | None]:
    """Put together what reads something in common.

    Args:
        waiting: what is due.
        now: the present moment.

    Returns:
        The batches that can start, and when the time of the next one is up that waits for others; None if none does.
    """
    batches: list[list[Waiting]] = []
    for one in sorted(waiting, key=lambda each: (-each.priority, each.since, each.binding)):
        near = [batch for batch in batches if one.queue is not None and any(_share(one, other) for other in batch)]
        batches = [batch for batch in batches if batch not in near]
        batches.append([*(other for batch in near for other in batch), one])
    ready = tuple(tuple(batch) for batch in batches if _up(batch) <= now)
    later = [_up(batch) for batch in batches if _up(batch) > now]
    return ready, min(later) if later else None


def _share(one: Waiting, other: Waiting) -> bool:
    """Whether two may be merged and read something in common."""
    return one.queue is not None and other.queue is not None and not one.reads.isdisjoint(other.reads)


def _up(batch: Iterable[Waiting]) -> datetime:
    """When a batch waits no longer for others."""
    return min(one.since + timedelta(seconds=one.queue or 0) for one in batch)
