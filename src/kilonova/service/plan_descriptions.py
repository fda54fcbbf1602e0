"""Descriptions of the changes of a plan, as text for users: every declared attribute that differs is named."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from typing import assert_never

from kilonova.model.binding import Binding
from kilonova.model.channel import Channel
from kilonova.model.check import describe_check
from kilonova.model.column_rules import STRICT, ColumnRules, OnNewColumn
from kilonova.model.encoding import describe_encoding
from kilonova.model.required_columns import describe_columns
from kilonova.model.schedule import Cron, Every, Schedule, describe_schedule, duration
from kilonova.model.task import Task
from kilonova.model.trigger import describe_trigger
from kilonova.model.watched_directory import WatchedDirectory, describe_directory
from kilonova.query.view_tasks import INCREMENTAL

# Channels


def describe_channel(channel: Channel) -> str:
    """Return the encoding of a channel and the number of its columns, as text."""
    if channel.schema is None:
        return f"{describe_encoding(channel.encoding)}, columns as first written"
    count = len(channel.schema.columns)
    return f"{describe_encoding(channel.encoding)}, {count} column{'s' if count > 1 else ''}"


def column_types(channel: Channel) -> dict[str, str]:
    """Return the types of a channel's columns, as far as they are declared."""
    return {column.name: column.type for column in (channel.schema.columns if channel.schema else ())}


def shape_changes(old: Channel, new: Channel) -> list[str]:
    """Return the changes of a channel's encoding and columns; the order of its columns if there are no others."""
    found = []
    if old.encoding != new.encoding:
        before, after = describe_encoding(old.encoding), describe_encoding(new.encoding)
        found.append("changes the columns of its deltas" if before == after else f"{before} becomes {after}")
    if new.schema is None:
        return found
    names = {} if old.schema is None else old.schema.new_names(new.schema)
    found += [f"renames the column {before} to {name}" for before, name in names.items()]
    types = {names.get(name, name): kind for name, kind in column_types(old).items()}
    wanted = column_types(new)
    found += [f"adds the column {name} {kind}" for name, kind in wanted.items() if name not in types]
    found += [f"removes the column {name}" for name in types if name not in wanted]
    found += [
        f"column {name} {types[name]} becomes {kind}" for name, kind in wanted.items() if types.get(name, kind) != kind
    ]
    return found or ["changes the order of the columns"]


def metadata_changes(old: Channel, new: Channel) -> list[str]:
    """Return the changes of a channel's declaration other than those of its encoding and columns."""
    found = [] if old.description == new.description else ["changes the description"]
    if old.several_writers != new.several_writers:
        found.append("may have several writers" if new.several_writers else "has one writer")
    if old.adopts != (new.schema is None):
        found.append("declares its columns" if old.adopts else "takes the columns of the rows that are written")
    found += sequence_changes(old.sequence_by, new.sequence_by)
    found += retention_changes(old.retention, new.retention)
    found += acceptance_changes(old, new)
    found += rule_changes(old.rules, new.rules)
    found += [f"declares the column {name}, which an ingest added" for name in old.added if name not in new.added]
    found += watch_changes(old.watch, new.watch)
    found += [f"adds the check {describe_check(check)}" for check in new.checks if check not in old.checks]
    return found + [f"removes the check {describe_check(check)}" for check in old.checks if check not in new.checks]


def sequence_changes(old: str | None, new: str | None) -> list[str]:
    """Return the change of the column that orders the rows of a key."""
    if old == new:
        return []
    return ["the last row of a key counts" if new is None else f"the row of a key with the highest {new} counts"]


def retention_changes(old: float | None, new: float | None) -> list[str]:
    """Return the change of the time for which points stay readable."""
    if old == new:
        return []
    return ["points are kept as long as they are needed" if new is None else f"keeps points for {duration(round(new))}"]


