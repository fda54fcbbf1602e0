"""Queued bindings: the batches that they form, and the selection of those that a server starts next."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kilonova.model.trigger import Occurrence
from kilonova.schedule.run_scope import RunScope


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedFiring:
    """Firing that waits for its run.

    Attributes:
        binding: the binding to run.
        trigger: the number of the trigger that fired; None if it was fired manually.
        occurrence: the occurrence.
        attempts: the number of its runs that were abandoned.
        number: its number; None until it is stored.
        due_only: whether only those tasks of the binding are to run that are due.
        scope: the scope of its run, which then completes no other firing; None for everything that is due.
    """

    binding: str
    trigger: int | None
    occurrence: Occurrence
    attempts: int = 0
    number: int | None = None
    due_only: bool = False
    scope: RunScope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBinding:
    """Properties of a binding that decide when it runs.

    Attributes:
        name: its name.
        workflow: the workflow that it belongs to.
        priority: the priority; higher ones start first.
        merge_window: for how many seconds it waits for others to be merged with; None if it is not to be merged.
        reads: the inputs that it would read now, to find others that read the same; empty if it is not to be merged.
        seconds: how long the tasks of its last run took; None if it has none, or it failed.
    """

    name: str
    workflow: str
    priority: int = 0
    merge_window: float | None = None
    reads: frozenset[tuple[str, int]] = frozenset()
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class QueuedBinding:
    """Binding with its queued firings, at least one, which one run completes."""

    binding: ObservedBinding
    firings: tuple[QueuedFiring, ...]

    @property
    def since(self) -> datetime:
        """Return the time of the oldest firing."""
        return min(each.occurrence.time for each in self.firings)

    @property
    def alone(self) -> bool:
        """Return whether it runs alone: a run with a scope, and one that is retried after an abandoned run."""
        return any(each.attempts or each.scope for each in self.firings)

    @property
    def merge_window(self) -> float | None:
        """Return the merge window; None if it runs alone."""
        return None if self.alone else self.binding.merge_window

    @property
    def expected_seconds(self) -> float:
        """Return how long its run may take: as long as the last one; infinite if unknown, or if it runs alone."""
        return math.inf if self.alone or self.binding.seconds is None else self.binding.seconds


def batch_bindings(
    queued: Iterable[QueuedBinding], now: datetime
) -> tuple[tuple[tuple[QueuedBinding, ...], ...], datetime | None]:
    """Group the bindings that read a common input, to read it once (Nova, section 4.2).

    A mergeable binding waits for others, for at most its merge window. Waiting bindings that read a common input form
    one batch, which starts when the merge window of any member ends.

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
    ready = tuple(tuple(batch) for batch in batches if not _waits(batch, now))
    later = [_start_time(batch) for batch in batches if _waits(batch, now)]
    return ready, min(later) if later else None


def select_bindings(
    batches: Iterable[tuple[QueuedBinding, ...]], running: Mapping[str, int], capacity: int, limit: int | None
) -> tuple[tuple[QueuedBinding, ...], ...]:
    """Select the batches to start: by highest priority, then fewest runs of the workflow, then longest wait.

    Args:
        batches: the bindings that are due and not running; a batch starts together and takes one slot.
        running: the number of runs of each workflow.
        capacity: the number of free slots.
        limit: how many runs a workflow may have at once; None for any number. A batch counts as one run of each of its
            workflows.

    >>> def queued(name, day):
    ...     firing = QueuedFiring(binding=name, trigger=None, occurrence=Occurrence("", datetime(2024, 1, day)))
    ...     return QueuedBinding(ObservedBinding(name=name, workflow="w"), (firing,))
    >>> found = select_bindings([(queued("a", 2),), (queued("b", 1),)], {}, capacity=2, limit=1)
    >>> [[each.binding.name for each in batch] for batch in found]
    [['b']]
    """
    counts = Counter(running)
    left = [(_urgency(batch, counts), batch) for batch in batches]
    heapq.heapify(left)
    found: list[tuple[QueuedBinding, ...]] = []
    while left and len(found) < capacity:
        urgency, batch = heapq.heappop(left)
        if limit is not None and any(counts[each.binding.workflow] >= limit for each in batch):
            continue  # it stays queued, as counts only grow
        if (now := _urgency(batch, counts)) != urgency:  # less urgent since other batches of its workflow were found
            heapq.heappush(left, (now, batch))
            continue
        counts.update({each.binding.workflow for each in batch})
        found.append(batch)
    return tuple(found)


def form_series(
    batches: Sequence[tuple[QueuedBinding, ...]], workers: int
) -> tuple[tuple[tuple[QueuedBinding, ...], ...], ...]:
    """Distribute batches among workers: one each, and short runs after them, which are then started together.

    To start a run takes a transaction, however short the run is, and these are executed one at a time: many short runs
    start sooner in few transactions.

    Args:
        batches: the batches, the most urgent first.
        workers: the number of free workers.

    Returns:
        For each worker its batches, which it executes in turn: one batch, or several that have one binding each.
        Batches that do not fit remain queued, and so do all less urgent ones.
    """
    series = [[batch] for batch in batches[:workers]]
    taken = [(_expected_seconds(batch), place) for place, batch in enumerate(batches[:workers])]
    heapq.heapify(taken)
    for batch in batches[workers:]:
        seconds, place = taken[0]
        if len(series[place]) == SERIES or seconds + _expected_seconds(batch) > SERIES_SECONDS:
            break
        series[place].append(batch)
        heapq.heapreplace(taken, (seconds + max(_SHORTEST, _expected_seconds(batch)), place))
    return tuple(map(tuple, series))


def _expected_seconds(batch: tuple[QueuedBinding, ...]) -> float:
    """Return how long a batch may take; infinite if that is not known, and for one of several bindings."""
    return math.inf if len(batch) > 1 or batch[0].merge_window is not None else batch[0].expected_seconds


SERIES = 16
"""Maximum number of runs that a worker executes in turn and starts in one transaction."""

SERIES_SECONDS = 0.5
"""Maximum number of seconds for which the last of them may have to wait, as far as the last runs tell."""

_SHORTEST = SERIES_SECONDS / SERIES / 2
"""Seconds that each run takes at least, so that runs that take next to no time are distributed evenly."""


def _urgency(batch: tuple[QueuedBinding, ...], counts: Mapping[str, int]) -> tuple[int, int, datetime, str]:
    """Return the sort key of a batch; the smallest starts first. No two batches have the same."""
    return (
        -max(each.binding.priority for each in batch),
        min(counts.get(each.binding.workflow, 0) for each in batch),
        min(each.since for each in batch),
        min(each.binding.name for each in batch),
    )


def _share(one: QueuedBinding, other: QueuedBinding) -> bool:
    """Return whether two bindings read a common input."""
    return not one.binding.reads.isdisjoint(other.binding.reads)


def _waits(batch: Sequence[QueuedBinding], now: datetime) -> bool:
    """Return whether a batch still waits for others; not if the clock was set back since one of them became due."""
    return _start_time(batch) > now and all(each.since <= now for each in batch)


def _start_time(batch: Iterable[QueuedBinding]) -> datetime:
    """Return the time at which a batch stops waiting for others."""
    return min(one.since + timedelta(seconds=one.merge_window or 0) for one in batch)
