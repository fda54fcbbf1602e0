"""Observation from which runs are planned that keep bounds: see `kilonova.schedule.bound_planning`.

It is loaded and planned from without the writers' lock. What is planned is stored if no event has been recorded
meanwhile: each commit, and whatever else may change a plan, records one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, select

from kilonova.catalog import bindings, tables, task_graph
from kilonova.catalog.bounds import bounds
from kilonova.catalog.database import Transaction, is_among
from kilonova.catalog.planner_input import load_planner_input
from kilonova.catalog.scheduling import running_bindings
from kilonova.catalog.validity import arrivals, present
from kilonova.model.bound import Bound, StalenessBound, place_of
from kilonova.model.firing import FiringState
from kilonova.model.workflow_path import declared_form, paths_to
from kilonova.schedule.asynchrony.provenance import ArrivalTimes
from kilonova.schedule.bound_planning.bound_observation import BoundObservation
from kilonova.schedule.bound_planning.bound_run import BoundRun
from kilonova.schedule.due import PlannerInput
from kilonova.schedule.reflected_versions import reflected_versions


def observe_bounds(tx: Transaction, tried: Iterable[Bound] = ()) -> BoundObservation | None:
    """Return the observation from which runs are planned that keep bounds; None if none bounds staleness.

    Args:
        tx: an open transaction.
        tried: bounds that are assumed to apply instead of registered ones, or beside them.
    """
    registered = (bound for each in bounds(tx) if (bound := each.bound) is not None)
    applying = tuple({place_of(bound): bound for bound in (*registered, *tried)}.values())
    stale = {bound.channel for bound in applying if isinstance(bound, StalenessBound)}
    if not stale:
        return None
    names = task_graph.upstream_tasks(tx, stale)
    known = load_planner_input(tx, names)
    owner, table = bindings.by_task(tx), tables.binding.c
    query = select(table.name, table.paused).where(
        table.active, is_among(tx, table.name, {owner[name] for name in names if name in owner})
    )
    paused = {row.name: row.paused for row in tx.connection.execute(query)}
    return BoundObservation(
        now=present(tx) + timedelta.resolution,
        known=known,
        bounds=tuple(bound for bound in applying if bound.channel in known.channels),
        arrivals=_arrivals(tx, known),
        bindings={name: owner[name] for name in names if owner.get(name) in paused},
        running=frozenset((*running_bindings(tx), *_retried(tx), *(name for name, held in paused.items() if held))),
    )


def implicit_bindings(tx: Transaction, tasks: Collection[str]) -> frozenset[str]:
    """Return the bindings of tasks that no workflowette has: new input starts them, unless bounds do."""
    task, binding = tables.task.c, tables.binding.c
    query = (
        select(binding.name)
        .join(tables.task, task.binding == binding.name)
        .where(is_among(tx, task.name, tasks), binding.implicit)
    )
    return frozenset(tx.connection.execute(query).scalars())


def _retried(tx: Transaction) -> Iterable[str]:
    """Return the bindings whose planned run was lost, and waits to start again."""
    firing, binding = tables.firing.c, tables.binding.c
    query = select(binding.name).join(tables.firing, firing.binding_id == binding.id)
    queued = query.where(firing.state == FiringState.QUEUED.value, firing.scope.is_not(None))
    return tx.connection.execute(queued).scalars()


def without_repeated(tx: Transaction, runs: Iterable[BoundRun]) -> tuple[BoundRun, ...]:
    """Return those runs that have not been started yet: what failed or changed nothing is not repeated."""
    wanted = {run.occurrence: run for run in runs}
    begun = set(tx.connection.execute(_begun(tx, wanted)).scalars()) if wanted else set()
    return tuple(run for name, run in wanted.items() if name not in begun)


def _begun(tx: Transaction, occurrences: Iterable[str]) -> Select[Any]:
    firing = tables.firing.c
    return select(firing.occurrence).where(firing.trigger_id.is_(None), is_among(tx, firing.occurrence, occurrences))


def _arrivals(tx: Transaction, known: PlannerInput) -> dict[str, ArrivalTimes]:
    """Return the points of each source from the oldest that some channel reflects on."""
    oldest: dict[str, int] = {}
    reflected = reflected_versions(known)
    views = {task.name: task.view for task in known.workflow.tasks}
    for name, channel in known.channels.items():
        if not known.workflow.writers(name):
            continue
        version = reflected(name, channel.latest_kept)
        seen = {declared_form(path, views): entry for path, entry in version.entries if entry}
        for path in paths_to(name, known.workflow):
            first = seen[path][0].first if path in seen else 0
            oldest[path[0]] = min(first, oldest.get(path[0], first))
    sources = {name: oldest.get(name, 0) for name in known.channels if not known.workflow.writers(name)}
    found = arrivals(tx, sources)
    return {name: ArrivalTimes(*found[name]) for name in sources}
