"""Tasks in the catalog: the complete definition of every logic version, and the cursors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, bindparam, delete, func, insert, or_, select, update

from kilonova.catalog import channel_store, codec, tables
from kilonova.catalog.channel_registry import RECOVERED, change_channel
from kilonova.catalog.channel_store import channel_id
from kilonova.catalog.database import NotCached, Transaction, insert_all, inserted_id, is_among, is_given
from kilonova.errors import NotFound, closest_name
from kilonova.model.channel import Channel, declared_output
from kilonova.model.composed_function import ComposedFunction, composed_function
from kilonova.model.logic import Function, Logic, Sql
from kilonova.model.schema import Column, Schema
from kilonova.model.task import Mode, Port, Task, Variant, productions_from_text, productions_to_text
from kilonova.model.version import START
from kilonova.query.function_migration import FunctionMigration
from kilonova.query.view_migration import ViewMigration
from kilonova.query.view_tasks import ViewChange


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVersion:
    """Live logic version of a task: one that runs.

    Attributes:
        task: its definition.
        workflow: the workflow that declares it.
        logic: the number of the version: 0, 1, 2, …
        cursors: the point up to which it has read each channel; empty if it has not run.
        superseded: whether a newer version replaces it: it is kept until that has used its output.
        waiting: whether the version that it replaces goes on until there is input with the columns that it requires.
        outputs: if it is waiting, the channels that it writes as it declares them.
        replaced: the inputs that have replaced others since its last run, each with the one on which its cursor stands.
        grown: those of them that have all rows of the others.
    """

    task: Task
    workflow: str
    logic: int
    cursors: Mapping[str, int]
    superseded: bool = False
    replaced: Mapping[str, str] = field(default_factory=dict)
    waiting: bool = False
    outputs: tuple[Channel, ...] = ()
    grown: frozenset[str] = frozenset()

    def cursor(self, channel: str) -> int:
        """Return the point up to which it has read a channel."""
        return self.cursors.get(channel, 0)

    @property
    def started(self) -> bool:
        """Return whether it has run."""
        return bool(self.cursors)


def put_task(
    tx: Transaction, task: Task, workflow: str, *, renew: bool = False, waiting: Collection[Channel] = ()
) -> int:
    """Register a task, or a new logic version of one whose definition has changed or that was dropped.

    The new version replaces those that were live, except the one whose output is there, for a migration: that stays
    live, with what its cursors retain, until the new version has run.

    Args:
        tx: a writing transaction.
        task: the task.
        workflow: the workflow that declares it.
        renew: create a new logic version even if the definition is the same (an output was redeclared).
        waiting: if the new version waits for input with the columns that it requires, the channels that it writes as
            it declares them; the version that runs goes on until then, and the channels stay as they are.

    Returns:
        The number of the version.
    """
    tx.mark_registry_changed()
    row = tx.connection.execute(_newest_versions().where(tables.task.c.name == task.name)).first()
    if row is None:
        _add_tasks(tx, [task], workflow)
        return 0
    tx.connection.execute(
        update(tables.task)
        .where(tables.task.c.id == row.id)
        .values(
            active=True,
            workflow=workflow,
            schedule=codec.schedule_to_json(task.schedule),
            view=task.view,
            written=task.written or None,
        )
    )
    if row.live and row.fingerprint == task.fingerprint and not renew:
        return int(row.version)
    cursor, logic = tables.cursor.c, tables.logic.c
    kept = tx.connection.execute(select(func.max(cursor.logic)).where(cursor.task_id == row.id)).scalar()
    if kept is None and waiting:
        running = logic.task_id == row.id, logic.live, logic.waiting.is_not(True)
        kept = tx.connection.execute(select(func.max(logic.version)).where(*running)).scalar()
    _supersede_versions(tx, row.id, kept)
    _add_logics(tx, [(row.id, row.version + 1, task)], waiting)
    return int(row.version) + 1


def put_superseded(tx: Transaction, task: Task, workflow: str, logic: int) -> None:
    """Register a logic version of a task that is superseded from the beginning; the task may be new."""
    tx.mark_registry_changed()
    known = tx.connection.execute(select(tables.task.c.id).where(tables.task.c.name == task.name)).scalar()
    row = {"name": task.name, "workflow": workflow, "active": True, "view": task.view}
    number = known if known is not None else inserted_id(tx.connection.execute(insert(tables.task).values(row)))
    _add_logics(tx, [(number, logic, task)])
    own = tables.logic.c.task_id == number, tables.logic.c.version == logic
    tx.connection.execute(update(tables.logic).where(*own).values(superseded=True))


def update_requirements(tx: Transaction, task: Task, logic: int) -> None:
    """Update the columns that a logic version of a task requires."""
    tx.mark_registry_changed()
    own = tables.logic.c.task_id == task_id(tx, task.name), tables.logic.c.version == logic
    tx.connection.execute(
        update(tables.logic).where(*own).values(requires=codec.requires_to_json(task.requires) or None)
    )


def take_over(tx: Transaction, task: str, logic: int, outputs: Iterable[Channel]) -> None:
    """End the waiting of a logic version that has run: the channels that it writes are declared as it does.

    Args:
        tx: a writing transaction.
        task: the task.
        logic: the number of the version.
        outputs: the channels.
    """
    tx.mark_registry_changed()
    own = tables.logic.c.task_id == task_id(tx, task), tables.logic.c.version == logic
    tx.connection.execute(update(tables.logic).where(*own).values(waiting=False))
    for channel in outputs:
        change_channel(tx, declared_output(channel_store.channel(tx, channel.name), channel))


def add_version(tx: Transaction, task: Task) -> int:
    """Register a new logic version of a task beside those that are live.

    Args:
        tx: a writing transaction.
        task: the task at the new version.

    Returns:
        The number of the version.

    Raises:
        NotFound: there is no such task.
    """
    tx.mark_registry_changed()
    row = tx.connection.execute(_newest_versions().where(tables.task.c.id == task_id(tx, task.name))).one()
    _add_logics(tx, [(row.id, row.version + 1, task)])
    return int(row.version) + 1


def continue_versions(tx: Transaction, logics: Mapping[str, int]) -> None:
    """Continue the logic versions of tasks that will be declared again, given by name, after the given ones."""
    tx.mark_registry_changed()
    known = {row.name: row for row in tx.connection.execute(_newest_versions())}
    for name, logic in logics.items():
        if name in known and known[name].version >= logic:
            continue
        if name in known:
            drop_task(tx, name)
        else:
            tx.connection.execute(insert(tables.task).values(name=name, workflow=RECOVERED, active=False))
        retired = {"writes": [], "fingerprint": RECOVERED, "registered": tx.now, "live": False, "superseded": False}
        retired |= {"outputs": {}}
        tx.connection.execute(insert(tables.logic).values(task_id=task_id(tx, name), version=logic, **retired))


def _newest_versions() -> Select[Any]:
    """Return a query for the newest logic version of each task: `id`, `name`, `version`, `fingerprint`, `live`."""
    task, logic, newer = tables.task.c, tables.logic.c, tables.logic.alias("newer").c
    newest = select(func.max(newer.version)).where(newer.task_id == task.id).scalar_subquery()
    return (
        select(task.id, task.name, logic.version, logic.fingerprint, logic.live)
        .join(tables.logic, logic.task_id == task.id)
        .where(logic.version == newest)
    )


def _retire_versions(tx: Transaction, number: int) -> None:
    """End the live logic versions of a task, given by its id; with their cursors ends what these retain."""
    tx.connection.execute(update(tables.logic).where(tables.logic.c.task_id == number).values(live=False))
    tx.connection.execute(delete(tables.cursor).where(tables.cursor.c.task_id == number))


def _supersede_versions(tx: Transaction, number: int, written: int | None) -> None:
    """End the live logic versions of a task, given by its id, except the one whose output is there: it runs no more."""
    if written is None:
        _retire_versions(tx, number)
        return
    logic, cursor = tables.logic.c, tables.cursor.c
    tx.connection.execute(
        update(tables.logic)
        .where(logic.task_id == number)
        .values(live=logic.version == written, superseded=logic.version == written)
    )
    tx.connection.execute(delete(tables.cursor).where(cursor.task_id == number, cursor.logic != written))


def replace_variants(tx: Transaction, task: Task, logic: int) -> None:
    """Replace the variants of a logic version by others that give the same rows, in their order.

    Args:
        tx: a writing transaction.
        task: the task with the new variants.
        logic: the number of the version.
    """
    tx.mark_registry_changed()
    number = task_id(tx, task.name)
    variant, version = tables.variant.c, tables.logic.c
    tx.connection.execute(delete(tables.variant).where(variant.task_id == number, variant.logic == logic))
    tx.connection.execute(
        update(tables.logic)
        .where(version.task_id == number, version.version == logic)
        .values(fingerprint=task.fingerprint)
    )
    _add_variants(tx, [(number, logic, task)])


def put_tasks(tx: Transaction, tasks: Iterable[Task], workflow: str) -> None:
    """Register tasks, as `put_task` does; new ones are inserted in bulk."""
    tx.mark_registry_changed()
    known = set(tx.connection.execute(select(tables.task.c.name)).scalars())
    new = []
    for task in tasks:
        if task.name in known:
            put_task(tx, task, workflow)
        else:
            new.append(task)
    _add_tasks(tx, new, workflow)


def update_sources(tx: Transaction, tasks: Iterable[Task]) -> None:
    """Update the source texts of tasks whose definitions are equivalent to before."""
    tx.mark_registry_changed()
    task, logic, variant = tables.task, tables.logic, tables.variant
    known = {row.name: row.written for row in tx.connection.execute(select(task.c.name, task.c.written))}
    query = select(task.c.name, variant).join(variant, variant.c.task_id == task.c.id).where(task.c.view.is_(None))
    sources = {(row[0], row.fingerprint): row for row in tx.connection.execute(query)}
    for each in tasks:
        if (known[each.name] or "") != each.written:
            tx.connection.execute(update(task).where(task.c.name == each.name).values(written=each.written or None))
            own = select(task.c.id).where(task.c.name == each.name).scalar_subquery()
            newest = logic.c.task_id == own, logic.c.live, ~logic.c.superseded
            tx.connection.execute(update(logic).where(*newest).values(written=each.written or None))
        for one in each.variants:
            row = sources.get((each.name, one.fingerprint))
            if row is not None and row.source != one.logic.text:
                same = variant.c.task_id == row.task_id, variant.c.fingerprint == one.fingerprint
                tx.connection.execute(update(variant).where(*same).values(source=one.logic.text))


def _add_tasks(tx: Transaction, tasks: Sequence[Task], workflow: str) -> None:
    if not tasks:
        return
    table = tables.task
    rows = [
        {
            "name": task.name,
            "workflow": workflow,
            "active": True,
            "schedule": codec.schedule_to_json(task.schedule),
            "view": task.view,
            "written": task.written or None,
        }
        for task in tasks
    ]
    numbers = tx.connection.execute(insert(table).returning(table.c.id, sort_by_parameter_order=True), rows).scalars()
    _add_logics(tx, [(number, 0, task) for number, task in zip(numbers, tasks, strict=True)])


def _add_logics(tx: Transaction, logics: Iterable[tuple[int, int, Task]], waiting: Collection[Channel] = ()) -> None:
    """Record logic versions, each given by the task's id, the version and the definition; see `put_task`."""
    every = list(logics)
    outputs = _outputs(tx, {name for _, _, task in every for name in task.writes})
    outputs |= {channel.name: _output_to_json(channel) for channel in waiting}
    insert_all(
        tx,
        tables.logic,
        [
            {
                "task_id": number,
                "version": logic,
                "writes": list(task.writes),
                "fingerprint": task.fingerprint,
                "registered": tx.now,
                "live": True,
                "superseded": False,
                "outputs": {name: outputs[name] for name in task.writes if name in outputs},
                "written": task.written or None,
                "requires": codec.requires_to_json(task.requires) or None,
                "waiting": bool(waiting),
            }
            for number, logic, task in every
        ],
    )
    _add_variants(tx, every)


