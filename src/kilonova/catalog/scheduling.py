"""Observations of a scheduler, and its decisions as they are stored: see `kilonova.schedule.scheduler`.

The state of a trigger and its firing are written in one transaction, and writing transactions are serialized: a
trigger fires exactly once per occurrence, however many servers evaluate it. A constraint of the table enforces the
same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import CompoundSelect, Row, Select, bindparam, func, or_, select, union

from kilonova.catalog import codec, firings, registry, tables
from kilonova.catalog.database import Transaction, is_among, is_given, update_all
from kilonova.catalog.firings import Batch, Claim
from kilonova.catalog.trigger_inputs import trigger_inputs
from kilonova.model.event import Event
from kilonova.model.firing import FiringState
from kilonova.model.run import RunState
from kilonova.model.task import Mode
from kilonova.model.trigger import ArrivalTrigger, Occurrence, RunTrigger, conditions_of
from kilonova.schedule.bound_planning.bound_run import BoundRun
from kilonova.schedule.queueing import SERIES, ObservedBinding, QueuedFiring
from kilonova.schedule.scheduler import Decision, Observation, ObservedTrigger


@dataclass(frozen=True, slots=True)
class TriggerInterests:
    """Active triggers by what they depend on, which determines the triggers to evaluate after an event.

    Attributes:
        every: the numbers of all of them.
        channels: the numbers of those that wait for data, by channel.
        bindings: the numbers of those that wait for runs, by binding.
    """

    every: frozenset[int] = frozenset()
    channels: Mapping[str, set[int]] = field(default_factory=dict)
    bindings: Mapping[str, set[int]] = field(default_factory=dict)

    def concerned(self, event: Event) -> set[int]:
        """Return the triggers that may fire because of an event."""
        found = (self.channels.get(name, set()) for name in event.channels)
        return set().union(*found, self.bindings.get(event.binding or "", set()))


def trigger_interests(tx: Transaction) -> TriggerInterests:
    """Return the interests of all active triggers."""
    rows = tx.connection.execute(
        select(tables.trigger.c.id, tables.trigger.c.definition).where(tables.trigger.c.active)
    ).all()
    channels: defaultdict[str, set[int]] = defaultdict(set)
    bindings: defaultdict[str, set[int]] = defaultdict(set)
    for row in rows:
        for item in conditions_of(codec.trigger_from_json(row.definition)):
            if isinstance(item, ArrivalTrigger):
                channels[item.channel].add(row.id)
            elif isinstance(item, RunTrigger):
                bindings[item.binding].add(row.id)
    return TriggerInterests(frozenset(row.id for row in rows), channels, bindings)


def triggers_due(tx: Transaction) -> list[int]:
    """Return the triggers whose next check is due."""
    query = active_triggers().where(tables.trigger.c.next_check <= tx.now)
    return list(tx.connection.execute(query.with_only_columns(tables.trigger.c.id)).scalars())


def next_check(tx: Transaction) -> datetime | None:
    """Return the time of the next check of a trigger; None if no trigger waits for a time."""
    return tx.connection.execute(_next_check()).scalar()


@cache
def _next_check() -> Select[Any]:
    waits = active_triggers().where(tables.trigger.c.next_check.is_not(None))  # first by the index, no minimum over all
    return waits.with_only_columns(tables.trigger.c.next_check).order_by(tables.trigger.c.next_check).limit(1)


@dataclass(frozen=True, slots=True)
class Pending:
    """Work that a server may have to do.

    Attributes:
        unended: whether there are firings that are not terminal and can proceed.
        next_check: the time of the next check of a trigger; None if no trigger waits for a time.
        next_scan: the time of the next scan of a watched directory; None if none is watched.
        next_apply: the time at which the next deferred workflow takes effect; None if there is none.
        bounds: whether there are bounds.
    """

    unended: bool
    next_check: datetime | None
    next_scan: datetime | None
    next_apply: datetime | None
    bounds: bool


def pending(tx: Transaction) -> Pending:
    """Return the work that a server may have to do."""
    row = tx.connection.execute(_pending()).one()
    return Pending(bool(row.unended), row.next_check, row.next_scan, row.next_apply, bool(row.bounds))


@cache
def _pending() -> Select[Any]:
    return select(
        firings.unended_query().exists().label("unended"),
        _next_check().scalar_subquery().label("next_check"),
        select(func.min(tables.channel.c.next_scan)).scalar_subquery().label("next_scan"),
        select(func.min(tables.deferred.c.until)).scalar_subquery().label("next_apply"),
        select(tables.bound.c.id).exists().label("bounds"),
    )


def triggers() -> Select[Any]:
    """Return a query for the triggers of bindings, of which `observed_trigger` makes values."""
    trigger, binding = tables.trigger, tables.binding
    return (
        select(trigger.c.id, trigger.c.definition, trigger.c.state, trigger.c.next_check, *_BINDING)
        .join(binding, binding.c.id == trigger.c.binding_id)
        .where(trigger.c.active, binding.c.active)
    )


def active_triggers() -> Select[Any]:
    """Return a query for the triggers that servers evaluate."""
    return triggers().where(~tables.binding.c.paused)


def observed_trigger(row: Row[Any]) -> ObservedTrigger:
    """Return the trigger of a row of `triggers`."""
    return ObservedTrigger(
        number=row.id,
        binding=row.name,
        trigger=codec.trigger_from_json(row.definition),
        state=codec.state_from_json(row.state),
        next_check=row.next_check,
    )


_BINDING = tuple(tables.binding.c[name] for name in ("name", "workflow", "priority", "merge_window"))
"""Columns of a binding that decide when it runs."""


def observe(
    tx: Transaction,
    numbers: Collection[int],
    *,
    free_workers: int,
    workflow_limit: int | None = None,
    bound_runs: Sequence[BoundRun] = (),
    bounded: Collection[str] = (),
) -> Observation:
    """Return the observation from which a scheduler decides.

    Args:
        tx: a writing transaction, in which the decision is stored.
        numbers: the triggers that may fire.
        free_workers: the number of batches that the server can start.
        workflow_limit: the maximum number of concurrent runs of a workflow; None for any number.
        bound_runs: the runs that keep bounds, planned from the same state.
        bounded: the bindings that such runs start, so that new input does not.
    """
    query = active_triggers().where(is_among(tx, tables.trigger.c.id, numbers)).order_by(tables.trigger.c.id)
    rows = [row for row in tx.connection.execute(query) if row.name not in bounded] if numbers else []
    observed = tuple(observed_trigger(row) for row in rows)
    running: dict[str, str] = {}
    waiting: Sequence[Row[Any]] = ()
    if free_workers > 0:
        running = running_bindings(tx)
        given = {"running": list(running), "most": free_workers * SERIES}
        waiting = tx.connection.execute(_queued(tx.connection.dialect.name), given).all()
    starting = [run.binding for run in bound_runs]
    planned = (
        tx.connection.execute(select(*_BINDING).where(is_among(tx, tables.binding.c.name, starting))).all()
        if starting
        else []
    )
    mergeable = {row.name for row in (*rows, *waiting) if row.merge_window is not None and free_workers > 0}
    reads = _reads(tx, mergeable - running.keys())
    several = {row.name for row in (*rows, *waiting)} - running.keys() if free_workers > 0 else set()
    seconds = _last_seconds(tx, several) if len(several) > free_workers else {}
    bindings = {
        row.name: ObservedBinding(
            name=row.name,
            workflow=row.workflow,
            priority=row.priority,
            merge_window=row.merge_window,
            reads=reads.get(row.name, frozenset()),
            seconds=seconds.get(row.name),
        )
        for row in {row.name: row for row in (*rows, *waiting, *planned)}.values()
    }
    return Observation(
        now=tx.now,
        triggers=observed,
        inputs=trigger_inputs(tx, [(each.trigger, each.state) for each in observed]),
        bindings=bindings,
        queued=tuple(
            QueuedFiring(
                binding=row.name,
                trigger=row.trigger_id,
                occurrence=Occurrence(row.occurrence, row.time),
                attempts=row.attempts,
                number=row.id,
                scope=None if row.scope is None else codec.scope_from_json(row.scope),
            )
            for row in waiting
        ),
        bound_runs=tuple(bound_runs),
        running=running,
        free_workers=free_workers,
        workflow_limit=workflow_limit,
    )


def running_bindings(tx: Transaction) -> dict[str, str]:
    """Return the bindings that run or are about to run, each with its workflow."""
    return {row.name: row.workflow for row in tx.connection.execute(_running())}


@cache
def _running() -> CompoundSelect[Any]:
    """Return a query for the bindings with claimed or running firings or tasks, each with its workflow."""
    binding, firing, task = tables.binding, tables.firing, tables.task
    begun = [FiringState.CLAIMED.value, FiringState.RUNNING.value]
    columns = binding.c.name, binding.c.workflow
    fired = select(*columns).join(firing, firing.c.binding_id == binding.c.id).where(firing.c.state.in_(begun))
    claims = task.join(tables.claim, tables.claim.c.task_id == task.c.id)
    return union(fired, select(*columns).join(claims, task.c.binding == binding.c.name))


@cache
def _queued(dialect: str) -> Select[Any]:
    """Return a query for the queued firings of bindings that are not `running`, in their order, with the bindings.

    Of the bindings of a workflow that are not to be merged, these are the first `most` in the order in which they start
    (see `select_bindings`): no more can start, and the others may be thousands.
    """
    binding, firing = tables.binding.c, tables.firing.c
    name = binding.name.collate("C") if dialect == "postgresql" else binding.name
    waiting = (
        select(
            firing.id,
            firing.trigger_id,
            firing.occurrence,
            firing.time,
            firing.attempts,
            firing.scope,
            *_BINDING,
            name.label("sorted"),
            func.min(firing.time).over(partition_by=binding.id).label("oldest"),
        )
        .join(tables.binding, binding.id == firing.binding_id)
        .where(firing.state == FiringState.QUEUED.value, binding.active)
        .where(~is_given(dialect, binding.name, "running"))
        .cte("waiting")
    )
    each = waiting.c
    place = func.dense_rank().over(
        partition_by=(each.workflow, each.merge_window.is_(None)),
        order_by=(each.priority.desc(), each.oldest, each.sorted),
    )
    ranked = select(waiting, place.label("place")).cte("ranked")
    can_start = or_(ranked.c.place <= bindparam("most"), ranked.c.merge_window.is_not(None))
    return select(ranked).where(can_start).order_by(ranked.c.id)


def _reads(tx: Transaction, bindings: Collection[str]) -> dict[str, frozenset[tuple[str, int]]]:
    """Return the channels that bindings would read and do not write, with their cursors, or `_NOW` for snapshots."""
    if not bindings:
        return {}
    table = tables.task
    query = select(table.c.binding, table.c.name).where(is_among(tx, table.c.binding, bindings), table.c.active)
    members = tx.connection.execute(query).all()
    known = registry.tasks(tx, [row.name for row in members])
    read: dict[str, set[tuple[str, int]]] = {name: set() for name in bindings}
    written: dict[str, set[str]] = {name: set() for name in bindings}
    for row in members:
        task = known[row.name]
        written[row.binding].update(task.task.writes)
        read[row.binding].update(
            (port.channel, _NOW if port.mode is Mode.ALL else task.cursor(port.channel))
            for port in task.task.variants[0].ports
        )
    return {
        name: frozenset((channel, cursor) for channel, cursor in own if channel not in written[name])
        for name, own in read.items()
    }


def _last_seconds(tx: Transaction, bindings: Collection[str]) -> dict[str, float]:
    """Return how long the tasks of the last runs of bindings took; without those that have no run, or a failed one."""
    rows = tx.connection.execute(_last_runs(tx.connection.dialect.name), {"names": list(bindings)})
    return {row.name: row.seconds for row in rows}


@cache
def _last_runs(dialect: str) -> Select[Any]:
    binding, run, last, output = tables.binding, tables.run, tables.run.alias("last"), tables.run_output.c
    newest = select(func.max(last.c.id)).where(last.c.binding == binding.c.name).correlate(binding).scalar_subquery()
    taken = select(func.coalesce(func.sum(output.seconds), 0.0)).where(output.run_id == run.c.id).scalar_subquery()
    return (
        select(binding.c.name, taken.label("seconds"))
        .select_from(binding.join(run, run.c.id == newest))
        .where(is_given(dialect, binding.c.name, "names"), run.c.state == RunState.SUCCEEDED.value)
    )


_NOW = -1
"""Placeholder for the newest point, for reads that do not depend on a cursor."""


def store(tx: Transaction, decision: Decision, server: str) -> list[Batch]:
    """Store the decision on an observation of the same transaction: triggers, queued firings and claims.

    Args:
        tx: a writing transaction.
        decision: the decision.
        server: the server that starts the runs.

    Returns:
        The batches to start.
    """
    changed = [
        {"key": each.number, "state": codec.state_to_json(each.state), "next_check": each.next_check}
        for each in decision.triggers
    ]
    update_all(tx, tables.trigger, changed)
    numbers = dict(zip(decision.queued, firings.queue(tx, decision.queued), strict=True))
    batches = []
    for batch in decision.batches:
        claims = [
            Claim(
                binding=run.binding,
                firings=tuple(each.number or numbers[each] for each in run.firings),
                server=server,
                scope=run.scope,
            )
            for run in batch.runs
        ]
        batches.append(Batch(tuple(claims), batch.merged))
    firings.claim(tx, (each for batch in batches for each in batch.claims), server)
    return batches
