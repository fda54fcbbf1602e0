"""Input of the planner, which decides which tasks to run: see `kilonova.schedule.due` and `planning`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from graphlib import TopologicalSorter

from kilonova.catalog import bindings, registry, task_graph
from kilonova.catalog.channel_store import channel_states
from kilonova.catalog.database import Transaction
from kilonova.catalog.registry import TaskVersion, live_versions
from kilonova.catalog.run_records import cost_samples, last_begun
from kilonova.model.task import Task
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
    above = _views_above(tx, live)
    every = [version for versions in (*live.values(), *above.values()) for version in versions]
    touched = dict.fromkeys(
        channel
        for each in every
        for channel in (
            *each.task.reads,
            *each.task.sources,
            *each.task.writes,
            *each.task.migrated,
            *each.replaced.values(),
            *each.task.relies_on,
        )
    )
    channels = channel_states(tx, None if names is None else touched)
    samples = cost_samples(tx, None if names is None else list(live))
    scheduled = [each.task.name for each in every if each.task.schedule is not None and each.started]
    begun = last_begun(tx, scheduled) if scheduled else {}
    states = {
        name: tuple(
            TaskState(
                task=version.task,
                logic=version.logic,
                started=version.started,
                cursors=version.cursors,
                samples=samples.get(name, ()),
                continues=version.waiting,
                outputs=version.outputs,
                waits_until=waits_until(version.task.schedule, begun.get(name) if version.started else None, tx.now),
                replaced=version.replaced,
                grown=version.grown,
                readers=task_graph.incremental_readers(tx, published_channels(version.task))
                if version.task.migrations
                else None,
            )
            for version in versions
        )
        for name, versions in {**live, **above}.items()
    }
    superseded = {(each.task.name, each.logic) for each in every if each.superseded}
    known = _with_views(_with_previous(states, superseded))
    return PlannerInput(
        workflow=WorkflowDefinition(
            name="all",
            channels=tuple(state.channel for state in channels.values()),
            tasks=tuple(versions[0].task for versions in live.values()),
        ),
        versions={name: known[name] for name in live},
        channels=channels,
    )


def published_channels(task: Task) -> tuple[str, ...]:
    """Return the channels that a task writes, and that of the view for which it maintains a materialized relation."""
    return task.writes if task.view is None else (*task.writes, task.view)


def _views_above(tx: Transaction, live: Mapping[str, tuple[TaskVersion, ...]]) -> Mapping[str, tuple[TaskVersion, ...]]:
    """Return the views of which tasks of materialized relations are among the given ones, but not the view itself."""
    views = {view for versions in live.values() if (view := versions[0].task.view) is not None} - live.keys()
    there = registry.active_tasks(tx, views) if views else []  # without those that were dropped
    return live_versions(tx, there) if there else {}


def _with_previous(
    versions: dict[str, tuple[TaskState, ...]], superseded: Collection[tuple[str, int]]
) -> dict[str, tuple[TaskState, ...]]:
    """Return the states of the versions that run, new ones with that of the superseded one whose output is there."""
    found = dict(versions)
    for name, logic in superseded:
        newest, *older = versions[name]
        previous = next(each for each in older if each.logic == logic)
        found[name] = (replace(newest, previous=previous), *(each for each in older if each is not previous))
    return found


def _with_views(versions: dict[str, tuple[TaskState, ...]]) -> dict[str, tuple[TaskState, ...]]:
    """Return the states of tasks, those of a view that may be computed from its sources with each other's."""
    found = dict(versions)
    for view, (newest, *older) in versions.items():
        if newest.task.from_sources is None:
            continue
        parts = {name: states for name, states in versions.items() if states[0].task.view == view != name}
        whole = replace(newest, parts=tuple(states[0] for states in parts.values()))
        found[view] = (whole, *older)
        if whole.detached:
            found |= {name: tuple(replace(state, view=whole) for state in states) for name, states in parts.items()}
    return found


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
