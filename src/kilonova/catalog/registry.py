"""Tasks as the catalog keeps them: what every logic version of each does, whole, and how far it has read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Text, and_, cast, delete, insert, or_, select, update

from kilonova.catalog import codec, tables
from kilonova.catalog.chains import channel_id
from kilonova.catalog.database import Transaction, insert_all
from kilonova.catalog.files import rewatch
from kilonova.errors import UnknownName, closest
from kilonova.model.channel import Channel
from kilonova.model.task import (
    Function,
    Logic,
    Mode,
    Port,
    Query,
    Sql,
    Task,
    Variant,
    productions_from_text,
    productions_to_text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A task at its newest logic version.

    Attributes:
        task: what it does.
        workflow: the workflow that declares it.
        logic: the logic version: 0, 1, 2, …
        cursors: the point up to which it has read each channel, and the logic version that did.
    """

    task: Task
    workflow: str
    logic: int
    cursors: tuple[tuple[str, int, int], ...]

    def cursor(self, channel: str) -> int:
        """The point up to which the present logic has read a channel; 0 if it has not begun."""
        return next((point for name, point, logic in self.cursors if name == channel and logic == self.logic), 0)

    @property
    def started(self) -> bool:
        """Whether the present logic version has run."""
        return any(logic == self.logic for _, _, logic in self.cursors)

    @property
    def has_run(self) -> bool:
        """Whether any logic version has run."""
        return bool(self.cursors)


RECOVERED = ""
"""Stands for the workflow of what was recovered, until a workflow declares it."""


def add_channels(tx: Transaction, channels: Iterable[Channel], workflow: str) -> None:
    """Register channels."""
    every = list(channels)
    insert_all(
        tx,
        tables.channel,
        [
            {
                "name": channel.name,
                "schema": None if channel.schema is None else codec.schema_to_json(channel.schema),
                "adopts": channel.schema is None,
                "encoding": codec.encoding_to_json(channel.encoding),
                "workflow": workflow,
                **_told(channel),
            }
            for channel in every
        ],
    )
    for channel in every:
        if channel.watch is not None:
            rewatch(tx, channel.name, channel.watch)


def change_channel(tx: Transaction, channel: Channel) -> None:
    """Give a channel another schema or encoding; blocks that are there keep their own."""
    tx.connection.execute(
        update(tables.channel)
        .where(tables.channel.c.name == channel.name)
        .values(
            schema=None if channel.schema is None else codec.schema_to_json(channel.schema),
            adopts=channel.schema is None,
            encoding=codec.encoding_to_json(channel.encoding),
            **_told(channel),
        )
    )
    rewatch(tx, channel.name, channel.watch)


def tell_channel(tx: Transaction, channel: Channel) -> None:
    """Change what is said of a channel beside its schema and encoding."""
    tx.connection.execute(update(tables.channel).where(tables.channel.c.name == channel.name).values(**_told(channel)))
    rewatch(tx, channel.name, channel.watch)


def _told(channel: Channel) -> dict[str, Any]:
    return {
        "description": channel.description or None,
        "checks": codec.checks_to_json(channel.checks) if channel.checks else None,
        "several_writers": channel.several_writers,
    }


def channel_owners(tx: Transaction) -> dict[str, str]:
    """The workflow that declares each channel."""
    rows = tx.connection.execute(select(tables.channel.c.name, tables.channel.c.workflow))
    return {row.name: row.workflow for row in rows}


def take_recovered(tx: Transaction, names: Iterable[str], workflow: str) -> None:
    """Give a workflow those of the channels that it declares that were recovered."""
    tx.connection.execute(
        update(tables.channel)
        .where(tables.channel.c.name.in_(list(names)), tables.channel.c.workflow == RECOVERED)
        .values(workflow=workflow)
    )