def acceptance_changes(old: Channel | None, new: Channel) -> list[str]:
    """Return the change of the types of blocks that readers of a channel accept."""
    if (None if old is None else old.accepts) == new.accepts:
        return []
    return ["readers accept bases and deltas" if new.accepts is None else f"readers accept only {new.accepts}s"]


def describe_rules(rules: ColumnRules) -> list[str]:
    """Return the column rules of a channel, as text; none for the default."""
    return rule_changes(STRICT, rules)


def rule_changes(old: ColumnRules, new: ColumnRules) -> list[str]:
    """Return the changes of a channel's column rules."""
    found = []
    if old.on_new_column is not new.on_new_column:
        match new.on_new_column:
            case OnNewColumn.ADD:
                found.append("adds new columns of ingested rows")
            case OnNewColumn.IGNORE:
                found.append("ignores new columns of ingested rows")
            case OnNewColumn.QUARANTINE:
                found.append("refuses new columns of ingested rows")
            case _:
                assert_never(new.on_new_column)
    before, after = dict(old.rename), dict(new.rename)
    found += [f"reads the column {name} as {to}" for name, to in after.items() if before.get(name) != to]
    found += [f"no longer reads the column {name} as {to}" for name, to in before.items() if name not in after]
    had, has = dict(old.defaults), dict(new.defaults)
    found += [
        f"fills the column {name} with {'null' if value is None else repr(value)} where it is lacking"
        for name, value in has.items()
        if name not in had or had[name] != value
    ]
    return found + [f"has no default for the column {name}" for name in had if name not in has]


def watch_changes(old: WatchedDirectory | None, new: WatchedDirectory | None) -> list[str]:
    """Return the changes of a channel's watched directory."""
    if new is None:
        return [] if old is None else ["ingests no more files"]
    if old is None:
        return [f"ingests the files of {describe_directory(new)}"]
    found = []
    before, after = old.path(old.pattern), new.path(new.pattern)
    if before != after:
        found.append(f"ingests the files of {after} instead of {before}")
    if old.format != new.format:
        found.append(f"format {new.format or 'inferred'} instead of {old.format or 'inferred'}")
    given, wanted = dict(old.options), dict(new.options)
    for name in sorted(given | wanted):
        if given.get(name) != wanted.get(name):
            found.append(f"option {name}: {_value(wanted.get(name))} instead of {_value(given.get(name))}")
    if old.poll_interval != new.poll_interval:
        found.append(f"scans every {duration(new.poll_interval)} instead of every {duration(old.poll_interval)}")
    if old.settle_time != new.settle_time:
        found.append(f"settle time {duration(new.settle_time)} instead of {duration(old.settle_time)}")
    if old.in_order != new.in_order:
        found.append("ingests files in order" if new.in_order else "ingests files past those that are quarantined")
    return found


def _value(option: str | None) -> str:
    return "default" if option is None else repr(option)


# Tasks


def describe_task_schedule(schedule: Schedule | None) -> str:
    """Return the times at which a task runs automatically, as text."""
    match schedule:
        case None:
            return "whenever there is new input"
        case Every():
            return describe_schedule(schedule)
        case Cron():
            return f"at {describe_schedule(schedule)}"
        case _:
            assert_never(schedule)


def schedule_changes(old: Task, new: Task) -> list[str]:
    """Return the change of a task's schedule."""
    if old.schedule == new.schedule:
        return []
    return [f"runs {describe_task_schedule(new.schedule)} instead of {describe_task_schedule(old.schedule)}"]


def requirement_changes(old: Task, new: Task) -> list[str]:
    """Return the change of the columns that a task requires, apart from those that are inferred from queries."""
    before, after = ([each for each in task.requires if each.type is not None] for task in (old, new))
    if before == after:
        return []
    return [f"requires {describe_columns(after)}" if after else "requires no declared columns any more"]


