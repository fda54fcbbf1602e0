"""Planned changes of channels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kilonova.catalog import files, registry
from kilonova.catalog.database import Transaction
from kilonova.errors import DeclarationError
from kilonova.model.channel import Channel, ChannelState, declared_output
from kilonova.model.check import Check, describe_check
from kilonova.model.column_rules import STRICT, OnNewColumn
from kilonova.model.encoding import Custom, Encoding, describe_encoding, key_of
from kilonova.model.schema import Schema, identified
from kilonova.model.watched_file import FileState
from kilonova.model.widening import is_wider
from kilonova.model.workflow import WorkflowDefinition
from kilonova.service.plan_action import Action
from kilonova.service.plan_descriptions import (
    acceptance_changes,
    column_types,
    describe_channel,
    describe_rules,
    metadata_changes,
    retention_changes,
    sequence_changes,
    shape_changes,
    watch_changes,
)

_UNWATCHED = "no longer declared: ingests no more files; its rows are kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelChange:
    """Planned change of a channel.

    Attributes:
        channel: the channel as declared.
        action: the action.
        detail: the changes, as text for users.
        reshaped: whether its schema or encoding changes, so that the output of its task is migrated or recomputed.
        unseen: the checks that have not been run on the existing rows.
        retried: the number of quarantined files that are retried, because they may fit now.
    """

    channel: Channel
    action: Action
    detail: str
    reshaped: bool = False
    unseen: tuple[Check, ...] = ()
    retried: int = 0


def with_waiting(
    states: Mapping[str, ChannelState], versions: Iterable[registry.TaskVersion]
) -> dict[str, ChannelState]:
    """Return channels as the newest logic versions of tasks declare them, also those that wait for columns."""
    found = dict(states)
    for output in (output for version in versions for output in version.outputs):
        known = states[output.name]
        schema = output.schema and identified(output.schema, known.channel.schema, known.latest)
        found[output.name] = replace(known, channel=declared_output(known.channel, replace(output, schema=schema)))
    return found


def taken_back(change: ChannelChange, stored: ChannelState) -> ChannelChange:
    """Return the change of a channel whose newest declaration has not taken effect, and is replaced."""
    old, new = stored.channel, change.channel
    if new.encoding == old.encoding and new.schema in (None, old.schema) and new.checks == old.checks:
        return change
    detail = change.detail if change.action is Action.CHANGE else ", ".join(shape_changes(old, new))
    return replace(change, action=Action.CHANGE, detail=detail, reshaped=True)


def unwatched(channels: Iterable[Channel]) -> tuple[ChannelChange, ...]:
    """Return the changes of channels that are no longer declared: they ingest no more files."""
    return tuple(
        ChannelChange(channel=replace(channel, watch=None), action=Action.CHANGE, detail=_UNWATCHED)
        for channel in channels
        if channel.watch is not None
    )


def plan_channel(
    tx: Transaction,
    channel: Channel,
    workflow: WorkflowDefinition,
    state: ChannelState | None,
    owner: str | None,
    *,
    recovered: bool,
) -> ChannelChange:
    """Return the change of a declared channel.

    Args:
        tx: an open transaction.
        channel: the channel as declared.
        workflow: the workflow that declares it.
        state: the registered channel; None if it is new.
        owner: the workflow to which the registered channel belongs; None if it is new.
        recovered: whether the registered channel was recovered from the warehouse.

    Raises:
        DeclarationError: another workflow declares it differently, or its rows do not fit the declaration.
    """
    change = _declared_change(channel, workflow, state, owner, recovered=recovered)
    return change if state is None else _with_retries(tx, change, state.channel)


def _declared_change(
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
        renamed = _renamed(channel, old, state.latest)
        channel = _with_added(channel, channel.schema, old, {*renamed.values()})
        schema = identified(channel.schema or Schema(()), old.schema, state.latest, renamed=renamed)
        channel = replace(channel, schema=schema)
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
    return ChannelChange(
        channel=channel,
        action=Action.CHANGE,
        detail=detail,
        reshaped=reshaped,
        unseen=unseen,
    )


def _with_retries(tx: Transaction, change: ChannelChange, old: Channel) -> ChannelChange:
    """Return the change of a channel with the number of its quarantined files, if it may make them fit."""
    new = change.channel
    if change.action is not Action.CHANGE or new.watch is None:
        return change
    if old.watch != new.watch or old.fits_alike(new):
        return change
    count = files.count_files(tx, new.name, FileState.QUARANTINED)
    said = f", retries {count} quarantined file{'s' if count > 1 else ''}" if count else ""
    return replace(change, retried=count, detail=change.detail + said)


def _renamed(channel: Channel, old: Channel, newest: int) -> dict[str, str]:
    """Return the present names of the columns that a declaration renames, by their new names.

    These are columns whose former names it gives, for files: rows that are there keep their values. Rows are laid out
    by the key, and compared by the column that orders them, which are not renamed. A column that was added after the
    newest point has no values; its identity might be that of another one which is added now.

    Args:
        channel: the channel as declared.
        old: the registered channel.
        newest: its newest point.
    """
    if channel.schema is None or old.schema is None:
        return {}
    fixed = {*key_of(old.encoding), *key_of(channel.encoding), old.sequence_by, channel.sequence_by}
    written = (column.name for column in old.schema.columns if column.since < newest)
    present = {name.lower(): name for name in written if name not in fixed}
    found: dict[str, str] = {}
    for before, now in channel.rules.rename:
        if before.lower() in present and now not in (*old.schema.names, *fixed):
            found.setdefault(now, present[before.lower()])
    return found


def _with_added(channel: Channel, schema: Schema, old: Channel, renamed: Collection[str]) -> Channel:
    """Return a channel as declared with the columns that ingests have added to it, unless they are declared by now.

    Args:
        channel: the channel as declared.
        schema: its columns.
        old: the registered channel.
        renamed: the names of added columns that are declared by another name.
    """
    declared = {name.lower() for name in (*schema.names, *renamed)}
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
