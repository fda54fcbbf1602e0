"""Application of a plan of registering a workflow, in the transaction in which it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kilonova.catalog import (
    bindings,
    bounds,
    channel_registry,
    channel_store,
    deferred,
    events,
    files,
    registry,
    structure,
)
from kilonova.catalog.database import Transaction
from kilonova.errors import Conflict
from kilonova.model.channel import Channel, declared_output
from kilonova.model.encoding import key_of
from kilonova.model.event import EventKind
from kilonova.model.schema import identified
from kilonova.service.plan_action import Action
from kilonova.service.task_plan import TaskChange
from kilonova.service.workflow_plan import WorkflowPlan


def apply_plan(tx: Transaction, plan: WorkflowPlan) -> None:
    """Apply a plan, in the transaction in which it was made; a deferred definition of the workflow is discarded."""
    deferred.discard(tx, plan.workflow)
    for name, function in plan.functions.items():
        registry.put_function(tx, name, function)
    _apply_channels(tx, plan)
    _apply_tasks(tx, plan)
    for each in plan.incompatible:
        events.record(tx, EventKind.INCOMPATIBLE_SCHEMA, channels=[each.channel], text=str(each))
    for item in plan.tasks:
        if item.overruled and item.task.view in (None, item.task.name):
            events.record(tx, EventKind.APPLIED, text=f"{item.task.name}: {item.overruled}")
    bindings.reset_triggers(tx, [item.task.name for item in plan.tasks if item.anew])
    for promise in plan.bounds:
        if promise.action is Action.DROP:
            bounds.drop(tx, promise.bound.channel, promise.path)
        else:
            bounds.declare(tx, promise.bound.channel, promise.path, promise.bound.limit)
    if any(item.action is not Action.KEEP for item in plan.bindings):
        wanted = (item.binding for item in plan.bindings if item.action is not Action.DROP)
        bindings.put(tx, plan.workflow, wanted)
    elif not plan.empty:
        events.record(tx, EventKind.APPLIED, text=plan.workflow)


def _apply_channels(tx: Transaction, plan: WorkflowPlan) -> None:
    """Add and change the channels of a plan."""
    channel_registry.add_channels(tx, (c.channel for c in plan.channels if c.action is Action.ADD), plan.workflow)
    migrated = {name for item in plan.tasks if item.task.migrations for name in item.task.writes}
    later = {name for item in plan.tasks if item.continues is not None for name in item.task.writes}
    for change in plan.channels:
        name = change.channel.name
        if change.action is Action.CHANGE and name in later:
            known = channel_store.channel(tx, name)
            channel_registry.update_channel_metadata(tx, declared_output(change.channel, known))
        elif change.reshaped and name in migrated and change.channel.schema is None:
            schema = channel_store.channel(tx, name).schema
            if schema is not None and not {*key_of(change.channel.encoding)} <= {*schema.names}:
                schema = None  # the columns are known when the output has been written again
            channel_registry.change_channel(tx, replace(change.channel, schema=schema, adopts=True))
        elif change.reshaped:
            channel_registry.change_channel(tx, change.channel)
        elif change.action is Action.CHANGE:
            channel_registry.update_channel_metadata(tx, change.channel)
        if change.retried:
            files.retry_files(tx, change.channel.name, None, files.RETRIED)
    channel_registry.adopt_recovered(
        tx, {change.channel.name: change.channel for change in plan.channels}, plan.workflow
    )


def _apply_tasks(tx: Transaction, plan: WorkflowPlan) -> None:
    """Add, change and drop the tasks of a plan, whose channels have been applied."""
    declared = {change.channel.name: change.channel for change in plan.channels}
    registry.put_tasks(tx, (item.task for item in plan.tasks if item.action is Action.ADD), plan.workflow)
    registry.update_sources(tx, (item.task for item in plan.tasks if item.action is Action.KEEP))
    for item in plan.tasks:
        if item.action is Action.CHANGE:
            if item.methods:
                registry.replace_variants(tx, item.task, item.logic)
            if not item.anew:
                registry.update_requirements(tx, item.task, item.logic)
            outputs: Sequence[Channel] = ()
            if item.continues is not None:
                outputs = [declared[name] for name in item.task.writes]
                _restore_outputs(tx, item.task.name, item.continues)
            _record_cursors(tx, item)
            registry.put_task(tx, item.task, item.workflow or plan.workflow, renew=item.anew, waiting=outputs)
        if item.anew and item.continues is None:
            for name in item.task.writes:
                known = declared.get(name) or replace(channel_store.channel(tx, name), schema=None)
                if known.schema is None and not item.task.migrations:
                    channel_registry.change_channel(tx, known)
        elif item.action is Action.DROP:
            registry.drop_task(tx, item.task.name)


def _record_cursors(tx: Transaction, item: TaskChange) -> None:
    """Record up to which points the version of a view that is migrated has read what is in a relation that it takes.

    Raises:
        Conflict: a run has the view, whose end would move these cursors.
    """
    if item.migration is None or not item.migration.cursors:
        return
    if (run := structure.running_tasks(tx).get(item.task.name)) is not None:
        raise Conflict(
            "the view takes the rows of a relation that it has stored apart, and is running",
            task=item.task.name,
            run=run,
            hint="Apply again when the run has ended",
        )
    variant = item.migration.variants[0]
    assert variant.from_version is not None
    registry.move_cursors(tx, item.task.name, variant.from_version, item.migration.cursors.items())


def _restore_outputs(tx: Transaction, task: str, logic: int) -> None:
    """Declare the outputs of a task as a logic version does that goes on, if a newer one has replaced it before."""
    versions = registry.live_versions(tx, [task])[task]
    if versions[0].waiting or versions[0].logic == logic:
        return
    (record,) = (each for each in registry.versions(tx, task) if (each.task, each.logic) == (task, logic))
    for output in record.outputs:
        state = channel_store.channel_state(tx, output.name)
        written = state.written_schema(state.latest_readable)
        schema = output.schema and identified(output.schema, written, state.latest)
        channel_registry.change_channel(tx, declared_output(state.channel, replace(output, schema=schema)))


def check_all_seen(tx: Transaction, plan: WorkflowPlan, seen: Mapping[str, int]) -> None:
    """Check that a plan's added checks were run on all rows that exist now.

    Args:
        tx: the transaction in which the plan was made.
        plan: the plan.
        seen: the point of each channel at which its rows were found to satisfy the plan's checks.

    Raises:
        Conflict: a run has written a channel in between, or is writing it.
    """
    for change in plan.channels:
        if change.unseen:
            state = channel_store.channel_state(tx, change.channel.name)
            if state.latest_readable < state.latest or not state.is_equivalent(
                seen.get(change.channel.name, 0), state.latest_readable
            ):
                raise Conflict(
                    "a run is writing the channel, whose rows are to be checked",
                    channel=change.channel.name,
                    hint="Apply again when it has ended",
                )