def put_task(tx: Transaction, task: Task, workflow: str, *, renew: bool = False) -> int:
    """Register a task, or a new logic version of one whose definition has changed or that was dropped.

    Args:
        tx: a writing transaction.
        task: the task.
        workflow: the workflow that declares it.
        renew: make a new logic version even where the definition is the same (an output was redeclared).

    Returns:
        The logic version that holds from now on.
    """
    row = tx.connection.execute(select(tables.task).where(tables.task.c.name == task.name)).first()
    if row is None:
        _add_tasks(tx, [task], workflow)
        return 0
    newest = tx.connection.execute(
        select(tables.logic.c.fingerprint).where(tables.logic.c.task_id == row.id, tables.logic.c.version == row.logic)
    ).scalar_one()
    same = row.active and newest == task.fingerprint and not renew
    logic = int(row.logic) if same else int(row.logic) + 1
    tx.connection.execute(
        update(tables.task)
        .where(tables.task.c.id == row.id)
        .values(
            logic=logic,
            active=True,
            workflow=workflow,
            schedule=codec.schedule_to_json(task.schedule),
            written=task.written or None,
        )
    )
    if not same:
        _add_logics(tx, [(row.id, logic, task)])
    return logic


def put_tasks(tx: Transaction, tasks: Iterable[Task], workflow: str) -> None:
    """Register tasks, as `put_task` does each; many that are new at once."""
    known = set(tx.connection.execute(select(tables.task.c.name)).scalars())
    new = []
    for task in tasks:
        if task.name in known:
            put_task(tx, task, workflow)
        else:
            new.append(task)
    _add_tasks(tx, new, workflow)


def tell_tasks(tx: Transaction, tasks: Iterable[Task]) -> None:
    """Change how the queries of views are written, which do the same as before."""
    table = tables.task
    known = {row.name: row.written for row in tx.connection.execute(select(table.c.name, table.c.written))}
    for task in tasks:
        if (known[task.name] or "") != task.written:
            tx.connection.execute(update(table).where(table.c.name == task.name).values(written=task.written or None))


def _add_tasks(tx: Transaction, tasks: Sequence[Task], workflow: str) -> None:
    if not tasks:
        return
    table = tables.task
    rows = [
        {
            "name": task.name,
            "workflow": workflow,
            "logic": 0,
            "active": True,
            "schedule": codec.schedule_to_json(task.schedule),
            "written": task.written or None,
        }
        for task in tasks
    ]
    numbers = tx.connection.execute(insert(table).returning(table.c.id, sort_by_parameter_order=True), rows).scalars()
    _add_logics(tx, [(number, 0, task) for number, task in zip(numbers, tasks, strict=True)])


def _add_logics(tx: Transaction, logics: Iterable[tuple[int, int, Task]]) -> None:
    """Write down logic versions: of each, the task's number in the catalog, the version and what it does."""
    every = list(logics)
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
            }
            for number, logic, task in every
        ],
    )
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
                **_logic_columns(variant.logic),
            }
            for number, logic, task in every
            for position, variant in enumerate(task.variants)
        ],
    )


def _logic_columns(logic: Logic) -> dict[str, Any]:
    match logic:
        case Sql(text=text):
            return {"language": "sql", "source": text, "pickled": None}
        case Query(text=text):
            return {"language": "query", "source": text, "pickled": None}
        case Function(pickled=pickled, source=source):
            return {"language": "python", "source": source, "pickled": pickled}


def _variant(row: Row[Any], outputs: int) -> Variant:
    logic: Logic
    match row.language:
        case "sql":
            logic = Sql(text=row.source)
        case "query":
            logic = Query(text=row.source)
        case _:
            logic = Function(pickled=row.pickled, source=row.source)
    return Variant(
        name=row.name,
        ports=tuple(Port(name, channel, Mode(mode)) for name, channel, mode in row.ports),
        productions=productions_from_text(row.production, outputs),
        logic=logic,
        fingerprint=row.fingerprint,
    )


