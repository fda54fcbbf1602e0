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
    """

    binding: str
    workflow: str
    priority: int
    since: datetime


def chosen(waiting: Iterable[Waiting], running: Mapping[str, int], room: int, limit: int | None) -> tuple[Waiting, ...]:
    """What to start: the highest priority first, then the workflow that has the fewest runs, then who waits longest.

    Args:
        waiting: what is due and has no run.
        running: how many runs each workflow has.
        room: how many runs can be started.
        limit: how many runs a workflow may have at once; None for any number.

    >>> from datetime import datetime
    >>> a = Waiting(binding="a", workflow="w", priority=0, since=datetime(2024, 1, 2))
    >>> b = Waiting(binding="b", workflow="w", priority=0, since=datetime(2024, 1, 1))
    >>> [each.binding for each in chosen([a, b], {}, room=2, limit=1)]
    ['b']
    """
    counts = Counter(running)
    left = sorted(waiting, key=lambda each: (-each.priority, each.since, each.binding))
    found: list[Waiting] = []
    while len(found) < room:
        able = [each for each in left if limit is None or counts[each.workflow] < limit]
        if not able:
            break
        best = min(able, key=lambda each: (-each.priority, counts[each.workflow], each.since, each.binding))
        left.remove(best)
        counts[best.workflow] += 1
        found.append(best)
    return tuple(found)
