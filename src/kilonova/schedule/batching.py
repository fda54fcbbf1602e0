"""Batching of runs, to read their common inputs once (Nova, section 4.2).

A mergeable binding waits for others, for at most its merge window. Waiting bindings that read a common input form one
batch, which starts when the merge window of any member ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kilonova.schedule.queueing import QueuedBinding


def batch_bindings(
    queued: Iterable[QueuedBinding], now: datetime
) -> tuple[tuple[tuple[QueuedBinding, ...], ...], datetime | None]:
    """Group the bindings that read a common input.

    Args:
        queued: the bindings that are due.
        now: the current time.

    Returns:
        The batches that can start, and the end of the first merge window among the others; None if there are no others.
    """
    every = sorted(queued, key=lambda each: (-each.binding.priority, each.since, each.binding.name))
    batches: list[list[QueuedBinding]] = []
    for one in (each for each in every if each.merge_window is not None):
        near = [batch for batch in batches if any(_share(one, other) for other in batch)]
        if near:
            batches = [batch for batch in batches if batch not in near]
        batches.append([*(other for batch in near for other in batch), one])
    batches += [[each] for each in every if each.merge_window is None]
    ready = tuple(tuple(batch) for batch in batches if _start_time(batch) <= now)
    later = [_start_time(batch) for batch in batches if _start_time(batch) > now]
    return ready, min(later) if later else None


def _share(one: QueuedBinding, other: QueuedBinding) -> bool:
    """Return whether two bindings read a common input."""
    return not one.binding.reads.isdisjoint(other.binding.reads)


def _start_time(batch: Iterable[QueuedBinding]) -> datetime:
    """Return the time at which a batch stops waiting for others."""
    return min(one.since + timedelta(seconds=one.merge_window or 0) for one in batch)
