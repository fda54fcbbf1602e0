"""Selection of the due bindings that a server starts next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Binding that is due.

    Attributes:
        binding: its name.
        workflow: the workflow that it belongs to.
        priority: the priority; higher ones start first.
        since: the time of its oldest firing.
        merge_window: for how many seconds it waits for others to be merged with; None if it is not to be merged.
        reads: the inputs that it would read now, to find others that read the same.
    """

    binding: str
    workflow: str
    priority: int
    since: datetime
    merge_window: float | None = None
    reads: frozenset[tuple[str, int]] = frozenset()


def select_bindings(
    batches: Iterable[tuple[Waiting, ...]], running: Mapping[str, int], room: int, limit: int | None
) -> tuple[tuple[Waiting, ...], ...]:
    """Select the batches to start: by highest priority, then fewest runs of the workflow, then longest wait.

    Args:
        batches: the bindings that are due and not running; a batch starts together and takes one slot.
        running: the number of runs of each workflow.
        room: the number of free slots.
        limit: how many runs a workflow may have at once; None for any number. A batch counts as one run of each of its
            workflows.

    >>> from datetime import datetime
    >>> a = Waiting(binding="a", workflow="w", priority=0, since=datetime(2024, 1, 2))
    >>> b = Waiting(binding="b", workflow="w", priority=0, since=datetime(2024, 1, 1))
    >>> [[each.binding for each in batch] for batch in select_bindings([(a,), (b,)], {}, room=2, limit=1)]
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
    """Return the sort key of a batch; the smallest starts first."""
    return (
        -max(each.priority for each in batch),
        min(counts.get(each.workflow, 0) for each in batch),
        min(each.since for each in batch),
        min(each.binding for each in batch),
    )
