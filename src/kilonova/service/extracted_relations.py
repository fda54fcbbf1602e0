"""Relations that a changed view stores apart, such as groups above which a condition was added, from the view's rows.

The view has stored these rows itself until now. In the catalog, the relation takes over the view's points and blocks by
reference, as computed by a logic version `START` with the view's query, and the view becomes a no-op of `START` that
has read them (as a task that is inserted after it would be; logic evolution, 3.2). So both are migrated as any changed
task, and nothing is computed from the inputs again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from kilonova.catalog import channel_store, registry, structure, task_graph
from kilonova.catalog.database import Transaction
from kilonova.catalog.registry import TaskVersion
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.schema import KEPT
from kilonova.model.task import Task
from kilonova.model.version import Version
from kilonova.model.workflow import WorkflowDefinition
from kilonova.query.expression import Op, column, compose
from kilonova.query.input_replacement import beginning
from kilonova.query.migration.derivation import derive_migration, equal_columns
from kilonova.query.migration.migration import Migration
from kilonova.query.tree import Item, Node, Projection, Scan, names
from kilonova.query.view_tasks import change_of, known_of, relation_of, task_of
from kilonova.service.logic_overrides import LogicOverrides


@dataclass(frozen=True, slots=True)
class ExtractedRelation:
    """Relation that a view has stored as its own rows, and stores apart from now on.

    Attributes:
        view: the view's task, as registered.
        task: the task of the relation, as declared.
        columns: the columns of the relation by those of the view that have the same values.
        stored: the channel of the relation, with the columns and the encoding of the view.
    """

    view: TaskVersion
    task: Task
    columns: Mapping[str, str]
    stored: Channel

    @property
    def channel(self) -> str:
        """Channel that holds the relation."""
        return self.task.writes[0]


def find_extracted(
    tx: Transaction, workflow: WorkflowDefinition, overrides: LogicOverrides
) -> tuple[ExtractedRelation, ...]:
    """Return the new relations of a workflow that can be migrated from the rows of their views alone.

    Args:
        tx: an open transaction.
        workflow: the workflow as declared.
        overrides: the tasks whose logic versions the user decides: a view that is said to have the same logic keeps its
            own rows.
    """
    views = {task.name: task for task in workflow.tasks if task.view == task.name and not overrides.keeps(task)}
    named = structure.registered_names(tx)
    parts: dict[str, list[Task]] = {}
    for task in workflow.tasks:
        if task.view is not None and task.view != task.name and task.name not in named:
            parts.setdefault(task.view, []).append(task)
    if not parts:
        return ()
    live, states = registry.live_versions(tx), channel_store.channel_states(tx)
    found: list[ExtractedRelation] = []
    for name, new in parts.items():
        versions = live.get(name, ())
        if name not in views or len(versions) != 1 or not versions[0].started or versions[0].replaced:
            continue
        own = [part for part in new if part.writes[0] in views[name].reads and part.writes[0] not in states]
        fitting = [each for part in own if (each := _extracted(versions[0], part, states)) is not None]
        if len(fitting) == 1 and not structure.has_been_inserted(tx, name):
            found += fitting
    return tuple(found)


def _extracted(view: TaskVersion, part: Task, states: Mapping[str, ChannelState]) -> ExtractedRelation | None:
    """Return a relation as one that is extracted from a view; None if it cannot be computed from its rows alone."""
    old, new, channel = change_of(view.task), change_of(part), view.task.writes[0]
    inputs = {*view.task.reads} - {channel}
    if old is None or new is None or inputs != {*part.reads} - {*part.writes} or not inputs <= view.cursors.keys():
        return None
    if (present := states[channel].current).schema is None:
        return None
    known = known_of({name: states[name].current for name in inputs})
    columns: dict[str, str] = {}
    for here, there in equal_columns(old.tree, new.tree, known).items():
        if not here.startswith(KEPT) and not there.startswith(KEPT) and there not in columns.values():
            columns[here] = there
    stored = _renamed(present, part.writes[0], columns)
    if not columns or stored is None:
        return None
    step = derive_migration(_with_names(old.tree, columns), new.tree, relation_of(old.tree, stored), known)
    while isinstance(step, Migration):
        if not step.reads.keys() <= {stored.name}:
            return None
        if step.then is None:
            return ExtractedRelation(view, part, columns, stored)
        step = step.then
    return None


def _renamed(channel: Channel, name: str, columns: Mapping[str, str]) -> Channel | None:
    """Return a view's channel under the name of a relation, and its columns under the names that they have there.

    None if other columns have these names, or the key had another one.
    """
    assert channel.schema is not None
    visible = channel.schema.user_columns
    after = {columns.get(each, each).lower() for each in visible.names}
    if len(after) < len(visible.names) or any(columns.get(each, each) != each for each in channel.key):
        return None
    return replace(channel, name=name, schema=visible.renamed(columns))


def _with_names(tree: Node, columns: Mapping[str, str]) -> Node:
    """Return a query with other names of columns."""
    return Projection(tree, tuple(Item(columns.get(name, name), column(name)) for name in names(tree)))


def _passing(relation: Channel, view: Channel, columns: Mapping[str, str]) -> Node:
    """Return the query by which a view has the rows of a relation.

    Columns that the relation lacks cannot be computed from it. They are as no column of another query, so that a
    migration drops them.
    """
    assert view.schema is not None
    items = []
    for each in view.schema.user_columns.columns:
        missing = f"CAST(raise_error('{relation.name} lacks a column') AS {each.type})"
        source = columns.get(each.name)
        items.append(Item(each.name, compose(missing, op=Op.CALL) if source is None else column(source)))
    return Projection(Scan(relation.name, tuple((name, name) for name in columns.values())), tuple(items))


def extract(tx: Transaction, found: ExtractedRelation, workflow: WorkflowDefinition) -> tuple[int, ...]:
    """Let a relation take over the rows of its view, and the view read it.

    Args:
        tx: a writing transaction.
        found: the relation.
        workflow: the workflow as declared.

    Returns:
        The numbers of the blocks that the relation has by reference.
    """
    view, part, change = found.view.task, found.task, change_of(found.view.task)
    assert change is not None
    declared = workflow.channel(found.channel)
    output = replace(
        declared, schema=found.stored.schema, encoding=found.stored.encoding, adopts=declared.schema is None
    )
    inputs = {name: state.current for name, state in channel_store.channel_states(tx, found.view.cursors).items()}
    origin = channel_store.channel_state(tx, view.writes[0])
    reason = f"{part.name} was taken out of {view.name}, by reference"
    written = partial(Version.written_by, task=part.name)
    numbers = structure.add_copy(tx, output, origin, part.name, workflow.name, written, reason)
    rows = relation_of(_with_names(change.tree, found.columns), output)
    computed = beginning(task_of(rows, view.name, known_of(inputs)))
    structure.add_beginning(tx, computed, workflow.name, found.view.cursors)
    passed = relation_of(_passing(output, origin.current, found.columns), origin.current)
    read = beginning(task_of(passed, view.name, known_of({output.name: output})))
    structure.add_beginning(tx, read, workflow.name, {output.name: origin.latest_readable})
    after = {*inputs, *(task for names in task_graph.writers(tx, [*inputs]).values() for task in names)}
    inserted = partial(Version.with_inserted, task=part.name, after=after, before=[view.name])
    structure.rewrite_versions(tx, [view.name], inserted)
    return numbers
