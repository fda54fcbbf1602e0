"""Changes of a workflow's structure, applied to the catalog before the workflow is planned (logic evolution, 3.2).

Comparing a workflow with what is registered shows which tasks were inserted or removed: a task that reads another
channel than before, but is the same otherwise, and the new tasks, or those that are no longer declared, that lead from
one of the channels to the other. Its logic version goes on:

- After an insertion it reads the inserted task's channel from its cursor on. This channel has the points and blocks of
  the one before it, by reference; the inserted task has always been there, as a no-op of the version `s`.
- After a removal its next run reads the difference between the two channels.

Once the catalog has been changed so, everything else is a change of a task's logic, which `workflow_plan` plans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kilonova.catalog import channel_store, registry, structure, task_graph
from kilonova.catalog.database import Transaction
from kilonova.catalog.registry import TaskVersion
from kilonova.errors import Conflict, DeclarationError
from kilonova.model.channel import ChannelState
from kilonova.model.encoding import Append, Changes, Upsert
from kilonova.model.task import Task
from kilonova.model.version import START, Version
from kilonova.model.workflow import WorkflowDefinition
from kilonova.query.input_replacement import no_op, only_filters, with_fingerprints_of, with_input_replaced
from kilonova.query.view_tasks import known_of
from kilonova.service.extracted_relations import extract, find_extracted
from kilonova.service.logic_overrides import LogicOverrides
from kilonova.service.task_plan import has_same_rows


@dataclass(frozen=True, slots=True)
class ReplacedInput:
    """Input of a task that was replaced by another one.

    Attributes:
        old: the channel that the task has read.
        new: the channel that it is declared to read.
        between: the tasks that lead from one to the other, in the order in which rows pass them.
        inserted: whether these tasks were inserted after the old one; else they were removed before it.
    """

    old: str
    new: str
    between: tuple[Task, ...]
    inserted: bool


@dataclass(frozen=True, slots=True)
class Rewiring:
    """Registered task whose inputs were replaced.

    Attributes:
        known: its registered logic version.
        inputs: the inputs.
        task: its registered definition, which reads the new inputs.
        same: whether the declared definition has the same rows as that.
        goes_on: whether its logic version goes on: its outputs have the same columns and encoding, too.
    """

    known: TaskVersion
    inputs: tuple[ReplacedInput, ...]
    task: Task
    same: bool
    goes_on: bool


@dataclass(frozen=True, slots=True)
class StructureChange:
    """Changes of a workflow's structure.

    Attributes:
        rewired: the tasks whose inputs were replaced.
        notes: notes on tasks, by name, as text for users.
        placed: the channels that have blocks by reference since, each with their numbers.
    """

    rewired: tuple[Rewiring, ...]
    notes: Mapping[str, str]
    placed: Mapping[str, tuple[int, ...]]


def find_rewirings(tx: Transaction, workflow: WorkflowDefinition) -> tuple[tuple[Rewiring, ...], dict[str, str]]:
    """Return the tasks of a declared workflow that tasks were inserted or removed before, and notes on ambiguous ones.

    Args:
        tx: an open transaction.
        workflow: the workflow.
    """
    live, states = registry.live_versions(tx), channel_store.channel_states(tx)
    declared = {task.name: task for task in workflow.tasks}
    registered = structure.registered_names(tx)
    new = [task for task in workflow.tasks if task.name not in registered]
    added = {task.writes[0]: task for task in new if _passes_rows(task) and task.writes[0] not in states}
    own = (versions[0] for name, versions in live.items() if name not in declared)
    others = [known.task for known in own if known.workflow == workflow.name]
    gone = {task.writes[0]: task for task in others if _passes_rows(task) and not workflow.writers(task.writes[0])}
    found: list[Rewiring] = []
    notes: dict[str, str] = {}
    for name, versions in live.items():
        known = versions[0]
        if name not in declared or len(versions) > 1 or not known.started or known.replaced:
            continue
        try:
            inputs = _replaced(known.task, declared[name], added, gone, states)
        except _Ambiguous as error:
            notes[name] = f"{error}, so that none counts as inserted: apply them one after the other"
            continue
        if inputs:
            found.append(_rewiring(known, declared[name], inputs, workflow, states))
    done = {(each.old, each.new) for one in found if one.same for each in one.inputs}
    kept = (
        one
        for one in found
        if all((each.old, each.new) in done if each.inserted else one.goes_on for each in one.inputs)
    )
    return tuple(kept), notes


def changes_structure(tx: Transaction, workflow: WorkflowDefinition) -> bool:
    """Return whether tasks are inserted or removed, or inputs attached, by a declared workflow."""
    live = registry.live_versions(tx)
    known = [(task, live[task.name][0].task) for task in workflow.tasks if task.name in live]
    return any(not {*task.reads} <= {*old.reads, *old.writes} for task, old in known)


def change_structure(
    tx: Transaction, workflow: WorkflowDefinition, overrides: LogicOverrides, *, rehearsed: bool
) -> StructureChange:
    """Insert and remove tasks in the catalog as a declared workflow requires, before it is planned.

    Args:
        tx: a writing transaction.
        workflow: the workflow.
        overrides: the tasks whose logic versions the user decides; the rows that are there when a task is inserted stay
            as they are if it is said to have the same logic.
        rehearsed: whether the transaction is rolled back, so that runs in progress are no obstacle.

    Raises:
        Conflict: a task whose versions would have to be rewritten is running.
        DeclarationError: rows that are there are to stay, but the inserted task may compute them again.
    """
    rewired, notes = find_rewirings(tx, workflow)
    if rewired and not rehearsed:
        _refuse_running(tx, [one.known.task for one in rewired])
    placed: dict[str, tuple[int, ...]] = {}
    for extracted in find_extracted(tx, workflow, overrides):
        if not rehearsed:
            _refuse_running(tx, [extracted.view.task])
        placed[extracted.channel] = extract(tx, extracted, workflow)
        notes[extracted.task.name] = f"the rows of {extracted.view.task.name} are there by reference"
    for inserted in {(i.old, i.new): i for one in rewired for i in one.inputs if i.inserted}.values():
        readers = [one.known.task.name for one in rewired if inserted in one.inputs]
        placed |= _insert(tx, inserted, readers, workflow, overrides)
        for task in inserted.between:
            notes[task.name] = _describe_insertion(task, inserted, readers, overrides)
    for one in rewired:
        for each in one.inputs:
            if each.inserted:
                structure.move_input(tx, one.task, one.known.logic, each.old, each.new)
                notes.setdefault(one.known.task.name, f"reads {each.new} instead of {each.old}, from its cursor on")
            else:
                removed = ", ".join(task.name for task in each.between)
                text = f"reads {each.new} directly, as {removed} is removed: its next run processes the difference"
                notes.setdefault(one.known.task.name, text)
        if removals := [each for each in one.inputs if not each.inserted]:
            _remove(tx, one, removals)
    _attach(tx, workflow)
    return StructureChange(rewired, notes, placed)


class _Ambiguous(Exception):
    """More than one path of new or removed tasks leads to an input."""


def _passes_rows(task: Task) -> bool:
    """Return whether a task has one output, which it does not read itself."""
    return len(task.writes) == 1 and not task.loops


def _replaced(
    old: Task,
    new: Task,
    added: Mapping[str, Task],
    gone: Mapping[str, Task],
    states: Mapping[str, ChannelState],
) -> tuple[ReplacedInput, ...]:
    before, after = ({*task.reads, *task.sources} for task in (old, new))
    found = []
    for channel in sorted(before - after):
        came = sorted(after - before)
        paths = [ReplacedInput(channel, each, path, True) for each in came for path in _paths(channel, each, added)]
        paths = [each for each in paths if _can_begin_with(states[channel])]
        paths += [ReplacedInput(channel, each, path, False) for each in came for path in _paths(each, channel, gone)]
        if len(paths) > 1:
            raise _Ambiguous(f"more than one task leads from {channel} to its new inputs")
        found += paths
    if len({each.new for each in found}) < len(found):
        raise _Ambiguous("one new input replaces several")
    return tuple(found)


def _can_begin_with(state: ChannelState) -> bool:
    """Return whether the channel of an inserted task can begin with the blocks of a channel."""
    return state.channel.schema is not None and isinstance(state.channel.encoding, Append | Changes | Upsert)


def _paths(start: str, end: str, by_output: Mapping[str, Task]) -> Iterator[tuple[Task, ...]]:
    """Yield the paths from one channel to another through some tasks, given by their outputs."""
    if (task := by_output.get(end)) is None:
        return
    if start in task.reads:
        yield (task,)
    for each in task.reads:
        for path in _paths(start, each, by_output):
            yield (*path, task)


def _rewiring(
    known: TaskVersion,
    declared: Task,
    inputs: tuple[ReplacedInput, ...],
    workflow: WorkflowDefinition,
    states: Mapping[str, ChannelState],
) -> Rewiring:
    task, cursors = known.task, dict(known.cursors)
    used = {*task.reads, *task.writes, *(name for each in inputs for name in (each.old, each.new))}
    channels = {name: states[name].current for name in used if name in states}
    for each in inputs:
        channels.setdefault(each.new, replace(channels[each.old], name=each.new))
        task = with_input_replaced(task, each.old, each.new, known_of(channels))
        if each.old in cursors:
            cursors[each.new] = cursors.pop(each.old)
    task = with_fingerprints_of(task, declared)
    outputs = [(workflow.channel(name), states[name].channel) for name in declared.writes if name in states]
    shaped = all(new.encoding == old.encoding and new.schema in (None, old.schema) for new, old in outputs)
    same = has_same_rows(replace(known, task=task, cursors=cursors), declared)
    return Rewiring(known, inputs, task, same, shaped and same)


def _refuse_running(tx: Transaction, rewired: Iterable[Task]) -> None:
    """Check that neither a rewired task nor one that depends on it is running: their versions are rewritten."""
    tasks = [versions[0].task for versions in registry.live_versions(tx).values()]
    reached = [*rewired]
    for each in reached:
        reached += [task for task in tasks if task not in reached and not {*each.writes}.isdisjoint(task.reads)]
    running = structure.running_tasks(tx)
    for task in reached:
        if task.name in running:
            raise Conflict(
                "a task is inserted or removed before this one, which is running",
                task=task.name,
                run=running[task.name],
                hint="Apply again when the run has ended",
            )


def _insert(
    tx: Transaction,
    inserted: ReplacedInput,
    readers: Collection[str],
    workflow: WorkflowDefinition,
    overrides: LogicOverrides,
) -> dict[str, tuple[int, ...]]:
    """Insert tasks after a channel; return their channels with the numbers of the blocks that these have."""
    placed = {}
    channel = inserted.old
    after = {channel, *task_graph.writers(tx, [channel])[channel]}
    for task in inserted.between:
        origin = channel_store.channel_state(tx, channel)
        current, declared = origin.current, workflow.channel(task.writes[0])
        assert current.schema is not None
        output = replace(
            declared, schema=current.schema.user_columns, encoding=current.encoding, adopts=declared.schema is None
        )
        reason = f"{task.name} was inserted after {channel}, by reference"
        passed = partial(Version.through, task=task.name, logic=START)
        placed[output.name] = structure.add_copy(tx, output, origin, task.name, workflow.name, passed, reason)
        beginning = no_op(task.name, current, output, task.view)
        structure.add_beginning(tx, beginning, workflow.name, {channel: origin.latest_readable})
        if overrides.keeps(task):
            _keep_rows(tx, task, workflow.name)
        inserted_here = partial(Version.with_inserted, task=task.name, after=after, before=readers)
        structure.rewrite_versions(tx, readers, inserted_here)
        channel, after = output.name, {task.name}
    return placed


def _keep_rows(tx: Transaction, task: Task, workflow: str) -> None:
    """Let an inserted task continue with the rows that are there, as if it had processed them.

    Raises:
        DeclarationError: the task may compute its output again, also from these rows.
    """
    if not all(variant.incremental for variant in task.variants):
        raise DeclarationError(
            "the inserted task cannot leave the rows that are there as they are, as it may compute its output again",
            task=task.name,
            hint="Write it as a function of new rows only (kn.New), or apply it without same_logic (--same-logic)",
        )
    structure.take_over(tx, task.name, registry.put_task(tx, task, workflow))


def _remove(tx: Transaction, one: Rewiring, removed: Sequence[ReplacedInput]) -> None:
    """Let a task read channels directly, without the tasks that have led to its present inputs."""
    states = channel_store.channel_states(tx, [each.new for each in removed])
    columns = {name: state.current.schema for name, state in states.items()}
    grown = [
        each.new
        for each in removed
        if all(only_filters(task, () if (own := columns[each.new]) is None else own.names) for task in each.between)
    ]
    inputs = {each.new: each.old for each in removed}
    structure.replace_inputs(tx, one.task, one.known.logic, inputs, grown)


def _attach(tx: Transaction, workflow: WorkflowDefinition) -> None:
    """Rewrite the versions of tasks that are declared with further inputs as if these had always been attached."""
    live = registry.live_versions(tx)
    for task in workflow.tasks:
        if task.name not in live:
            continue
        known = live[task.name][0]
        for channel in sorted({*task.reads} - {*known.task.reads, *known.task.writes} | {*known.replaced}):
            if channel in (found := channel_store.channel_states(tx)):
                paths = [path for path, _ in found[channel].version(found[channel].latest_readable).entries]
                if paths:
                    attached = partial(Version.with_attached, task=task.name, paths=paths)
                    structure.rewrite_versions(tx, [task.name], attached)


def _describe_insertion(task: Task, inserted: ReplacedInput, readers: Iterable[str], overrides: LogicOverrides) -> str:
    where = f"inserted between {inserted.old} and {', '.join(readers)}"
    rows = "stay as they are" if overrides.keeps(task) else "are there by reference"
    return f"{where}: the rows that {inserted.old} has {rows}"
