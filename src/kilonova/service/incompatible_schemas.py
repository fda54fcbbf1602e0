"""Incompatible schemas: upgrades after which no logic version of a task accepts a channel (logic evolution, 3.3.1).

The schema function gives the columns that a channel will have once its writers have run as declared. If each logic
version of a task that reads the channel requires a column that it will not have, the task will stop before the first
data without it: the plan says so in advance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kilonova.model.channel import Channel, ChannelState
from kilonova.model.required_columns import RequiredColumn, absent_columns, describe_columns, missing_columns
from kilonova.model.schema import Schema
from kilonova.model.schema_function import ColumnTypes, SchemaFunction, SchemaTransformation
from kilonova.model.task import Task
from kilonova.model.version import Version
from kilonova.query.properties import RelationFacts, types
from kilonova.query.view_tasks import change_of


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompatibleSchema:
    """Channel that will lack columns which each logic version of a task requires.

    Attributes:
        channel: the channel.
        task: the task that reads it.
        columns: the columns that its newest logic version requires.
    """

    channel: str
    task: str
    columns: tuple[RequiredColumn, ...]

    def __str__(self) -> str:
        return (
            f"{self.task} requires {describe_columns(self.columns)}, which will no longer be there: it stops before "
            "the first data without it, until a version that accepts it is applied"
        )


def incompatible_schemas(
    tasks: Mapping[str, Sequence[Task]],
    channels: Mapping[str, Channel],
    states: Mapping[str, ChannelState],
    changed: Collection[str],
) -> tuple[IncompatibleSchema, ...]:
    """Return the channels that will lack columns which tasks require.

    Args:
        tasks: the logic versions of each task that run after the change, the newest first.
        channels: the channels as they will be declared.
        states: the registered channels.
        changed: the tasks that have a new logic version, and the channels whose columns are declared differently.
    """
    newest = {name: versions[0] for name, versions in tasks.items()}
    readers: dict[str, list[Task]] = {}
    for task in newest.values():
        for name in task.relies_on:
            readers.setdefault(name, []).append(task)
    written = {name for name in readers if name in states and states[name].latest_distinct}
    if not written or not (names := written & _affected(newest, changed)):
        return ()
    found = []
    function = _schema_function(newest, channels, states, changed)
    for name in sorted(names):
        columns = function.columns(name, _next_version(name, function.writers, newest, states))
        if columns is None:
            continue
        for task in readers[name]:
            accepted = (
                not missing_columns(each.requires, states[name], states[name].latest_readable)
                for each in tasks[task.name]
            )
            if any(accepted) and all(_absent(each, name, columns) for each in tasks[task.name]):
                found.append(IncompatibleSchema(channel=name, task=task.name, columns=_absent(task, name, columns)))
    return tuple(found)


def _affected(tasks: Mapping[str, Task], changed: Collection[str]) -> set[str]:
    """Return the channels whose columns may change: those declared differently, and all downstream of a change."""
    readers: dict[str, list[Task]] = {}
    for task in tasks.values():
        for name in {*task.reads, *task.sources}:
            readers.setdefault(name, []).append(task)
    left = [*changed, *(name for each in changed if each in tasks for name in tasks[each].writes)]
    found = set(left)
    while left:
        more = {name for task in readers.get(left.pop(), ()) for name in task.writes} - found
        found |= more
        left += more
    return found


def _absent(task: Task, channel: str, columns: ColumnTypes) -> tuple[RequiredColumn, ...]:
    return absent_columns((each for each in task.requires if each.channel == channel), columns)


def _schema_function(
    tasks: Mapping[str, Task],
    channels: Mapping[str, Channel],
    states: Mapping[str, ChannelState],
    changed: Collection[str],
) -> SchemaFunction:
    """Return the schema function of channels once the given logic versions, each with the number 0, have run."""
    transformations = {
        (output, 0): _transformation(task, channels[output], None if task.name in changed else states.get(output))
        for task in tasks.values()
        for output in task.writes
    }
    return SchemaFunction(
        sources=lambda channel, point: _columns(channels[channel].schema),
        writers={output: task.name for task in tasks.values() for output in task.writes},
        transformations=transformations,
    )


def _transformation(task: Task, channel: Channel, written: ChannelState | None) -> SchemaTransformation:
    """Return the schema transformation of a task: of a view by its query, of others the declared columns.

    Args:
        task: the task.
        channel: the channel that it writes, as declared.
        written: the state of the channel, if the task has written it as it is declared.
    """
    change = change_of(task)
    if change is not None:

        def of_query(read: tuple[ColumnTypes | None, ...]) -> ColumnTypes:
            return types(change.tree, {name: _facts(each) for name, each in zip(task.reads, read, strict=True)})

        return SchemaTransformation(reads=task.reads, columns=of_query)
    if written is not None and written.latest_distinct:
        found = _columns(written.written_schema(written.latest_readable))
    else:
        found = None if channel.adopts else _columns(channel.schema)
    return SchemaTransformation(reads=(), columns=lambda read: found)


def _facts(columns: ColumnTypes | None) -> RelationFacts:
    return RelationFacts(types={name: kind or "" for name, kind in (columns or {}).items()}, key=())


def _columns(schema: Schema | None) -> ColumnTypes | None:
    return None if schema is None else {column.name: column.type for column in schema.columns}


def _next_version(
    channel: str, writers: Mapping[str, str], tasks: Mapping[str, Task], states: Mapping[str, ChannelState]
) -> Version:
    """Return the version of a channel after its sources' next points were processed; logic versions are numbered 0."""
    if channel not in writers:
        return Version.source(channel, states[channel].latest + 1 if channel in states else 1)
    version = Version()
    for name in tasks[writers[channel]].reads:
        version = version.joined(_next_version(name, writers, tasks, states))
    return version.through(writers[channel], 0)
