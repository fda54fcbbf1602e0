"""Planned migration of a changed task: how its output becomes that of the new logic version, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kilonova.catalog.registry import TaskVersion
from kilonova.errors import DeclarationError
from kilonova.model.channel import Channel, ChannelState
from kilonova.model.encoding import Append, Changes, key_of
from kilonova.model.run import CostSample, RefreshMethod
from kilonova.model.task import Task, Variant
from kilonova.model.version import START
from kilonova.query.column_renaming import with_new_names
from kilonova.query.migration.migration import NoMigration
from kilonova.query.tree_json import tree_to_json
from kilonova.query.view_migration import derive_takeover, derive_variants
from kilonova.query.view_tasks import ViewChange, change_of, known_of
from kilonova.schedule.due import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """Plan that turns the existing output of a changed task into that of its new logic version.

    Attributes:
        text: what the next run does, for users.
        variants: the migrations, one after the other; none if there is none, or recomputing the output is cheaper.
        rows: the rows that they read.
        bytes: the same in bytes.
        seconds: the estimated seconds of each alternative, by its name.
        cursors: the cursors of the logic version that is migrated, with those of a relation whose rows its view takes;
            none if there is no such relation.
    """

    text: str
    variants: tuple[Variant, ...] = ()
    rows: int = 0
    bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    cursors: Mapping[str, int] = field(default_factory=dict)


def plan_migration(
    task: Task,
    versions: Sequence[TaskVersion],
    states: Mapping[str, ChannelState],
    declared: Mapping[str, Channel],
    samples: Sequence[CostSample],
    obstacle: str | None,
    readers: frozenset[str],
    renamed: Mapping[str, Mapping[str, str]],
    relations: Sequence[TaskVersion] = (),
) -> MigrationPlan | None:
    """Return how the output of a changed task is brought to its new logic version.

    Args:
        task: the task as declared.
        versions: its live logic versions, newest first.
        states: the channels, those included that are declared for the first time.
        declared: the channels that it writes, as declared.
        samples: the costs of its last runs, newest first.
        obstacle: why its output cannot be migrated, whatever the change; None if it can.
        readers: the views and other tasks that read what is new in its output, or in that of its view.
        renamed: the new names of columns that are renamed together with its change, by their present ones, of each
            channel that its newest logic version reads.
        relations: of a view, the tasks of relations that it has stored apart, and does not read any more.

    Returns:
        The plan; None if the task has written nothing yet.

    Raises:
        DeclarationError: a migration is declared from a logic version that does not exist.
    """
    from kilonova.schedule.planning import (
        choose,
        migration_estimates,
        migration_obstacle,
        port_inputs,
        reading_migrations,
    )

    newest = versions[0].logic
    for each in task.migrations:
        if each.from_version is not None and each.from_version > newest:
            raise DeclarationError(
                f"the migration {each.name} starts from the logic version {each.from_version}, which does not exist",
                task=task.name,
                hint=f"The newest logic version is {newest}",
            )
    written = next((version for version in versions if version.started), None)
    if written is None:
        return None
    names = renamed if written is versions[0] else {}  # those which an earlier version has read may have been others
    taken: tuple[TaskVersion, Variant] | None = None
    found: tuple[Variant, ...] | NoMigration
    if obstacle is not None:
        found = NoMigration(reason=obstacle)
    elif (taken := _taken_over(task, written, states, relations)) is not None:
        found = (taken[1],)
        written = replace(written, cursors={**taken[0].cursors, **written.cursors})
    else:
        found = _variants(task, written, states, declared, names)
    if isinstance(found, NoMigration):
        return MigrationPlan(text=f"recomputed at the next run: {found.reason}")
    state = _state(replace(task, migrations=found), written, newest + 1, samples, readers)
    if (collected := migration_obstacle(state, states)) is not None:
        return MigrationPlan(text=f"recomputed at the next run, as what a migration would read is gone: {collected}")
    choice = choose(state, states)
    if choice.state.previous is not None and choice.state.previous.detached:
        return MigrationPlan(text="recomputed at the next run: the view was last computed from its sources")
    estimates = dict(choice.estimates) | (migration_estimates(state, states) if state.migrations else {})
    seconds = {method.value: estimate for method, estimate in estimates.items()}
    reading = reading_migrations(state, states)
    if choice.method is not RefreshMethod.MIGRATION:
        return MigrationPlan(
            text=f"recomputed at the next run, which is cheaper than a migration: {_described(found, reading)}",
            seconds=seconds,
        )
    steps = [replace(choice, variant=variant) for variant in reading]
    readings = [port.reading for step in steps for port in port_inputs(step, states)]
    blocks = {block.number: block for reading in readings for block in reading.blocks}.values()
    return MigrationPlan(
        text=f"migrated at the next run: {_described(found, reading)}",
        variants=found,
        rows=sum(block.statistics.rows for block in blocks),
        bytes=sum(block.statistics.bytes for block in blocks),
        seconds=seconds,
        cursors={} if taken is None else written.cursors,
    )


def with_declared_migration(task: Task, versions: Sequence[TaskVersion]) -> tuple[Task, bool]:
    """Return a task, whose newest logic version is registered, with the migration that it declares for its first run.

    Args:
        task: the task as declared.
        versions: its live logic versions, newest first.

    Returns:
        The task, and whether that migration differs from the registered one.
    """
    newest, written = versions[0], next((version for version in versions if version.started), None)
    if task.view is not None or written is None or written is newest:
        return replace(task, migrations=newest.task.migrations), False
    derived = tuple(each for each in newest.task.migrations if each.logic.derived)
    declared = task.migrations_from(written.logic) or derived
    before, after = ([(m.name, m.fingerprint, m.ports) for m in some] for some in (newest.task.migrations, declared))
    return replace(task, migrations=declared), before != after


def _described(migrations: Sequence[Variant], reading: Sequence[Variant]) -> str:
    """Return what migrations do, and what those read that read rows, as text for users."""
    read = dict.fromkeys(port.channel for variant in reading for port in variant.ports)
    what = (each.logic.text if each.logic.derived else f"by {each.name}" for each in migrations)
    return f"{', then '.join(what)}; reads {', '.join(read) or 'nothing'}"


def _variants(
    task: Task,
    written: TaskVersion,
    states: Mapping[str, ChannelState],
    declared: Mapping[str, Channel],
    renamed: Mapping[str, Mapping[str, str]],
) -> tuple[Variant, ...] | NoMigration:
    """Return the migrations from the logic version that has written the output: the declared one, or derived ones."""
    if by_hand := task.migrations_from(written.logic):
        return by_hand
    if task.view is None:
        from kilonova.query.function_derivation import derive_function_migration

        name = task.writes[0]
        found = derive_function_migration(written.task, task, written.logic, states[name], declared[name], states)
        if found is not None:
            return found
        if written.logic == START:
            return NoMigration(reason="no migration from kn.START is declared")
        return NoMigration(reason=f"no migration from the logic version {written.logic} is declared")
    old, new = change_of(written.task), change_of(task)
    if old is None or new is None:
        return NoMigration(reason="its query can only be recomputed in full")
    if renamed:
        old = replace(old, stored=tree_to_json(with_new_names(old.tree, renamed)))
    (name,) = task.writes
    read = tuple(states[each].current for each in dict.fromkeys((*written.task.reads, *task.reads, name)))
    return _derived(old, new, written.logic, states[name].current, read, _has_other_key(states[name], declared[name]))


@lru_cache(maxsize=1024)
def _derived(
    old: ViewChange, new: ViewChange, from_version: int, own: Channel, read: tuple[Channel, ...], whole: bool
) -> tuple[Variant, ...] | NoMigration:
    """Return the migrations of a relation of a view, as `derive_variants`.

    They are cached because a workflow is planned twice, the second time under the writers' lock.
    """
    known = known_of({channel.name: channel for channel in read})
    return derive_variants(old, new, from_version, own, known, whole=whole)


def _has_other_key(state: ChannelState, declared: Channel) -> bool:
    """Return whether deltas in the declared encoding cannot follow what there is in a channel."""
    blocks, before = state.snapshot(state.latest_readable).blocks, state.channel.encoding
    if blocks and key_of(blocks[0].encoding) != key_of(declared.encoding):
        return True
    return declared.encoding != before and not {before, declared.encoding} <= {Append(), Changes()}


def _taken_over(
    task: Task, written: TaskVersion, states: Mapping[str, ChannelState], relations: Sequence[TaskVersion]
) -> tuple[TaskVersion, Variant] | None:
    """Return a relation from which the rows of a view follow, if the view has read all of it, and the migration."""
    new, name = change_of(task), task.writes[0]
    for relation in relations:
        change, stored = change_of(relation.task), states[relation.task.writes[0]]
        same = {*relation.task.reads} - {*relation.task.writes} == {*task.reads} - {*task.writes}
        read = stored.is_equivalent(written.cursor(stored.channel.name), stored.latest_readable)
        agree = all(written.cursors.get(each, point) == point for each, point in relation.cursors.items())
        if new is None or change is None or not same or not read or not agree:
            continue
        known = known_of({each: states[each].current for each in (*relation.task.reads, *relation.task.writes)})
        found = derive_takeover(change, stored.current, new, written.logic, states[name].current, known)
        if found is not None:
            return relation, found
    return None


def _state(
    task: Task, written: TaskVersion, logic: int, samples: Sequence[CostSample], readers: frozenset[str]
) -> TaskState:
    """Return the state of a new logic version before its first run."""
    previous = TaskState(task=written.task, logic=written.logic, started=True, cursors=written.cursors)
    return TaskState(
        task=task,
        logic=logic,
        started=False,
        cursors={},
        samples=tuple(samples),
        previous=previous,
        readers=readers,
    )
