"""Planned changes of tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kilonova.catalog import registry, task_graph
from kilonova.catalog.database import Transaction
from kilonova.catalog.planner_input import published_channels
from kilonova.catalog.run_records import cost_samples
from kilonova.errors import DeclarationError
from kilonova.model.channel import ChannelState
from kilonova.model.required_columns import RequiredColumn, describe_columns
from kilonova.model.task import Task, Variant
from kilonova.model.version import START, describe_logic
from kilonova.model.workflow import WorkflowDefinition
from kilonova.query.view_tasks import FULL, reads_any
from kilonova.service.channel_plan import ChannelChange
from kilonova.service.logic_overrides import LogicOverrides, validate_same_output
from kilonova.service.migration_plan import MigrationPlan, plan_migration, with_declared_migration
from kilonova.service.plan_action import Action
from kilonova.service.plan_descriptions import (
    column_types,
    definition_changes,
    describe_task_schedule,
    method_changes,
    requirement_changes,
    schedule_changes,
    text_diff,
)
from kilonova.service.version_handover import plan_handover

_SAME_LOGIC = "same logic, as requested"
_NEW_VERSION = "a new version, as requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """Planned change of a task.

    Attributes:
        task: the task as declared.
        action: the action.
        logic: the logic version after the change.
        detail: the changes, as text for users.
        rows: rows that its first run reads because of it; 0 if nothing is recomputed or migrated.
        bytes: the same in bytes.
        downstream: the tasks whose input will change with its output.
        anew: whether it gets a new logic version, so that its output is migrated or recomputed.
        methods: whether its variants or their order change, and its output stays.
        overruled: what the user decided about its logic version, as text; empty if its definitions were compared.
        diff: the lines of its queries and functions that differ, in unified format; empty if none does.
        migration: how the output of the present logic version becomes that of the new one; None if there is none.
        waits: the columns of its inputs for which the new logic version waits.
        continues: the logic version that goes on until then, and finishes the data without them; None if none does.
        workflow: the workflow that declares it; None if it is that of the plan.
    """

    task: Task
    action: Action
    logic: int
    detail: str
    rows: int = 0
    bytes: int = 0
    downstream: tuple[str, ...] = ()
    anew: bool = False
    methods: bool = False
    overruled: str = ""
    diff: str = ""
    migration: MigrationPlan | None = None
    waits: tuple[RequiredColumn, ...] = ()
    continues: int | None = None
    workflow: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedChannels:
    """Channels by name, for the changes of all tasks of a workflow.

    Attributes:
        states: the registered ones.
        changes: the changes of the declared ones.
        redeclared: the registered ones as they will be declared.
        expected: the registered ones, and the declared ones that are new, without points.
        readers: the views and other tasks of the workflow that read what is new in each of them.
    """

    states: Mapping[str, ChannelState]
    changes: Mapping[str, ChannelChange]
    redeclared: Mapping[str, ChannelState]
    expected: Mapping[str, ChannelState]
    readers: Mapping[str, set[str]]

    @classmethod
    def of(
        cls, states: Mapping[str, ChannelState], changes: Mapping[str, ChannelChange], tasks: Iterable[Task]
    ) -> PlannedChannels:
        """Return the channels of these states and changes, which some tasks read."""
        changed = {
            name: replace(states[name], channel=changes[name].channel) for name in changes.keys() & states.keys()
        }
        new = {
            name: ChannelState(channel=change.channel, points=(), blocks=())
            for name, change in changes.items()
            if name not in states
        }
        readers: dict[str, set[str]] = {}
        for task in tasks:
            for port in (port for variant in task.variants for port in variant.ports if port.mode.advances):
                readers.setdefault(port.channel, set()).add(task.view or task.name)
        return cls(states, changes, {**states, **changed}, {**new, **states}, readers)

    def new_names(self, channels: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the new names of columns that are renamed, by their present ones, of the channels that have any."""
        schemas = {name: (self.states[name].channel.schema, self.redeclared[name].channel.schema) for name in channels}
        found = {
            name: old.new_names(new) for name, (old, new) in schemas.items() if old is not None and new is not None
        }
        return {name: names for name, names in found.items() if names}


