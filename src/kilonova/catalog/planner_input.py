"""Input of the planner, which decides which tasks to run: see `kilonova.schedule.due` and `planning`."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import TopologicalSorter

from kilonova.catalog import bindings, registry
from kilonova.catalog.channel_store import channel_states
from kilonova.catalog.database import Transaction
from kilonova.catalog.registry import TaskVersion, live_versions
from kilonova.catalog.runs import cost_samples, last_begun
from kilonova.model.workflow import WorkflowDefinition
from kilonova.schedule.due import PlannerInput, TaskState
from kilonova.schedule.next_times import waits_until


def load_planner_input(tx: Transaction, names: Iterable[str] | None = None) -> PlannerInput:
    """Return tasks and their channels.

    Args:
        tx: an open transaction.
        names: the tasks; None for all, and all channels.

    Raises:
        NotFound: there is no such task.
    """
    live = live_versions(tx, names)
    every = [version for versions in live.values() for version in versions]
    touched = dict.fromkeys(channel for each in every for channel in (*each.task.reads, *each.task.writes))
    channels = channel_states(tx, None if names is None else touched)
    samples = cost_samples(tx, None if names is None else list(live))
    scheduled = [each.task.name for each in every if each.task.schedule is not None and each.started]
    begun = last_begun(tx, scheduled) if scheduled else {}
    return PlannerInput(
        workflow=WorkflowDefinition(
            name="all",
            channels=tuple(state.channel for state in channels.values()),
            tasks=tuple(versions[0].task for versions in live.values()),
        ),
        versions={
            name: tuple(
                TaskState(
                    task=version.task,
                    logic=version.logic,
                    started=version.started,
                    cursors=version.cursors,
                    samples=samples.get(name, ()),
                    waits_until=waits_until(
                        version.task.schedule, begun.get(name) if version.started else None, tx.now
                    ),
                )
                for version in versions
            )
            for name, versions in live.items()
        },
        channels=channels,
    )


def parts(tx: Transaction, name: str) -> dict[str, TaskVersion]:
    """Return a task, preceded, if it is a view, by the tasks that maintain the relations that it needs; by name.

    Raises:
        NotFound: there is no such task.
    """
    found = registry.tasks(tx, registry.view_tasks(tx, name) or [name])
    order = TopologicalSorter({each: (set(known.task.reads) & found.keys()) - {each} for each, known in found.items()})
    return {each: found[each] for each in order.static_order()}


def tasks_named(tx: Transaction, names: Iterable[str]) -> tuple[str, ...]:
    """Return the tasks of names of tasks, bindings and views; for a view also those that maintain what it needs.

    Raises:
        NotFound: there is no such task.
    """
    found = [task for name in names for task in bindings.tasks_of(tx, name) or parts(tx, name)]
    return tuple(dict.fromkeys(found))
