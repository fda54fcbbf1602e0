"""Overrides of the comparison of definitions: which tasks get a new logic version is decided by the user.

A definition may do the same as the registered one although it differs, and another although it does not: a function may
be refactored, or a file that it reads be replaced. The user can say so when a workflow is planned or applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kilonova.errors import DeclarationError, NotFound, closest_name
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.schema import KEPT, quoted
from kilonova.model.task import Task
from kilonova.query.properties import types
from kilonova.query.view_tasks import change_of, known_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicOverrides:
    """Tasks, and views with all of their tasks, whose logic versions the user decides.

    Attributes:
        same_logic: those whose changed definition does the same as before: no new logic version, their output stays.
        new_version: those that get a new logic version, whether or not their definition has changed.

    Raises:
        DeclarationError: a task is among both.
    """

    same_logic: frozenset[str] = frozenset()
    new_version: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in sorted(self.same_logic & self.new_version):
            raise DeclarationError(
                "the task cannot both have the same logic and get a new version", task=name, hint="Name it once"
            )

    def check_declared(self, tasks: Iterable[Task]) -> None:
        """Check that all names are those of declared tasks or views.

        Raises:
            NotFound: one is not.
        """
        names = {name for task in tasks for name in (task.name, task.view) if name is not None}
        for name in sorted((self.same_logic | self.new_version) - names):
            raise NotFound("the workflow declares no such task", task=name, hint=closest_name(name, sorted(names)))

    def keeps(self, task: Task) -> bool:
        """Return whether a task is said to have the same logic."""
        return not self.same_logic.isdisjoint((task.name, task.view))

    def renews(self, task: Task) -> bool:
        """Return whether a new logic version of a task is requested."""
        return not self.new_version.isdisjoint((task.name, task.view))


NO_OVERRIDES = LogicOverrides()
"""No task whose logic version the user decides."""


def validate_same_output(
    old: Task | None, new: Task, altered: set[str], channels: Mapping[str, Channel], states: Mapping[str, ChannelState]
) -> None:
    """Check that the output of a task can stay if its changed definition is taken to do the same.

    Args:
        old: the registered task; None if it is new.
        new: the declared task.
        altered: the channels whose encoding or columns change.
        channels: the channels of the workflow and those that it reads.
        states: the registered channels.

    Raises:
        DeclarationError: the task is new, reads or writes other channels, or its output has other columns or another
            key or encoding.
    """
    if old is None:
        problem = "it is new"
    elif old.writes != new.writes:
        problem = "it writes other channels"
    elif {*old.reads, *old.sources} != {*new.reads, *new.sources}:
        problem = "it reads other channels"
    elif found := sorted(altered & {*new.writes}):
        problem = f"the declaration of the channel {found[0]} has changed"
    else:
        problem = _column_difference(new, channels, states)
    if problem:
        raise DeclarationError(
            f"the task cannot have the same logic: {problem}",
            task=new.name,
            hint="Apply it as a new logic version, without same_logic (--same-logic)",
        )


def _column_difference(task: Task, channels: Mapping[str, Channel], states: Mapping[str, ChannelState]) -> str:
    """Return which columns of a view differ from those that it has stored, as far as they are known; "" if none do."""
    from kilonova.query.syntax import selected_names  # it imports the parser

    stored = states[task.name].stored_schema if task.view is not None and task.name in states else None
    if stored is None:
        return ""
    before = {column.name: column.type for column in stored.columns}
    change = change_of(task)
    if change is not None:
        after = types(change.tree, known_of({name: channels[name] for name in task.reads}))
    else:
        from kilonova.query.syntax import selected_names

        variant = task.variants[0]
        text = variant.logic.text.format(**{port.name: quoted(port.channel) for port in variant.ports})
        after = dict.fromkeys(selected_names(text) or before)
        before = {name: kind for name, kind in before.items() if not name.startswith(KEPT)}
    missing = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    for name in sorted((*missing, *added), key=lambda name: name.startswith(KEPT)):
        if name.startswith(KEPT):
            return "it stores other sums of its groups"
        return f"its query {'does not return' if name in missing else 'also returns'} the column {name}"
    for name, kind in after.items():
        if kind is not None and kind != before[name]:
            return f"its query returns the column {name} as {kind}, not as {before[name]}"
    return ""
