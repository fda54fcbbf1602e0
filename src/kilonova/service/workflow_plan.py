"""Plan of registering a workflow, as a value: `plan` shows it, `apply` executes it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from kilonova.catalog import bindings, bounds, channel_registry, channel_store, deferred, registry
from kilonova.catalog.database import Transaction
from kilonova.errors import Conflict, DeclarationError
from kilonova.model.binding import Binding, validate_bindings
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.encoding import Custom
from kilonova.model.logic import Function
from kilonova.model.workflow import WorkflowDefinition
from kilonova.service.affected_channels import AffectedChannel, ChangedOutput, affected_channels
from kilonova.service.bound_feasibility import refuse_slow, untimed_note
from kilonova.service.bound_plan import BoundChange, path_of_bound, plan_bounds
from kilonova.service.channel_plan import ChannelChange, plan_channel, taken_back, unwatched, with_waiting
from kilonova.service.incompatible_schemas import IncompatibleSchema, incompatible_schemas
from kilonova.service.logic_overrides import NO_OVERRIDES, LogicOverrides
from kilonova.service.plan_action import Action
from kilonova.service.plan_descriptions import binding_changes, describe_triggers
from kilonova.service.task_plan import PlannedChannels, TaskChange, plan_task, retyped_elsewhere, retyped_views

_UNDECLARED = "no longer declared; its output is kept"


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
    overrides: LogicOverrides = NO_OVERRIDES,
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
    declared = with_waiting(states, [each[0] for each in live.values() if each[0].workflow == workflow.name])
    owners = channel_registry.channel_owners(tx)
    recovered = {name for name, owner in owners.items() if owner == channel_registry.RECOVERED}
    owners |= dict.fromkeys(recovered, workflow.name)
    bound = bindings.bindings(tx)
    whole = _without_conflicts(workflow, registered, states, bound)
    own = {channel.name for channel in workflow.channels}
    channels = tuple(
        plan_channel(tx, each, workflow, state, owner, recovered=each.name in recovered)
        for each in workflow.channels
        for state, owner in [(declared.get(each.name), owners.get(each.name))]
    )
    channels += unwatched(
        states[name].channel for name, owner in owners.items() if owner == workflow.name and name not in own
    )
    changed = {each.channel.name: each for each in channels}
    retyped = retyped_views(channels, states, workflow, registered)
    every = PlannedChannels.of(states, changed, workflow.tasks)
    tasks = [
        plan_task(tx, task, workflow, live.get(task.name, ()), every, overrides, retyped.pop(task.name, None))
        for task in workflow.tasks
    ]
    tasks += [retyped_elsewhere(registered[name], why) for name, why in retyped.items()]
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
    channels = tuple(taken_back(c, states[c.channel.name]) if c.channel.name in replaced else c for c in channels)
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


def others(tx: Transaction, workflow: str) -> tuple[Channel, ...]:
    """Return the registered channels of other workflows, which this one may read."""
    owners = channel_registry.channel_owners(tx)
    return tuple(item.channel for name, item in channel_store.channel_states(tx).items() if owners[name] != workflow)


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