def plan_task(
    tx: Transaction,
    task: Task,
    workflow: WorkflowDefinition,
    versions: Sequence[registry.TaskVersion],
    every: PlannedChannels,
    overrides: LogicOverrides,
    retyped: str | None,
) -> TaskChange:
    """Return the change of a declared task.

    Args:
        tx: an open transaction.
        task: the task as declared.
        workflow: its workflow.
        versions: its live logic versions, newest first; empty if it is new.
        every: the registered and the declared channels.
        overrides: the tasks whose logic versions the user decides.
        retyped: how the types of its output change because those of its input do; None if they do not.

    Raises:
        DeclarationError: its output cannot stay, or cannot be replaced, as its definition demands.
    """
    states, channels = every.states, every.changes
    known = versions[0] if versions else None
    altered = {name for name in task.writes if channels[name].reshaped and not channels[name].channel.several_writers}
    same = known is not None and not altered and has_same_rows(known, task)
    if overrides.keeps(task) and not same and retyped is None:
        current = {name: state.channel for name, state in states.items()}
        current |= {channel.name: channel for channel in workflow.channels if channel.schema is not None}
        validate_same_output(None if known is None else known.task, task, altered, current, states)
        assert known is not None
        return _overruled_change(task, known.task, versions, altered)
    if known is not None and same and retyped is None and not overrides.renews(task):
        return _unchanged_logic(task, known.task, versions)
    if known is None:
        change = _new_task(tx, task, workflow, versions, every)
    else:
        renewed = overrides.renews(task)
        change = _new_version(tx, task, workflow, versions, every, altered, retyped, renewed=renewed)
    _refuse_mixture(task, workflow, states)
    migration = change.migration
    read = [states[name].snapshot(states[name].latest_readable) for name in task.reads if name in states]
    blocks = [block for snapshot in read for block in snapshot.blocks]
    found = migration if migration is not None and migration.variants else None
    return replace(
        change,
        task=replace(task, migrations=() if migration is None else migration.variants),
        rows=sum(block.statistics.rows for block in blocks) if found is None else found.rows,
        bytes=sum(block.statistics.bytes for block in blocks) if found is None else found.bytes,
        downstream=tuple(other.name for other in workflow.downstream(task)),
        anew=True,
    )


def _overruled_change(
    task: Task, known: Task, versions: Sequence[registry.TaskVersion], altered: set[str]
) -> TaskChange:
    """Return the change of a task that is said to have the same logic."""
    changes = [*definition_changes(known, task, altered), *schedule_changes(known, task)]
    return TaskChange(
        task=with_declared_migration(task, versions)[0],
        action=Action.CHANGE,
        logic=versions[0].logic,
        detail=f"{_SAME_LOGIC}: {', '.join(changes)}",
        methods=True,
        overruled=_SAME_LOGIC,
        diff=text_diff(known, task),
    )


def _unchanged_logic(task: Task, known: Task, versions: Sequence[registry.TaskVersion]) -> TaskChange:
    """Return the change of a task whose rows stay the same."""
    methods = method_changes(known, task)
    task, replaced = with_declared_migration(task, versions)
    methods += ["changes its migration"] if replaced else []
    changes = [*methods, *requirement_changes(known, task), *schedule_changes(known, task)]
    written = ["same logic, written differently"] if text_diff(known, task) else []
    return TaskChange(
        task=task,
        action=Action.CHANGE if changes else Action.KEEP,
        logic=versions[0].logic,
        detail=", ".join([*changes, *written]),
        methods=bool(methods),
    )


