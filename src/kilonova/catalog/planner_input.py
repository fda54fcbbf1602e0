"""Input of the planner, which decides which tasks to run: see `kilonova.schedule.planning`."""

from __future__ import annotations

from collections.abc import Iterable

from kilonova.catalog.channel_store import channel_states
from kilonova.catalog.database import Transaction
from kilonova.catalog.registry import tasks
from kilonova.catalog.runs import cost_samples, last_begun
from kilonova.model.channel import ChannelState
from kilonova.model.workflow import WorkflowDefinition
from kilonova.schedule.next_times import waits_until
from kilonova.schedule.planning import TaskState


def load_planner_input(
    tx: Transaction, names: Iterable[str] | None = None
) -> tuple[WorkflowDefinition, dict[str, TaskState], dict[str, ChannelState]]:
    """Return tasks and their channels as one workflow, the state of each task, and the state of each channel.

    Args:
        tx: an open transaction.
        names: the tasks; None for all, and all channels.

    Raises:
        NotFound: there is no such task.
    """
    registered = tasks(tx, names)
    every = [known.task for known in registered.values()]
    touched = dict.fromkeys(channel for task in every for channel in (*task.reads, *task.writes))
    found = channel_states(tx, None if names is None else touched)
    took = cost_samples(tx, None if names is None else list(registered))
    scheduled = [name for name, known in registered.items() if known.task.schedule is not None and known.started]
    begun = last_begun(tx, scheduled) if scheduled else {}
    workflow = WorkflowDefinition(
        name="all",
        channels=tuple(state.channel for state in found.values()),
        tasks=tuple(known.task for known in registered.values()),
    )
    progress = {
        name: TaskState(
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