def tasks(tx: Transaction, names: Iterable[str] | None = None) -> dict[str, Registered]:
    """Active tasks by name, at their newest logic version; all of them where no names are given.

    Raises:
        UnknownName: a name is not that of an active task.
    """
    wanted = None if names is None else list(dict.fromkeys(names))
    these = tables.task.c.active if wanted is None else and_(tables.task.c.active, tables.task.c.name.in_(wanted))
    rows = tx.connection.execute(
        select(tables.task, tables.logic.c.writes)
        .join(tables.logic, tables.logic.c.task_id == tables.task.c.id)
        .where(tables.logic.c.version == tables.task.c.logic, these)
        .order_by(tables.task.c.id)
    ).all()
    found = {row.name for row in rows}
    for name in wanted or ():
        if name not in found:
            raise _unknown(tx, name)
    outputs = {row.id: len(row.writes) for row in rows}
    variants: dict[int, list[Variant]] = {}
    for variant in tx.connection.execute(
        select(tables.variant)
        .join(tables.task, tables.task.c.id == tables.variant.c.task_id)
        .where(tables.variant.c.logic == tables.task.c.logic, these)
        .order_by(tables.variant.c.task_id, tables.variant.c.position)
    ):
        variants.setdefault(variant.task_id, []).append(_variant(variant, outputs[variant.task_id]))
    cursors: dict[int, list[tuple[str, int, int]]] = {}
    for cursor in tx.connection.execute(
        select(tables.cursor, tables.channel.c.name)
        .join(tables.channel, tables.channel.c.id == tables.cursor.c.channel_id)
        .join(tables.task, tables.task.c.id == tables.cursor.c.task_id)
        .where(these)
        .order_by(tables.channel.c.name)
    ):
        cursors.setdefault(cursor.task_id, []).append((cursor.name, cursor.point, cursor.logic))
    return {
        row.name: Registered(
            task=Task(
                name=row.name,
                writes=tuple(row.writes),
                variants=tuple(variants[row.id]),
                schedule=codec.schedule_from_json(row.schedule),
                written=row.written or "",
            ),
            workflow=row.workflow,
            logic=row.logic,
            cursors=tuple(cursors.get(row.id, ())),
        )
        for row in rows
    }


def followed(tx: Transaction, channels: Iterable[str]) -> frozenset[str]:
    """Those of some channels whose changes some task reads: what these replace is looked up once, as they are written.

    Few tasks of many read one of them, so the database looks for those first.
    """
    ports = cast(tables.variant.c.ports, Text)
    wanted = list(channels)
    if not wanted:
        return frozenset()
    rows = tx.connection.execute(
        select(tables.variant.c.ports)
        .join(tables.task, tables.task.c.id == tables.variant.c.task_id)
        .where(
            tables.variant.c.logic == tables.task.c.logic,
            tables.task.c.active,
            ports.contains(json.dumps(Mode.CHANGES.value)),
            or_(*(ports.contains(json.dumps(name), autoescape=True) for name in wanted)),
        )
    ).scalars()
    found = {channel for own in rows for _, channel, mode in own if mode == Mode.CHANGES.value}
    return frozenset(found & set(wanted))


def readers(tx: Transaction, channel: str) -> dict[str, Registered]:
    """The active tasks that read a channel, those left out that write it, by name.

    Raises:
        UnknownName: there is no such channel.
    """
    channel_id(tx, channel)
    ports = cast(tables.variant.c.ports, Text)
    names = tx.connection.execute(
        select(tables.task.c.name)
        .join(tables.variant, tables.task.c.id == tables.variant.c.task_id)
        .where(
            tables.variant.c.logic == tables.task.c.logic,
            tables.task.c.active,
            ports.contains(json.dumps(channel), autoescape=True),
        )
        .order_by(tables.task.c.name)
    ).scalars()
    found = tasks(tx, names)
    return {name: found[name] for name in sorted(found) if channel in found[name].task.reads}


def logic_version(tx: Transaction, name: str, version: int) -> Task:
    """A task as an older (or the newest) logic version does it, whatever its schedule.

    Raises:
        UnknownName: there is no such task or version.
    """
    number = task_id(tx, name)
    row = tx.connection.execute(
        select(tables.logic).where(tables.logic.c.task_id == number, tables.logic.c.version == version)
    ).first()
    if row is None:
        raise UnknownName(f"there is no logic version {version}", task=name)
    found = tx.connection.execute(
        select(tables.variant)
        .where(tables.variant.c.task_id == number, tables.variant.c.logic == version)
        .order_by(tables.variant.c.position)
    )
    return Task(name=name, writes=tuple(row.writes), variants=tuple(_variant(item, len(row.writes)) for item in found))


