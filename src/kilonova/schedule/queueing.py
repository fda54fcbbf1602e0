"""What a server starts next, of all that is due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A binding that is due.

    Attributes:
        binding: its name.
        workflow: the workflow that it belongs to.
        priority: what is higher goes first.
        since: when its oldest firing fired.
        queue: for how many seconds it waits for others to be merged with; None if it is not to be merged.
        reads: what it would read now, by which to tell whether others read the same.
    """

    binding: str
    workflow: str
    priority: int
    since: datetime
    queue: float | None = None
    reads: frozenset[tuple[str, int]] = frozenset()


def chosen(
    batches: Iterable[tuple[Waiting, ...]], running: Mapping[str, int], room: int, limit: int | None
) -> tuple[tuple[Waiting, ...], ...]:
    """What to start: the highest priority first, then the workflow that has the fewest runs, then who waits longest.

    Args:
        batches: what is due and has no run; what stands together starts together, and takes the room of one.
        running: how many runs each workflow has.
        room: how many batches can be started.
        limit: how many runs a workflow may have at once; None for any number. A batch counts as one run of each of its
            workflows.

    >>> from datetime import datetime
    >>> a = Waiting(binding="a", workflow="w", priority=0, since=datetime(2024, 1, 2))
    >>> b = Waiting(binding="b", workflow="w", priority=0, since=datetime(2024, 1, 1))
    >>> [[each.binding for each in batch] for batch in chosen([(a,), (b,)], {}, room=2, limit=1)]
    [['b']]
    """
    counts = Counter(running)
    left = list(batches)
    found: list[tuple[Waiting, ...]] = []
    while len(found) < room:
        able = [batch for batch in left if limit is None or all(counts[each.workflow] < limit for each in batch)]
        if not able:
            break
        best = min(able, key=lambda batch: _urgency(batch, counts))
        left.remove(best)
        counts.update({each.workflow for each in best})
        found.append(best)
    return tuple(found)


def _urgency(batch: tuple[Waiting, ...], counts: Mapping[str, int]) -> tuple[int, int, datetime, str]:
    """What is less goes first."""
    return (
        -max(each.priority for each in batch),
        min(counts.get(each.workflow, 0) for each in batch),
        min(each.since for each in batch),
        min(each.binding for each in batch),
    )