def _new_task(
    tx: Transaction,
    task: Task,
    workflow: WorkflowDefinition,
    versions: Sequence[registry.TaskVersion],
    every: PlannedChannels,
) -> TaskChange:
    """Return the change that adds a task."""
    detail = "; ".join(filter(None, ("new", task.note)))
    if task.schedule is not None:
        detail += f"; runs {describe_task_schedule(task.schedule)}"
    handover = plan_handover(tx, task, versions, workflow, every.redeclared)
    return TaskChange(
        task=task,
        action=Action.ADD,
        logic=0,
        detail="; ".join(filter(None, (detail, handover.text))),
        waits=handover.waits,
        continues=handover.continues,
    )


def _new_version(
    tx: Transaction,
    task: Task,
    workflow: WorkflowDefinition,
    versions: Sequence[registry.TaskVersion],
    every: PlannedChannels,
    altered: set[str],
    retyped: str | None,
    *,
    renewed: bool,
) -> TaskChange:
    """Return the change that gives a task a new logic version, with its migration.

    Args:
        tx: an open transaction.
        task: the task as declared.
        workflow: its workflow.
        versions: its live logic versions, newest first.
        every: the registered and the declared channels.
        altered: the channels that it writes whose columns change.
        retyped: how the types of its output change because those of its input do; None if they do not.
        renewed: whether the user demands a new version.
    """
    known = versions[0]
    is_inserted, logic = known.logic == START, known.logic + 1
    changes = [*definition_changes(known.task, task, altered), *([] if retyped is None else [retyped])]
    if renewed:
        changes.insert(0, _NEW_VERSION)
    detail = f"logic version {describe_logic(known.logic)} → {logic}: {', '.join(changes)}"
    detail = "; ".join(filter(None, ("new", task.note))) if is_inserted else detail
    handover = plan_handover(tx, task, versions, workflow, every.redeclared)
    obstacle = retyped or _obstacle(task, known.task, every)
    if handover.waits and task.view is not None:
        obstacle = f"its input does not have {describe_columns(handover.waits)} yet"
    if renewed and not task.migrations:
        obstacle = "what has changed is not known"
    samples = cost_samples(tx, [task.name]).get(task.name, ())
    own = {name: every.changes[name].channel for name in task.writes}
    published = published_channels(task)
    readers = task_graph.incremental_readers(tx, published).union(*(every.readers.get(name, ()) for name in published))
    renamed = every.new_names(known.task.reads)
    left = () if handover.continues is not None else _relations_left(tx, task, known)
    migration = plan_migration(task, versions, every.expected, own, samples, obstacle, readers, renamed, left)
    if handover.text:
        detail += f"; {handover.text}"
    if not handover.waits and migration is not None:
        detail += f"; {migration.text}"
    return TaskChange(
        task=task,
        action=Action.ADD if is_inserted else Action.CHANGE,
        logic=logic,
        detail="; ".join((detail, *([] if is_inserted else schedule_changes(known.task, task)))),
        overruled=_NEW_VERSION if renewed else "",
        diff="" if is_inserted else text_diff(known.task, task),
        migration=migration,
        waits=handover.waits,
        continues=handover.continues,
    )


def _relations_left(tx: Transaction, task: Task, known: registry.TaskVersion) -> list[registry.TaskVersion]:
    """Return the tasks of relations that a view has stored apart and read, and does not read any more."""
    left = {*known.task.reads} - {*task.reads}
    if task.view != task.name or not left:
        return []
    live = registry.live_versions(tx, registry.view_tasks(tx, task.name)).values()
    return [
        versions[0]
        for versions in live
        if len(versions) == 1 and versions[0].started and not versions[0].replaced and left & {*versions[0].task.writes}
    ]