def _outputs(tx: Transaction, channels: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return what declares the rows of channels, by channel: the columns, if any, the encoding and the checks."""
    channel = tables.channel.c
    query = select(channel.name, channel.schema, channel.encoding, channel.checks, channel.adopts)
    return {
        row.name: {
            "schema": None if row.adopts else row.schema,
            "encoding": row.encoding,
            "checks": row.checks or [],
        }
        for row in tx.connection.execute(query.where(is_among(tx, channel.name, channels)))
    }


def _output_to_json(channel: Channel) -> dict[str, Any]:
    """Return what declares the rows of a channel, as `_outputs` does."""
    return {
        "schema": None if channel.schema is None else codec.schema_to_json(channel.schema),
        "encoding": codec.encoding_to_json(channel.encoding),
        "checks": codec.checks_to_json(channel.checks) if channel.checks else [],
    }


def _add_variants(tx: Transaction, logics: Iterable[tuple[int, int, Task]]) -> None:
    insert_all(
        tx,
        tables.variant,
        [
            {
                "task_id": number,
                "logic": logic,
                "name": variant.name,
                "position": position,
                "ports": [[port.name, port.channel, port.mode.value] for port in variant.ports],
                "production": productions_to_text(variant.productions),
                "fingerprint": variant.fingerprint,
                "from_version": variant.from_version,
                **_logic_columns(variant.logic),
            }
            for number, logic, task in logics
            for position, variant in enumerate((*task.variants, *task.migrations))
        ],
    )


def _logic_columns(logic: Logic) -> dict[str, Any]:
    columns = {"language": logic.language, "source": logic.text, "tree": None, "pickled": None}
    match logic:
        case Sql():
            return columns
        case ViewChange(stored=stored) | ViewMigration(stored=stored):
            return columns | {"tree": stored}
        case FunctionMigration(pickled=pickled, stored=stored):
            return columns | {"tree": stored, "pickled": pickled}
        case ComposedFunction(pickled=pickled, parts=parts):
            return columns | {"tree": parts, "pickled": pickled}
        case Function(pickled=pickled):
            return columns | {"pickled": pickled}
        case _:
            raise TypeError(f"the catalog cannot store logic of {type(logic)}")


def _logic(row: Row[Any]) -> Logic:
    if row.tree is not None and row.pickled is not None:
        if row.from_version is not None:
            return FunctionMigration(text=row.source, pickled=row.pickled, stored=row.tree)
        return composed_function(row.pickled, row.source, row.tree)
    if row.tree is not None and row.from_version is not None:
        return ViewMigration(text=row.source, stored=row.tree)
    if row.tree is not None:
        return ViewChange(text=row.source, stored=row.tree)
    return Sql(text=row.source) if row.pickled is None else Function(pickled=row.pickled, source=row.source)


def _variant(row: Row[Any], outputs: int) -> Variant:
    return Variant(
        name=row.name,
        ports=tuple(Port(name, channel, Mode(mode)) for name, channel, mode in row.ports),
        productions=productions_from_text(row.production, outputs),
        logic=_logic(row),
        fingerprint=row.fingerprint,
        from_version=row.from_version,
    )


def tasks(tx: Transaction, names: Iterable[str] | None = None) -> dict[str, TaskVersion]:
    """Return active tasks by name, at their newest live logic version; all of them if no names are given.

    Raises:
        NotFound: there is no active task of one of the names.
    """
    return {name: versions[0] for name, versions in live_versions(tx, names).items()}


_LOADED = 100
"""Number of tasks up to which a brief transaction loads their definitions."""


def live_versions(tx: Transaction, names: Iterable[str] | None = None) -> dict[str, tuple[TaskVersion, ...]]:
    """Return the live logic versions of active tasks, by name, newest first; of all tasks if no names are given.

    Raises:
        NotFound: there is no active task of one of the names.
        NotCached: the transaction is brief, and many definitions are to be loaded.
    """
    wanted = None if names is None else list(dict.fromkeys(names))
    known = tx.definitions("live_versions")
    missing = None if wanted is None else [name for name in wanted if name not in known]
    if tx.brief and (missing is None or len(missing) > _LOADED):
        raise NotCached
    if missing is None or missing:
        known.update(_defined(tx, missing))
    for name in wanted or ():
        if name not in known:
            raise _unknown(tx, name)
    query = _cursors(tx.connection.dialect.name, some=wanted is not None)
    cursors: dict[tuple[str, int], dict[str, int]] = {}
    for row in tx.connection.execute(query, {} if wanted is None else {"names": wanted}):
        cursors.setdefault((row.name, row.logic), {})[row.channel] = row.point
    found: list[tuple[int, tuple[TaskVersion, ...]]] = sorted(
        (known[name] for name in (known if wanted is None else wanted)), key=lambda each: each[0]
    )
    return {
        versions[0].task.name: tuple(
            replace(each, cursors=cursors.get((each.task.name, each.logic), {})) for each in versions
        )
        for _, versions in found
    }


def continuing_version(versions: Sequence[TaskVersion]) -> TaskVersion:
    """Return the live logic version of a task that goes on while a new one waits: the one that has written its output.

    If none has run, it is the newest one that does not wait itself.
    """
    started = (each for each in versions if each.started)
    return next(started, None) or next(each for each in versions if not each.waiting)


def running_versions(versions: Sequence[TaskVersion]) -> tuple[TaskVersion, ...]:
    """Return the live logic versions of a task that run: a superseded one only while the newest one waits."""
    return tuple(each for each in versions if not each.superseded or versions[0].waiting)


@cache
def _cursors(dialect: str, *, some: bool) -> Select[Any]:
    """Return a query for the cursors of live logic versions, of tasks of some names or of all."""
    task, logic, cursor, channel = tables.task.c, tables.logic.c, tables.cursor.c, tables.channel.c
    query = (
        select(task.name, cursor.logic, channel.name.label("channel"), cursor.point)
        .join(tables.task, task.id == cursor.task_id)
        .join(tables.logic, and_(logic.task_id == cursor.task_id, logic.version == cursor.logic))
        .join(tables.channel, channel.id == cursor.channel_id)
        .where(logic.live)
        .order_by(channel.name)
    )
    return query.where(is_given(dialect, task.name, "names")) if some else query


def _defined(tx: Transaction, names: Collection[str] | None) -> dict[str, tuple[int, tuple[TaskVersion, ...]]]:
    """Return the ids of active tasks and their live logic versions, newest first and without cursors, by name."""
    task, logic, variant = tables.task, tables.logic, tables.variant
    these = logic.c.live if names is None else and_(logic.c.live, is_among(tx, task.c.name, names))
    live = select(task.c.id, logic.c.version).join(logic, logic.c.task_id == task.c.id).where(these).subquery("live")
    rows = tx.connection.execute(
        select(
            task,
            *(
                logic.c[name]
                for name in ("version", "writes", "superseded", "requires", "waiting", "outputs", "replaced")
            ),
        )
        .join(logic, logic.c.task_id == task.c.id)
        .where(these)
        .order_by(logic.c.version.desc())
    ).all()
    outputs = {(row.id, row.version): len(row.writes) for row in rows}
    variants: dict[tuple[int, int], list[Variant]] = {key: [] for key in outputs}
    for each in tx.connection.execute(
        select(variant)
        .join(live, and_(live.c.id == variant.c.task_id, live.c.version == variant.c.logic))
        .order_by(variant.c.task_id, variant.c.position)
    ):
        key = each.task_id, each.logic
        variants[key].append(_variant(each, outputs[key]))
    found: dict[str, tuple[int, tuple[TaskVersion, ...]]] = {}
    for row in rows:
        version = TaskVersion(
            task=Task(
                name=row.name,
                writes=tuple(row.writes),
                variants=tuple(each for each in variants[row.id, row.version] if each.from_version is None),
                migrations=tuple(each for each in variants[row.id, row.version] if each.from_version is not None),
                schedule=codec.schedule_from_json(row.schedule),
                view=row.view,
                written=row.written or "",
                requires=codec.requires_from_json(row.requires or []),
            ),
            workflow=row.workflow,
            logic=row.version,
            cursors={},
            superseded=row.superseded,
            waiting=bool(row.waiting),
            outputs=tuple(_output(*item) for item in row.outputs.items()) if row.waiting else (),
            replaced={new: old for new, old, _ in row.replaced or ()},
            grown=frozenset(new for new, _, grown in row.replaced or () if grown),
        )
        found[row.name] = row.id, (*found.get(row.name, (0, ()))[1], version)
    return found


def is_of_version() -> ColumnElement[bool]:
    """Return the condition that a variant belongs to a logic version."""
    logic, variant = tables.logic.c, tables.variant.c
    return and_(logic.task_id == variant.task_id, logic.version == variant.logic)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """Logic version of a task, live or not.

    Attributes:
        task: the name of the task.
        logic: the number of the version.
        registered: the time at which it was registered.
        writes: the channels that it writes.
        outputs: what declared their rows then; none for a version of which a recovered catalog knows only the number.
    """

    task: str
    logic: int
    registered: datetime
    writes: tuple[str, ...]
    outputs: tuple[Channel, ...]


def versions(tx: Transaction, name: str) -> tuple[VersionRecord, ...]:
    """Return the logic versions of a task, and of the relations that are, or were, materialized for it if it is a view.

    They are in the order of registration, without the no-op that an inserted task has been before.
    """
    task, logic = tables.task.c, tables.logic.c
    query = (
        select(task.name, logic.version, logic.registered, logic.writes, logic.outputs)
        .join(tables.logic, logic.task_id == task.id)
        .where(or_(task.name == name, task.view == name), logic.version > START)
        .order_by(logic.registered, task.name, logic.version)
    )
    return tuple(
        VersionRecord(
            task=row.name,
            logic=row.version,
            registered=row.registered,
            writes=tuple(row.writes),
            outputs=tuple(_output(*item) for item in row.outputs.items()),
        )
        for row in tx.connection.execute(query)
    )


def newest_versions_of(tx: Transaction, workflow: str, limit: int) -> list[tuple[str, int]]:
    """Return the newest logic versions of the active tasks of a workflow, by task, the last registered first.

    Args:
        tx: an open transaction.
        workflow: the workflow.
        limit: the maximum number of versions.
    """
    task, logic = tables.task.c, tables.logic.c
    query = (
        select(task.name, logic.version)
        .join(tables.logic, logic.task_id == task.id)
        .where(task.workflow == workflow, task.active)
        .order_by(logic.registered.desc(), task.name, logic.version.desc())
        .limit(limit)
    )
    return [(row.name, row.version) for row in tx.connection.execute(query)]


def _output(name: str, stored: Mapping[str, Any]) -> Channel:
    schema = None if stored["schema"] is None else codec.schema_from_json(stored["schema"])
    return Channel(
        name=name,
        schema=None if schema is None else Schema(tuple(Column(each.name, each.type) for each in schema.columns)),
        encoding=codec.encoding_from_json(stored["encoding"]),
        checks=codec.checks_from_json(stored["checks"]),
        adopts=schema is None,
    )


def logic_version(tx: Transaction, name: str, version: int) -> Task:
    """Return the definition of a task at an older (or the newest) logic version, with its present schedule.

    Raises:
        NotFound: there is no such task or version.
    """
    number = task_id(tx, name)
    row = tx.connection.execute(
        select(tables.logic, tables.task.c.schedule, tables.task.c.view)
        .join(tables.task, tables.task.c.id == tables.logic.c.task_id)
        .where(tables.logic.c.task_id == number, tables.logic.c.version == version)
    ).first()
    if row is None:
        raise NotFound(
            f"there is no logic version {version}", task=name, hint="The pages of the task list its versions"
        )
    found = tx.connection.execute(
        select(tables.variant)
        .where(tables.variant.c.task_id == number, tables.variant.c.logic == version)
        .order_by(tables.variant.c.position)
    )
    every = [_variant(item, len(row.writes)) for item in found]
    return Task(
        name=name,
        writes=tuple(row.writes),
        variants=tuple(each for each in every if each.from_version is None),
        migrations=tuple(each for each in every if each.from_version is not None),
        schedule=codec.schedule_from_json(row.schedule),
        view=row.view,
        written=row.written or "",
        requires=codec.requires_from_json(row.requires or []),
    )


def view_tasks(tx: Transaction, view: str) -> list[str]:
    """Return the active tasks that maintain a view or its materialized relations; none if there is no such view."""
    these = select(tables.task.c.name).where(tables.task.c.view == view, tables.task.c.active)
    return list(tx.connection.execute(these.order_by(tables.task.c.id)).scalars())


def view_of_tasks(tx: Transaction) -> dict[str, str | None]:
    """Return the view of each active task, which maintains it or a relation that is materialized for it; or None."""
    known = tx.definitions("view_of_tasks")
    if None not in known:
        query = select(tables.task.c.name, tables.task.c.view).where(tables.task.c.active)
        known[None] = {row.name: row.view for row in tx.connection.execute(query)}
    found: dict[str, str | None] = known[None]
    return found


def task_names(tx: Transaction, after: str = "", limit: int | None = None) -> list[str]:
    """Return the names of the active tasks after a name, sorted, at most `limit`."""
    name = tables.task.c.name
    query = select(name).where(tables.task.c.active, name > after).order_by(name).limit(limit)
    return list(tx.connection.execute(query).scalars())


def active_tasks(tx: Transaction, names: Iterable[str]) -> list[str]:
    """Return those of the given names that active tasks have, sorted."""
    name = tables.task.c.name
    query = select(name).where(tables.task.c.active, is_among(tx, name, names)).order_by(name)
    return list(tx.connection.execute(query).scalars())


def task_id(tx: Transaction, name: str) -> int:
    """Return the id of a task.

    Raises:
        NotFound: there is no such task.
    """
    found = tx.connection.execute(select(tables.task.c.id).where(tables.task.c.name == name)).scalar()
    if found is None:
        raise _unknown(tx, name)
    return int(found)


def _unknown(tx: Transaction, name: str) -> NotFound:
    return NotFound("there is no such task", task=name, hint=closest_name(name, task_names(tx)))


def move_cursors(tx: Transaction, task: str, logic: int, points: Iterable[tuple[str, int]]) -> None:
    """Replace the cursors of a logic version of a task; at its first run, the superseded version ends.

    A version that was retired meanwhile gets none.
    """
    cursor = tables.cursor.c
    rows = tx.connection.execute(_OWN_CURSORS, {"task": task, "logic": logic}).all()
    if not rows:
        return
    before = {row.channel_id: row.point for row in rows}
    if before.keys() == {None}:
        _retire_superseded(tx, rows[0].task_id, logic)
    after = {channel_id(tx, channel): point for channel, point in points}
    mine = cursor.task_id == rows[0].task_id, cursor.logic == logic
    if gone := before.keys() - after.keys() - {None}:
        tx.connection.execute(delete(tables.cursor).where(*mine, cursor.channel_id.in_(gone)))
        own = tables.logic.c.task_id == rows[0].task_id, tables.logic.c.version == logic
        changed = update(tables.logic).where(*own, tables.logic.c.replaced.is_not(None)).values(replaced=None)
        if tx.connection.execute(changed).rowcount:
            tx.mark_registry_changed()
    for channel, point in after.items():
        if channel in before and point != before[channel]:
            here = cursor.channel_id == channel
            tx.connection.execute(update(tables.cursor).where(*mine, here).values(point=point))
    new = [(channel, point) for channel, point in after.items() if channel not in before]
    columns = {"task_id": rows[0].task_id, "logic": logic}
    insert_all(tx, tables.cursor, [columns | {"channel_id": channel, "point": point} for channel, point in new])


def _retire_superseded(tx: Transaction, number: int, newer: int) -> None:
    """End the superseded logic version of a task, given by its id, when a newer one has used its output."""
    logic, cursor = tables.logic.c, tables.cursor.c
    these = select(logic.version).where(logic.task_id == number, logic.superseded, logic.live, logic.version < newer)
    if ended := list(tx.connection.execute(these).scalars()):
        tx.mark_registry_changed()
        own = logic.task_id == number, logic.version.in_(ended)
        tx.connection.execute(update(tables.logic).where(*own).values(live=False))
        tx.connection.execute(delete(tables.cursor).where(cursor.task_id == number, cursor.logic.in_(ended)))


_OWN_CURSORS = (
    select(tables.logic.c.task_id, tables.cursor.c.channel_id, tables.cursor.c.point)
    .join(tables.task, tables.task.c.id == tables.logic.c.task_id)
    .outerjoin(
        tables.cursor,
        and_(tables.cursor.c.task_id == tables.logic.c.task_id, tables.cursor.c.logic == tables.logic.c.version),
    )
    .where(tables.task.c.name == bindparam("task"), tables.logic.c.version == bindparam("logic"), tables.logic.c.live)
)
"""Query for the id of a task that has a logic version live, with the cursors of that version, at least one row."""


def reset_cursors(tx: Transaction, task: str) -> None:
    """Let all logic versions of a task start from scratch at their next run."""
    tx.connection.execute(delete(tables.cursor).where(tables.cursor.c.task_id == task_id(tx, task)))


def retract(tx: Transaction, task: str, logic: int) -> None:
    """Record that a logic version of a task is faulty."""
    own = tables.logic.c.task_id == task_id(tx, task), tables.logic.c.version == logic
    tx.connection.execute(update(tables.logic).where(*own).values(faulty=tx.now))


def retracted(tx: Transaction) -> dict[str, frozenset[int]]:
    """Return the logic versions that are faulty, by task."""
    query = select(tables.task.c.name, tables.logic.c.version).join(
        tables.logic, tables.logic.c.task_id == tables.task.c.id
    )
    found: dict[str, frozenset[int]] = {}
    for row in tx.connection.execute(query.where(tables.logic.c.faulty.is_not(None))):
        found[row.name] = found.get(row.name, frozenset()) | {row.version}
    return found


def drop_task(tx: Transaction, name: str) -> None:
    """Deactivate a task: its logic versions stay recorded, but none is live."""
    tx.mark_registry_changed()
    number = task_id(tx, name)
    _retire_versions(tx, number)
    tx.connection.execute(update(tables.task).where(tables.task.c.id == number).values(active=False))


def put_function(tx: Transaction, name: str, function: Function) -> None:
    """Record the per-key functions of a custom encoding; a name always refers to the same definition."""
    known = tx.connection.execute(select(tables.function.c.name).where(tables.function.c.name == name)).first()
    if known is None:
        tx.connection.execute(
            insert(tables.function).values(name=name, source=function.source, pickled=function.pickled)
        )


def function(tx: Transaction, name: str) -> Function:
    """Return the per-key functions of a custom encoding.

    Raises:
        NotFound: no custom encoding has that name.
    """
    row = tx.connection.execute(select(tables.function).where(tables.function.c.name == name)).first()
    if row is None:
        raise NotFound(
            f"there are no functions called {name} for a custom encoding",
            hint="Apply the workflow that declares the encoding",
        )
    return Function(pickled=row.pickled, source=row.source)