def method_changes(old: Task, new: Task) -> list[str]:
    """Return the changes of how a task's output is computed, where its rows stay the same."""
    before, after = ([variant.name for variant in task.variants] for task in (old, new))
    if old.view is None or new.view is None:
        return [] if before == after else [f"prefers its variants in the order {', '.join(after)}"]
    if before == after:
        return []
    return [f"is refreshed {_refreshed(after)} instead of {_refreshed(before)}"]


def _refreshed(variants: list[str]) -> str:
    if INCREMENTAL not in variants:
        return "in full"
    return "incrementally" if variants[0] == INCREMENTAL else "by the cheapest method"


def definition_changes(old: Task, new: Task, altered: set[str]) -> list[str]:
    """Return the changes of a task's definition because of which its output is recomputed.

    Args:
        old: the registered task.
        new: the declared task.
        altered: the channels whose encoding or columns change.
    """
    found = []
    if old.writes != new.writes:
        found.append("it writes other channels")
    found += [f"the declaration of the channel {name} has changed" for name in new.writes if name in altered]
    if old.view is not None and new.view is not None:
        queries = ({variant.fingerprint for variant in task.variants} for task in (old, new))
        return found if len(set(map(frozenset, queries))) == 1 else [*found, "its query changed"]
    before = {variant.name: variant for variant in old.variants}
    for variant in new.variants:
        earlier = before.pop(variant.name, None)
        if earlier is None:
            found.append(f"variant {variant.name} is new")
        elif earlier.fingerprint != variant.fingerprint:
            found.append(f"the code of {variant.name} changed")
        elif (earlier.ports, earlier.productions) != (variant.ports, variant.productions):
            found.append(f"the ports or result of {variant.name} changed")
    return found + [f"variant {name} was removed" for name in before]


def text_diff(old: Task, new: Task, before: str = "registered", after: str = "declared") -> str:
    """Return the lines of a task's queries and functions that differ, in unified format; empty if none does.

    A view is shown as its author wrote it, other tasks by variant.

    Args:
        old: the task as it was.
        new: the task as it is.
        before: what the former is, for the heads of the diff.
        after: what the latter is.
    """
    texts, found = dict(_texts(old)), list[str]()
    for name, text in _texts(new):
        if name in texts:
            lines = texts[name].splitlines(), text.splitlines()
            found += unified_diff(*lines, f"{name} ({before})", f"{name} ({after})", lineterm="")
    return "\n".join(found)


def _texts(task: Task) -> Iterator[tuple[str, str]]:
    if task.view is None:
        yield from ((variant.name, variant.logic.text) for variant in task.variants)
    elif task.written:
        yield task.name, task.written


# Bindings


def describe_triggers(binding: Binding) -> str:
    """Return the triggers of a binding, as text."""
    return "; or ".join(map(describe_trigger, binding.triggers)) or "by hand"


def binding_changes(old: Binding, new: Binding) -> list[str]:
    """Return the changes of a binding, regardless of the order of its tasks and triggers."""
    found = []
    if old.workflowette != new.workflowette:
        found.append(f"binds {_bound(new)} instead of {_bound(old)}")
    if more := [task for task in new.tasks if task not in old.tasks]:
        found.append(f"also runs {', '.join(more)}")
    if less := [task for task in old.tasks if task not in new.tasks]:
        found.append(f"no longer runs {', '.join(less)}")
    if set(old.triggers) != set(new.triggers):
        found.append(f"{describe_triggers(new)} instead of {describe_triggers(old)}")
    if old.priority != new.priority:
        found.append(f"priority {new.priority} instead of {old.priority}")
    if old.merge_window != new.merge_window:
        found.append(f"merge window {_window(new)} instead of {_window(old)}")
    if old.implicit != new.implicit:
        found.append("is no longer declared" if new.implicit else "is declared")
    return found


def _bound(binding: Binding) -> str:
    return f"the workflowette {binding.workflowette}" if binding.workflowette else "its own tasks"


def _window(binding: Binding) -> str:
    return "none" if binding.merge_window is None else duration(round(binding.merge_window))