def task_names(tx: Transaction, after: str = "", limit: int | None = None) -> list[str]:
    """The names of the active tasks, sorted: those after a name, and at most so many."""
    name = tables.task.c.name
    query = select(name).where(tables.task.c.active, name > after).order_by(name).limit(limit)
    return list(tx.connection.execute(query).scalars())


def task_id(tx: Transaction, name: str) -> int:
    """The catalog's number of a task.

    Raises:
        UnknownName: there is no such task.
    """
    found = tx.connection.execute(select(tables.task.c.id).where(tables.task.c.name == name)).scalar()
    if found is None:
        raise _unknown(tx, name)
    return int(found)


def _unknown(tx: Transaction, name: str) -> UnknownName:
    return UnknownName("there is no such task", task=name, hint=closest(name, task_names(tx)))


def writers(tx: Transaction, channels: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The active tasks that write each of some channels, by name; none for source channels."""
    wanted = list(channels)
    if not wanted:
        return {}
    text = cast(tables.logic.c.writes, Text)
    query = (
        select(tables.task.c.name, tables.logic.c.writes)
        .join(tables.logic, tables.logic.c.task_id == tables.task.c.id)
        .where(tables.logic.c.version == tables.task.c.logic, tables.task.c.active)
    )
    if len(wanted) <= _FEW:
        query = query.where(or_(*(text.contains(json.dumps(name), autoescape=True) for name in wanted)))
    found: dict[str, list[str]] = {channel: [] for channel in wanted}
    for row in tx.connection.execute(query.order_by(tables.task.c.name)):
        for channel in row.writes:
            if channel in found:
                found[channel].append(row.name)
    return {channel: tuple(names) for channel, names in found.items()}


_FEW = 10
"""For more channels than these, reading what all tasks write is quicker than looking for each."""


def move_cursors(tx: Transaction, task: str, logic: int, points: Iterable[tuple[str, int]]) -> None:
    """Write down the points up to which a logic version of a task has now read its channels, which are all that it has.

    A task that was dropped meanwhile gets none.
    """
    active = select(tables.task.c.id).where(tables.task.c.name == task, tables.task.c.active)
    number = tx.connection.execute(active).scalar()
    if number is None:
        return
    tx.connection.execute(delete(tables.cursor).where(tables.cursor.c.task_id == number))
    insert_all(
        tx,
        tables.cursor,
        [
            {"task_id": number, "channel_id": channel_id(tx, channel), "point": point, "logic": logic}
            for channel, point in points
        ],
    )


def drop_task(tx: Transaction, name: str) -> None:
    """Take a task out of service; its older logic versions stay on record, its cursors go."""
    number = task_id(tx, name)
    tx.connection.execute(delete(tables.cursor).where(tables.cursor.c.task_id == number))
    tx.connection.execute(update(tables.task).where(tables.task.c.id == number).values(active=False))


def put_function(tx: Transaction, name: str, function: Function) -> None:
    """Keep the per-key functions of a custom encoding; a name always stands for the same definition."""
    known = tx.connection.execute(select(tables.function.c.name).where(tables.function.c.name == name)).first()
    if known is None:
        tx.connection.execute(
            insert(tables.function).values(name=name, source=function.source, pickled=function.pickled)
        )


def function(tx: Transaction, name: str) -> Function:
    """The per-key functions of a custom encoding.

    Raises:
        UnknownName: no custom encoding has that name.
    """
    row = tx.connection.execute(select(tables.function).where(tables.function.c.name == name)).first()
    if row is None:
        raise UnknownName(f"there are no functions called {name} for a custom encoding")
    return Function(pickled=row.pickled, source=row.source)
