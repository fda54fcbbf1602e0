"""What the decision which tasks to run looks at: see `kilonova.schedule.planning`."""

from __future__ import annotations

from collections.abc import Iterable

from kilonova.catalog.chains import chronicles
from kilonova.catalog.database import Transaction
from kilonova.catalog.registry import tasks
from kilonova.catalog.runs import last_begun, taken
from kilonova.model.channel import Chronicle
from kilonova.model.workflow import Workflow
from kilonova.schedule.planning import Progress
from kilonova.schedule.timing import waits_until


def observe(
    tx: Transaction, names: Iterable[str] | None = None
) -> tuple[Workflow, dict[str, Progress], dict[str, Chronicle]]:
    """Tasks and the channels that they touch as one workflow, how far each has come, and the state of each channel.

    Args:
        tx: an open transaction.
        names: the tasks; None for all, and all channels.

    Raises:
        UnknownName: there is no such task.
    """
    registered = tasks(tx, names)
    every = [known.task for known in registered.values()]
    touched = dict.fromkeys(channel for task in every for channel in (*task.reads, *task.writes))
    found = chronicles(tx, None if names is None else touched)
    took = taken(tx, None if names is None else list(registered))
    scheduled = [name for name, known in registered.items() if known.task.schedule is not None and known.started]
    begun = last_begun(tx, scheduled) if scheduled else {}
    workflow = Workflow(
        name="all",
        channels=tuple(chronicle.channel for chronicle in found.values()),
        tasks=tuple(known.task for known in registered.values()),
    )
    progress = {
        name: Progress(
            task=known.task,
            logic=known.logic,
            started=known.started,
            cursors={channel: point for channel, point, logic in known.cursors if logic == known.logic},
            taken=took.get(name, ()),
            waits_until=waits_until(known.task.schedule, begun.get(name), tx.now),
        )
        for name, known in registered.items()
    }
    return workflow, progress, found
