"""Handover from the logic version of a task that runs to a new one which requires columns (logic evolution, 3.3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kilonova.catalog import registry
from kilonova.catalog.database import Transaction
from kilonova.model.channel import ChannelState
from kilonova.model.required_columns import RequiredColumn, describe_columns, missing_columns
from kilonova.model.task import Task
from kilonova.model.version import START
from kilonova.model.workflow import WorkflowDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionHandover:
    """Handover to a new logic version.

    Attributes:
        waits: the columns of its inputs for which the new version waits, unless the workflow itself adds them.
        continues: the version that goes on until then, and finishes the data without them; None if none does.
        text: what happens, as text for users; empty if the new version runs next and there is no such data.
    """

    waits: tuple[RequiredColumn, ...] = ()
    continues: int | None = None
    text: str = ""


def plan_handover(
    tx: Transaction,
    task: Task,
    versions: Sequence[registry.TaskVersion],
    workflow: WorkflowDefinition,
    states: Mapping[str, ChannelState],
) -> VersionHandover:
    """Return the handover to a new logic version of a task.

    Args:
        tx: an open transaction.
        task: the task as declared.
        versions: its live logic versions, newest first; none if it is new.
        workflow: the workflow that declares it.
        states: the channels that it reads, as they will be declared.
    """
    missing = tuple(
        column
        for name in task.relies_on
        if name in states
        for column in missing_columns(task.requires, states[name], states[name].latest_readable)
    )
    waits = tuple(column for column in missing if column.type is not None or not workflow.writers(column.channel))
    present = registry.continuing_version(versions) if versions else None
    unread = () if present is None else _unread_columns(task, present, states)
    continues = None
    if present is not None and (missing or unread) and _may_continue(tx, task, present, workflow):
        continues = present.logic
    text = ""
    if waits:
        goes_on = "" if continues is None else f": logic version {continues} goes on until then"
        text = f"waits for the first data with {describe_columns(waits)}{goes_on}"
    elif unread and continues is not None:
        text = f"logic version {continues} finishes the data without {describe_columns(unread)}"
    return VersionHandover(waits=waits, continues=continues, text=text)


def _unread_columns(
    task: Task, present: registry.TaskVersion, states: Mapping[str, ChannelState]
) -> tuple[RequiredColumn, ...]:
    """Return the columns that a new logic version requires, and data lacks that the present one has not read yet."""
    found: dict[RequiredColumn, None] = {}
    for name in task.relies_on:
        if name in states and name in present.task.reads:
            unread = (point.number for point in states[name].readable_points if point.number > present.cursor(name))
            for number in unread:
                found |= dict.fromkeys(missing_columns(task.requires, states[name], number))
    return tuple(found)


def _may_continue(tx: Transaction, task: Task, present: registry.TaskVersion, workflow: WorkflowDefinition) -> bool:
    """Return whether the present logic version of a task can go on while the new one waits.

    Not if the tasks of a view change together, if the task writes other channels or shares them with others, or if it
    was inserted and has done nothing so far.
    """
    views = {view for view in (task.view, present.task.view) if view is not None}
    parts = {each.name for each in workflow.tasks if each.view in views}
    parts |= {name for view in views for name in registry.view_tasks(tx, view)}
    shared = any(workflow.channel(name).several_writers for name in task.writes)
    return present.logic != START and parts <= {task.name} and task.writes == present.task.writes and not shared
