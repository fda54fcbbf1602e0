"""Plan of registering a workflow, as a value: `plan` shows it, `apply` executes it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from kilonova.catalog import bindings, bounds, channel_store, deferred, events, files, registry
from kilonova.catalog.database import Transaction
from kilonova.catalog.planner_input import published_channels
from kilonova.catalog.runs import cost_samples
from kilonova.errors import Conflict, DeclarationError
from kilonova.model.binding import Binding, validate_bindings
from kilonova.model.channel import Channel, ChannelState, declared_output
from kilonova.model.check import Check, describe_check
from kilonova.model.column_rules import STRICT, OnNewColumn
from kilonova.model.encoding import Append, Changes, Custom, Encoding, describe_encoding, key_of
from kilonova.model.event import EventKind
from kilonova.model.logic import Function
from kilonova.model.required_columns import RequiredColumn, describe_columns
from kilonova.model.schema import Schema, identified
from kilonova.model.task import Task, Variant
from kilonova.model.version import START, describe_logic
from kilonova.model.watched_file import FileState
from kilonova.model.widening import is_wider
from kilonova.model.workflow import WorkflowDefinition
from kilonova.query.view_tasks import FULL, reads_any
from kilonova.service.affected_channels import AffectedChannel, ChangedOutput, affected_channels
from kilonova.service.bound_feasibility import refuse_slow, untimed_note
from kilonova.service.bound_plan import BoundChange, path_of_bound, plan_bounds
from kilonova.service.incompatible_schemas import IncompatibleSchema, incompatible_schemas
from kilonova.service.logic_overrides import LogicOverrides, validate_same_output
from kilonova.service.migration_plan import MigrationPlan, plan_migration, with_declared_migration
from kilonova.service.plan_action import Action
from kilonova.service.plan_descriptions import (
    acceptance_changes,
    binding_changes,
    column_types,
    definition_changes,
    describe_channel,
    describe_rules,
    describe_task_schedule,
    describe_triggers,
    metadata_changes,
    method_changes,
    requirement_changes,
    retention_changes,
    schedule_changes,
    sequence_changes,
    shape_changes,
    text_diff,
    watch_changes,
)
from kilonova.service.version_handover import plan_handover

_NO_OVERRIDES = LogicOverrides()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelChange:
    """Planned change of a channel.

    Attributes:
        channel: the channel as declared.
        action: the action.
        detail: the changes, as text for users.
        reshaped: whether its schema or encoding changes, so that the output of its task is migrated or recomputed.
        compatible: whether the deltas that it has remain valid in its new encoding.
        unseen: the checks that have not been run on the existing rows.
        retried: the number of quarantined files that are retried, because they may fit now.
    """

    channel: Channel
    action: Action
    detail: str
    reshaped: bool = False
    compatible: bool = True
    unseen: tuple[Check, ...] = ()
    retried: int = 0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingChange:
    """Planned change of a binding as declared, with the changes as text for users."""

    binding: Binding
    action: Action
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Part of a definition that is not compared with the registered one, so that a change of it is not detected.

    Attributes:
        kind: `task`, or `channel` for one with a custom encoding.
        name: the name of the task or channel.
        what: the part, as text.
    """

    kind: str
    name: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowPlan:
    """Plan of registering a workflow: all changes that it would make.

    Attributes:
        workflow: the name of the workflow.
        channels: the changes of its channels.
        tasks: the changes of its tasks.
        bindings: the changes of its bindings.
        bounds: the changes of its bounds.
        functions: the functions of its custom encodings, by name.
        unseen: the parts of it that are not compared.
        incompatible: the channels that will lack columns which tasks require, also those of other workflows.
        until: the time at which the changes take effect, if they are deferred.
        discards: the time at which the deferred definition of the workflow would have taken effect that this one
            replaces; None if there is none.
        affected: the channels of unchanged tasks downstream, and what becomes of them.
        placed: the channels of inserted tasks, each with the numbers of the blocks that it has by reference.
    """

    workflow: str
    channels: tuple[ChannelChange, ...]
    tasks: tuple[TaskChange, ...]
    bindings: tuple[BindingChange, ...]
    functions: Mapping[str, Function]
    bounds: tuple[BoundChange, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    incompatible: tuple[IncompatibleSchema, ...] = ()
    until: datetime | None = None
    discards: datetime | None = None
    affected: tuple[AffectedChannel, ...] = ()
    placed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Return whether nothing would change."""
        actions = [item.action for part in (self.channels, self.tasks, self.bindings, self.bounds) for item in part]
        return all(action is Action.KEEP for action in actions)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a dictionary, for serialization."""

        def action(item: ChannelChange | TaskChange | BindingChange | BoundChange) -> dict[str, str]:
            return {"action": item.action.value, "detail": item.detail}

        others = ("logic", "rows", "bytes", "downstream", "overruled", "diff", "anew")

        def migration(item: TaskChange) -> dict[str, Any]:
            found = item.migration
            if found is None:
                return {"migrated": False, "migration": "", "seconds": {}}
            return {"migrated": bool(found.variants), "migration": found.text, "seconds": found.seconds}

        return {
            "workflow": self.workflow,
            "empty": self.empty,
            "channels": [{"channel": item.channel.name, **action(item)} for item in self.channels],
            "tasks": [
                {
                    "task": item.task.name,
                    **action(item),
                    **{name: getattr(item, name) for name in others},
                    **migration(item),
                    "waits": list(map(str, item.waits)),
                }
                for item in self.tasks
            ],
            "bindings": [{"binding": item.binding.name, **action(item)} for item in self.bindings],
            "bounds": [
                {"channel": item.bound.channel, "path": list(item.path), **action(item)} for item in self.bounds
            ],
            "unseen": [asdict(item) for item in self.unseen],
            "incompatible": [{"channel": i.channel, "task": i.task, "detail": str(i)} for i in self.incompatible],
            "until": None if self.until is None else self.until.isoformat(),
            "discards": None if self.discards is None else self.discards.isoformat(),
            "affected": [each.to_dict() for each in self.affected],
            "digest": self.digest,
        }

    @property
    def digest(self) -> str:
        """Return a digest of what the plan does, without estimates: two plans of one digest do the same."""
        parts = [
            self.workflow,
            [(item.channel.name, item.action.value, item.detail) for item in self.channels],
            [
                (
                    item.task.name,
                    item.action.value,
                    item.logic,
                    item.task.fingerprint,
                    item.migration and item.migration.text,
                )
                for item in self.tasks
            ],
            [(item.binding.name, item.action.value, item.detail) for item in self.bindings],
            [(item.bound.channel, item.path, item.action.value, item.detail) for item in self.bounds],
            [str(item) for item in self.incompatible],
        ]
        return sha256(json.dumps(parts).encode()).hexdigest()[:16]


def plan_changes(
    tx: Transaction,
    workflow: WorkflowDefinition,
    functions: Mapping[str, Function],
    overrides: LogicOverrides = _NO_OVERRIDES,
) -> WorkflowPlan:
    """Compare a declared workflow with what is registered, and return the plan.

    Tasks of the same workflow that are no longer declared are dropped; their output is retained, as a channel that
    can be dropped manually.

    Args:
        tx: an open transaction.
        workflow: the workflow.
        functions: the functions of its custom encodings.
        overrides: the tasks whose logic versions the user decides.

    Raises:
        DeclarationError: another workflow owns a channel or task of that name, another task writes a channel,
            a channel that holds rows would get a key, encoding or type that does not fit them, tasks of several
            workflows form a cycle, or the output of a task that is said to have the same logic cannot stay.
    """
    live = registry.live_versions(tx)
    registered = {name: versions[0] for name, versions in live.items()}
    states = channel_store.channel_states(tx)
    declared = _with_waiting(states, [each[0] for each in live.values() if each[0].workflow == workflow.name])
    owners = registry.channel_owners(tx)
    recovered = {name for name, owner in owners.items() if owner == registry.RECOVERED}
    owners |= dict.fromkeys(recovered, workflow.name)
    bound = bindings.bindings(tx)
    whole = _without_conflicts(workflow, registered, states, bound)
    own = {channel.name for channel in workflow.channels}
    channels = tuple(
        _with_retries(tx, _channel_change(each, workflow, state, owner, recovered=each.name in recovered), state)
        for each in workflow.channels
        for state, owner in [(declared.get(each.name), owners.get(each.name))]
    )
    channels += _unwatched(
        states[name].channel for name, owner in owners.items() if owner == workflow.name and name not in own
    )
    changed = {each.channel.name: each for each in channels}
    retyped = _retyped_views(channels, states, workflow, registered)
    every = _Channels.of(states, changed, workflow.tasks)
    tasks = [
        _task_change(tx, task, workflow, live.get(task.name, ()), every, overrides, retyped.pop(task.name, None))
        for task in workflow.tasks
    ]
    tasks += [_retyped_elsewhere(registered[name], why) for name, why in retyped.items()]
    kept = {task.name for task in workflow.tasks}
    tasks += [
        TaskChange(task=known.task, action=Action.DROP, logic=known.logic, detail=_UNDECLARED)
        for name, known in registered.items()
        if known.workflow == workflow.name and name not in kept
    ]
    anew = {name for item in tasks if item.anew for name in item.task.writes}
    waiting = {output.name for versions in live.values() for output in versions[0].outputs}
    replaced = {name for item in tasks if item.anew and item.continues is None for name in item.task.writes} & waiting
    channels = tuple(replace(item, unseen=()) if item.channel.name in anew else item for item in channels)
    channels = tuple(_taken_back(c, states[c.channel.name]) if c.channel.name in replaced else c for c in channels)
    altered = {item.task.name for item in tasks if item.anew}
    return WorkflowPlan(
        workflow=workflow.name,
        channels=channels,
        tasks=tuple(tasks),
        bindings=tuple(_binding_changes(workflow, bound)),
        functions=functions,
        bounds=_bound_changes(tx, plan_bounds(workflow, whole, bounds.bounds(tx), owners), states, altered),
        unseen=tuple(_unseen(workflow, functions)),
        incompatible=_incompatible(tasks, channels, live, states),
        discards=deferred.deferred_until(tx, workflow.name),
        affected=affected_channels(
            [
                ChangedOutput(task=item.task, migrated=bool(item.task.migrations))
                for item in tasks
                if item.anew and item.action is Action.CHANGE
            ],
            workflow,
            registered,
            states,
        ),
    )


def _unwatched(channels: Iterable[Channel]) -> tuple[ChannelChange, ...]:
    """Return the changes of channels that are no longer declared: they ingest no more files."""
    return tuple(
        ChannelChange(channel=replace(channel, watch=None), action=Action.CHANGE, detail=_UNWATCHED)
        for channel in channels
        if channel.watch is not None
    )


def _bound_changes(
    tx: Transaction, planned: tuple[BoundChange, ...], states: Mapping[str, ChannelState], altered: Collection[str]
) -> tuple[BoundChange, ...]:
    """Return changes of bounds, checked against the durations of runs as far as they are known.

    Args:
        tx: an open transaction.
        planned: the changes.
        states: the registered channels.
        altered: the tasks whose durations so far do not count.

    Raises:
        DeclarationError: processing a typical arrival takes longer than an added or changed bound allows.
    """
    changed = [item.bound for item in planned if item.action in (Action.ADD, Action.CHANGE)]
    kept = [each for each in changed if each.channel in states and set(altered).isdisjoint(path_of_bound(each))]
    refuse_slow(tx, kept)
    notes = {each: untimed_note(tx, each, altered) for each in changed}
    return tuple(replace(item, detail=item.detail + notes.get(item.bound, "")) for item in planned)


def _with_waiting(
    states: Mapping[str, ChannelState], versions: Iterable[registry.TaskVersion]
) -> dict[str, ChannelState]:
    """Return channels as the newest logic versions of tasks declare them, also those that wait for columns."""
    found = dict(states)
    for output in (output for version in versions for output in version.outputs):
        known = states[output.name]
        schema = output.schema and identified(output.schema, known.channel.schema, known.latest)
        found[output.name] = replace(known, channel=declared_output(known.channel, replace(output, schema=schema)))
    return found


def _taken_back(change: ChannelChange, stored: ChannelState) -> ChannelChange:
    """Return the change of a channel whose newest declaration has not taken effect, and is replaced."""
    old, new = stored.channel, change.channel
    if new.encoding == old.encoding and new.schema in (None, old.schema) and new.checks == old.checks:
        return change
    detail = change.detail if change.action is Action.CHANGE else ", ".join(shape_changes(old, new))
    return replace(change, action=Action.CHANGE, detail=detail, reshaped=True)


def _incompatible(
    tasks: Iterable[TaskChange],
    channels: Iterable[ChannelChange],
    live: Mapping[str, Sequence[registry.TaskVersion]],
    states: Mapping[str, ChannelState],
) -> tuple[IncompatibleSchema, ...]:
    """Return the channels that will lack columns which tasks require, once a plan was applied."""
    after = {name: [each.task for each in registry.running_versions(versions)] for name, versions in live.items()}
    changed = {item.channel.name for item in channels if item.reshaped}
    for item in tasks:
        name = item.task.name
        earlier = after.pop(name, [])
        if item.action is not Action.DROP:
            kept = [each.task for each in live.get(name, ()) if each.logic == item.continues]
            after[name] = [item.task, *(kept if item.anew else earlier[1:])]
        if item.anew:
            changed.add(name)
    if not any(task.requires for versions in after.values() for task in versions):
        return ()
    declared = {name: state.channel for name, state in states.items()}
    declared |= {item.channel.name: item.channel for item in channels}
    return incompatible_schemas(after, declared, states, changed)


_UNDECLARED = "no longer declared; its output is kept"
_UNWATCHED = "no longer declared: ingests no more files; its rows are kept"


def _retyped_views(
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


def _retyped_elsewhere(known: registry.TaskVersion, why: str) -> TaskChange:
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


def _without_conflicts(
    workflow: WorkflowDefinition,
    registered: Mapping[str, registry.TaskVersion],
    states: Mapping[str, ChannelState],
    bound: Mapping[str, bindings.RegisteredBinding],
) -> WorkflowDefinition:
    """Return a workflow together with all others, as one, which has to be valid, and able to run automatically."""
    elsewhere = [known for known in registered.values() if known.workflow != workflow.name]
    for known in elsewhere:
        for channel in known.task.writes:
            writers = workflow.writers(channel)
            if writers and not workflow.channel(channel).several_writers:
                raise DeclarationError(
                    f"the channel is written by the task {known.task.name} of the workflow {known.workflow}",
                    channel=channel,
                    task=writers[0].name,
                    hint="A channel is written by one task, unless it is declared with several_writers=True",
                )
    names = {task.name for task in workflow.tasks}
    for known in elsewhere:
        if known.task.name in names:
            problem = f"the workflow {known.workflow} already has a task of this name"
            raise DeclarationError(problem, task=known.task.name, hint="Choose another name")
    own = {channel.name for channel in workflow.channels}
    whole = WorkflowDefinition(
        name="all",
        channels=(*workflow.channels, *(item.channel for name, item in states.items() if name not in own)),
        tasks=(*workflow.tasks, *(known.task for known in elsewhere)),
    )
    others = [each for each in bound.values() if each.workflow != workflow.name]
    mine = {binding.name for binding in workflow.bindings}
    for each in others:
        if each.binding.name in mine:
            problem = f"the workflow {each.workflow} already has a binding of this name"
            raise DeclarationError(problem, binding=each.binding.name, hint="Choose another name")
    validate_bindings(
        (*workflow.bindings, *(each.binding for each in others)),
        {channel.name for channel in whole.channels},
        {task.name: task.writes for task in whole.tasks},
    )
    return whole


def _unseen(workflow: WorkflowDefinition, functions: Mapping[str, Function]) -> Iterable[Unseen]:
    for task in workflow.tasks:
        for variant in task.variants:
            for what in variant.logic.unseen:
                yield Unseen(kind="task", name=task.name, what=what)
    for channel in workflow.channels:
        if isinstance(channel.encoding, Custom) and channel.encoding.function in functions:
            for what in functions[channel.encoding.function].unseen:
                yield Unseen(kind="channel", name=channel.name, what=what)


def with_notes(plan: WorkflowPlan, notes: Mapping[str, str]) -> WorkflowPlan:
    """Return a plan with notes added to the details of some tasks, by their names."""
    tasks = (
        replace(item, detail=f"{item.detail}; {notes[item.task.name]}") if item.task.name in notes else item
        for item in plan.tasks
    )
    return replace(plan, tasks=tuple(tasks))


def check_expected(plans: Sequence[WorkflowPlan], expected: Sequence[str] | None) -> None:
    """Check that plans do what somebody has looked at, given by the digests; None if nobody has.

    Raises:
        Conflict: they do something else.
    """
    if expected is not None and [plan.digest for plan in plans] != [*expected]:
        raise Conflict(
            "the plan is not the one that was looked at: a definition or the project has changed since",
            hint="Look at the plan again",
        )


def with_structure(plan: WorkflowPlan, notes: Mapping[str, str]) -> WorkflowPlan:
    """Return a plan with notes on the tasks whose inputs change with the structure of the workflow, by their names."""
    noted = with_notes(plan, {item.task.name: notes[item.task.name] for item in plan.tasks if item.task.name in notes})
    tasks = (
        replace(item, action=Action.CHANGE, detail=notes[item.task.name])
        if item.action is Action.KEEP and item.task.name in notes
        else item
        for item in noted.tasks
    )
    return replace(plan, tasks=tuple(tasks))


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


def others(tx: Transaction, workflow: str) -> tuple[Channel, ...]:
    """Return the registered channels of other workflows, which this one may read."""
    owners = registry.channel_owners(tx)
    return tuple(item.channel for name, item in channel_store.channel_states(tx).items() if owners[name] != workflow)


def _channel_change(
    channel: Channel, workflow: WorkflowDefinition, state: ChannelState | None, owner: str | None, *, recovered: bool
) -> ChannelChange:
    derived = bool(workflow.writers(channel.name)) and not channel.several_writers
    if state is None:
        details = [describe_check(check) for check in channel.checks]
        details += sequence_changes(None, channel.sequence_by)
        details += retention_changes(None, channel.retention)
        details += acceptance_changes(None, channel)
        details += describe_rules(channel.rules)
        details += watch_changes(None, channel.watch)
        details += [f"“{channel.description}”"] if channel.description else []
        return ChannelChange(
            channel=channel, action=Action.ADD, detail="; ".join((describe_channel(channel), *details))
        )
    old = state.channel
    if channel.schema is not None:
        if recovered and old.schema is not None and channel.rules.on_new_column is OnNewColumn.ADD:
            old = replace(old, added=old.schema.without(*channel.schema.names).names)  # which blocks do not record
        channel = _with_added(channel, channel.schema, old)
        channel = replace(channel, schema=identified(channel.schema or Schema(()), old.schema, state.latest))
    if owner != workflow.name:
        _refuse_differences(channel, old, owner, derived)
    if old.several_writers and not channel.several_writers and state.latest_distinct:
        raise DeclarationError(
            "the channel contains rows of several writers, which a single writer would erase",
            channel=channel.name,
            hint="Leave it with several_writers=True, or drop it first",
        )
    reshaped = channel.encoding != old.encoding or channel.schema not in (None, old.schema)
    found = metadata_changes(old, channel) if owner == workflow.name else []
    if not reshaped and not found:
        return ChannelChange(channel=channel, action=Action.KEEP, detail=describe_channel(old))
    if reshaped and state.latest_distinct and not derived:
        _refuse_misfit(channel, old)
        if channel.encoding != old.encoding:
            found = ["existing deltas keep the functions they were written with", *found]
    detail = ", ".join([*(shape_changes(old, channel) if reshaped else []), *found])
    unseen = tuple(check for check in channel.checks if check not in old.checks)
    keyless = {old.encoding, channel.encoding} <= {Append(), Changes()}
    return ChannelChange(
        channel=channel,
        action=Action.CHANGE,
        detail=detail,
        reshaped=reshaped,
        compatible=keyless or channel.encoding == old.encoding,
        unseen=unseen,
    )


def _with_retries(tx: Transaction, change: ChannelChange, state: ChannelState | None) -> ChannelChange:
    """Return the change of a channel with the number of its quarantined files, if it may make them fit."""
    new = change.channel
    if state is None or change.action is not Action.CHANGE or new.watch is None:
        return change
    old = state.channel
    if old.watch != new.watch or old.fits_alike(new):
        return change
    count = files.count_files(tx, new.name, FileState.QUARANTINED)
    said = f", retries {count} quarantined file{'s' if count > 1 else ''}" if count else ""
    return replace(change, retried=count, detail=change.detail + said)


def _with_added(channel: Channel, schema: Schema, old: Channel) -> Channel:
    """Return a channel as declared with the columns that ingests have added to it, unless they are declared by now."""
    declared = {name.lower() for name in schema.names}
    known = old.schema.columns if old.schema else ()
    added = [column for column in known if column.name in old.added and column.name.lower() not in declared]
    return replace(channel, schema=Schema((*schema.columns, *added)), added=tuple(column.name for column in added))


def _refuse_differences(channel: Channel, old: Channel, owner: str | None, derived: bool) -> None:
    """Check that a channel of another workflow is declared as there."""
    belongs = f"the channel belongs to the workflow {owner}, which declares"
    if (channel.schema, channel.encoding) != (old.schema, old.encoding):
        problem = f"the workflow {owner} declares the channel differently: {describe_channel(old)}"
        hint = "Declare it in the same way, or choose another name"
    elif channel.checks not in ((), old.checks):
        problem, hint = f"{belongs} its checks", "Declare the checks there, or on a view of it"
    elif channel.watch not in (None, old.watch) or (derived and old.watch is not None):
        problem, hint = f"{belongs} its watched directory", "Change it there"
    elif channel.description not in ("", old.description):
        problem, hint = f"{belongs} its description", "Describe it there"
    elif channel.several_writers != old.several_writers:
        problem, hint = f"{belongs} whether it has several writers", "Declare it in the same way"
    elif channel.sequence_by not in (None, old.sequence_by):
        problem, hint = f"{belongs} its sequence_by", "Change it there"
    elif channel.retention not in (None, old.retention):
        problem, hint = f"{belongs} its retention", "Change it there"
    elif channel.accepts not in (None, old.accepts):
        problem, hint = f"{belongs} which blocks its readers accept", "Change it there"
    elif channel.rules not in (STRICT, old.rules):
        problem, hint = f"{belongs} its rules for columns", "Change them there"
    else:
        return
    raise DeclarationError(problem, channel=channel.name, hint=hint)


def _refuse_misfit(channel: Channel, old: Channel) -> None:
    """Check that a source channel with rows gets no other key or encoding, and types that hold all of its values."""
    if not _same_but_functions(old.encoding, channel.encoding):
        raise DeclarationError(
            f"the channel holds rows as {describe_encoding(old.encoding)}, "
            f"which cannot become {describe_encoding(channel.encoding)}",
            channel=channel.name,
            hint="Declare a new channel, or drop this one first",
        )
    types, key = column_types(old), key_of(old.encoding)
    for name, kind in column_types(channel).items():
        if types.get(name, kind) == kind:
            continue
        if not is_wider(kind, types[name]):
            raise DeclarationError(
                f"the channel holds the column as {types[name]}, which cannot become {kind}",
                channel=channel.name,
                column=name,
                hint="Declare a type that holds all values of the present one, add a column with another name, or drop "
                "the channel first",
            )
        if name in key:
            raise DeclarationError(
                f"the channel holds the column as {types[name]}, which cannot become {kind}: it is part of the key, by "
                "which rows are stored",
                channel=channel.name,
                column=name,
                hint="Declare a new channel, or drop this one first",
            )


def _same_but_functions(old: Encoding, new: Encoding) -> bool:
    """Return whether two encodings read deltas alike, apart from the functions of a custom one."""
    if isinstance(old, Custom) and isinstance(new, Custom):
        return (old.key, old.delta) == (new.key, new.delta)
    return old == new


@dataclass(frozen=True, slots=True)
class _Channels:
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
    ) -> _Channels:
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


def _task_change(
    tx: Transaction,
    task: Task,
    workflow: WorkflowDefinition,
    versions: Sequence[registry.TaskVersion],
    every: _Channels,
    overrides: LogicOverrides,
    retyped: str | None,
) -> TaskChange:
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
    every: _Channels,
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
    every: _Channels,
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
    obstacle = retyped or _obstacle(task, known.task, every.changes)
    if handover.waits and task.view is not None:
        obstacle = f"its input does not have {describe_columns(handover.waits)} yet"
    if renewed and not task.migrations:
        obstacle = "what has changed is not known"
    samples = cost_samples(tx, [task.name]).get(task.name, ())
    own = {name: every.changes[name].channel for name in task.writes}
    published = published_channels(task)
    readers = registry.incremental_readers(tx, published).union(*(every.readers.get(name, ()) for name in published))
    migration = plan_migration(task, versions, every.expected, own, samples, obstacle, readers)
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


def _obstacle(task: Task, old: Task, channels: Mapping[str, ChannelChange]) -> str | None:
    """Return why the output of a changed task cannot be migrated, whatever the change; None if it can."""
    if task.writes != old.writes:
        return "it writes other channels"
    if task.loops:
        return "it reads the changes of its own output"
    for change in (channels[name] for name in task.writes):
        if change.channel.several_writers:
            return f"{change.channel.name} has several writers"
        if change.unseen:
            return "its checks change as well"
        if change.reshaped and task.view is not None and not change.compatible:
            return f"its encoding changes: {change.detail}"
    return None


_SAME_LOGIC = "same logic, as requested"
_NEW_VERSION = "a new version, as requested"


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


def _binding_changes(
    workflow: WorkflowDefinition, known: Mapping[str, bindings.RegisteredBinding]
) -> Iterable[BindingChange]:
    declared = {binding.name: binding for binding in workflow.bindings}
    for name, binding in declared.items():
        old = known.get(name)
        changes = [] if old is None else binding_changes(old.binding, binding)
        if changes:
            yield BindingChange(binding=binding, action=Action.CHANGE, detail=", ".join(changes))
        else:
            action = Action.ADD if old is None else Action.KEEP
            yield BindingChange(binding=binding, action=action, detail=describe_triggers(binding))
    for name, bound in known.items():
        if bound.workflow == workflow.name and name not in declared:
            yield BindingChange(binding=bound.binding, action=Action.DROP, detail="no longer declared")


def apply_plan(tx: Transaction, plan: WorkflowPlan) -> None:
    """Apply a plan, in the transaction in which it was made; a deferred definition of the workflow is discarded."""
    deferred.discard(tx, plan.workflow)
    for name, function in plan.functions.items():
        registry.put_function(tx, name, function)
    registry.add_channels(tx, (c.channel for c in plan.channels if c.action is Action.ADD), plan.workflow)
    migrated = {name for item in plan.tasks if item.task.migrations for name in item.task.writes}
    later = {name for item in plan.tasks if item.continues is not None for name in item.task.writes}
    for change in plan.channels:
        name = change.channel.name
        if change.action is Action.CHANGE and name in later:
            known = channel_store.channel(tx, name)
            registry.update_channel_metadata(tx, declared_output(change.channel, known))
        elif change.reshaped and name in migrated and change.channel.schema is None:
            schema = channel_store.channel(tx, name).schema
            registry.change_channel(tx, replace(change.channel, schema=schema, adopts=True))
        elif change.reshaped:
            registry.change_channel(tx, change.channel)
        elif change.action is Action.CHANGE:
            registry.update_channel_metadata(tx, change.channel)
        if change.retried:
            files.retry_files(tx, change.channel.name, None, files.RETRIED)
    declared = {change.channel.name: change.channel for change in plan.channels}
    registry.adopt_recovered(tx, declared, plan.workflow)
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
            registry.put_task(tx, item.task, item.workflow or plan.workflow, renew=item.anew, waiting=outputs)
        if item.anew and item.continues is None:
            for name in item.task.writes:
                known = declared.get(name) or replace(channel_store.channel(tx, name), schema=None)
                if known.schema is None and not item.task.migrations:
                    registry.change_channel(tx, known)
        elif item.action is Action.DROP:
            registry.drop_task(tx, item.task.name)
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
        registry.change_channel(tx, declared_output(state.channel, replace(output, schema=schema)))