def _obstacle(task: Task, old: Task, every: PlannedChannels) -> str | None:
    """Return why the output of a changed task cannot be migrated, whatever the change; None if it can."""
    if task.writes != old.writes:
        return "it writes other channels"
    if task.loops:
        return "it reads the changes of its own output"
    for change in (every.changes[name] for name in task.writes):
        if change.channel.several_writers:
            return f"{change.channel.name} has several writers"
        if change.unseen:
            return "its checks change as well"
    for name in {*task.reads} & every.changes.keys() & every.states.keys():
        before, after = every.states[name].current, every.changes[name].channel
        if before.schema is None or before.key == after.key:
            continue
        known = {each.lower() for each in before.schema.names}
        if lacking := [each.name for each in task.requires if each.channel == name and each.name.lower() not in known]:
            return f"{name} gets another key, and has no column {', '.join(lacking)} before"
    return None


def has_same_rows(known: registry.TaskVersion, task: Task) -> bool:
    """Return whether a task's output can stay, although the order of its variants may change.

    The output of a view follows from its query, so that its refresh methods may change too; but a view that was last
    computed from its sources can only be maintained as long as it may be computed from them.
    """
    old = known.task
    if old.fingerprint == task.fingerprint:
        return True
    if old.view is None or task.view is None or old.writes != task.writes:
        return False
    before, after = old.from_sources, task.from_sources
    read = {known.replaced.get(name, name) for name in old.reads}
    detached = before is not None and known.started and not known.cursors.keys() >= read
    if detached or (before and after and _definition(before) != _definition(after)):
        return False
    return [_definition(each) for each in old.variants if each.name == FULL] == [
        _definition(each) for each in task.variants if each.name == FULL
    ]


def _definition(variant: Variant) -> tuple[object, ...]:
    return variant.fingerprint, variant.ports, variant.productions


def _refuse_mixture(task: Task, workflow: WorkflowDefinition, states: Mapping[str, ChannelState]) -> None:
    """Check that a task to be recomputed has not written to a channel of several writers, among their rows."""
    for name in task.writes:
        several = workflow.channel(name).several_writers
        if several and name in states and states[name].committed.by(task.name).entries:
            raise DeclarationError(
                "the task is new or has changed, but its output cannot be replaced: the channel has other writers",
                channel=name,
                task=task.name,
                hint="Leave it as it was, or drop the channel and apply again: then all its writers start from scratch",
            )


def retyped_views(
    channels: Iterable[ChannelChange],
    states: Mapping[str, ChannelState],
    workflow: WorkflowDefinition,
    registered: Mapping[str, registry.TaskVersion],
) -> dict[str, str]:
    """Return the views, of all workflows, whose columns may get other types, because columns that they read do."""
    retyped: dict[str, Collection[str] | None] = {}  # the columns of each channel; None for all
    for change in channels:
        new = change.channel
        if new.name in states and change.reshaped:
            before = column_types(states[new.name].channel)
            if names := [name for name, kind in column_types(new).items() if before.get(name, kind) != kind]:
                retyped[new.name] = names
    elsewhere = [known.task for known in registered.values() if known.workflow != workflow.name]
    left = {task.name: task for task in (*workflow.order(), *elsewhere) if task.view is not None}
    found: dict[str, str] = {}

    def cause(task: Task) -> str | None:
        return next((name for name in task.reads if name in retyped and reads_any(task, name, retyped[name])), None)

    while changed := [(task, channel) for task in left.values() if (channel := cause(task)) is not None]:
        for task, channel in changed:
            found[task.name] = f"the types of columns of {channel} change"
            retyped |= dict.fromkeys(task.writes)
            del left[task.name]
    return found


def retyped_elsewhere(known: registry.TaskVersion, why: str) -> TaskChange:
    """Return the change of a view of another workflow whose columns may get other types."""
    detail = f"logic version {known.logic} → {known.logic + 1}: {why}; recomputed at the next run"
    return TaskChange(
        task=replace(known.task, migrations=()),
        action=Action.CHANGE,
        logic=known.logic + 1,
        detail=f"of the workflow {known.workflow}: {detail}",
        anew=True,
        workflow=known.workflow,
    )
