"""Batching of runs, to read their common inputs once (Nova, section 4.2).

A mergeable binding waits for others, for at most its merge window. Waiting bindings that read a common input form one
batch, which starts when the merge window of any member ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kilonova.schedule.queueing import Waiting

Batch = tuple[Waiting, ...]
"""Bindings that start together, the most urgent first."""


def batch_firings(waiting: Iterable[Waiting], now: datetime) -> tuple[tuple[Batch, ...], datetime | None]:
    """Group the bindings that read a common input.

    Args:
        waiting: the bindings that are due.
        now: the current time.

    Returns:
        The batches that can start, and the end of the first merge window among the others; None if there are no others.
    """
    batches: list[list[Waiting]] = []
    for one in sorted(waiting, key=lambda each: (-each.priority, each.since, each.binding)):
        near = [
            batch for batch in batches if one.merge_window is not None and any(_share(one, other) for other in batch)
        ]
        batches = [batch for batch in batches if batch not in near]
        batches.append([*(other for batch in near for other in batch), one])
    ready = tuple(tuple(batch) for batch in batches if _up(batch) <= now)
    later = [_up(batch) for batch in batches if _up(batch) > now]
    return ready, min(later) if later else None


def _share(one: Waiting, other: Waiting) -> bool:
    """Return whether two bindings are mergeable and read a common input."""
    return one.merge_window is not None and other.merge_window is not None and not one.reads.isdisjoint(other.reads)


def _up(batch: Iterable[Waiting]) -> datetime:
    """Return the time at which a batch stops waiting for others."""
    return min(one.since + timedelta(seconds=one.merge_window or 0) for one in batch)
