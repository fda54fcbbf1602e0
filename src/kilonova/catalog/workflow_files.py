"""Files of workflows: the Python file, or folder of SQL files, from which each was last applied.

A path in the project's directory is relative to it, so that a server on another machine, or in another directory, finds
the file in its own copy of the project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, insert, select

from kilonova.catalog import tables
from kilonova.catalog.database import Transaction
from kilonova.errors import NotFound, closest_name


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredWorkflow:
    """Registered workflow.

    Attributes:
        name: its name.
        file: the path of its file or folder; None if it was never applied from one.
        tasks: the number of its active tasks.
        registered: the time at which the newest logic version of one of its tasks was registered; None if it has none.
        deferred_until: the time at which its deferred definition takes effect; None if there is none.
    """

    name: str
    file: str | None
    tasks: int
    registered: datetime | None
    deferred_until: datetime | None


def put_file(tx: Transaction, workflow: str, path: str) -> None:
    """Record the file from which a workflow is applied."""
    table = tables.workflow_file
    known = tx.connection.execute(select(table.c.path).where(table.c.workflow == workflow)).scalar()
    if known != path:
        tx.connection.execute(delete(table).where(table.c.workflow == workflow))
        tx.connection.execute(insert(table).values(workflow=workflow, path=path))


def workflows(tx: Transaction) -> tuple[RegisteredWorkflow, ...]:
    """Return the registered workflows, by name."""
    task, logic, file, deferred = tables.task.c, tables.logic.c, tables.workflow_file.c, tables.deferred.c
    files: Mapping[str, str] = {
        row.workflow: row.path for row in tx.connection.execute(select(file.workflow, file.path))
    }
    waiting = {row.workflow: row.until for row in tx.connection.execute(select(deferred.workflow, deferred.until))}
    query = (
        select(task.workflow, func.count(task.id.distinct()).label("tasks"), func.max(logic.registered).label("last"))
        .join(tables.logic, logic.task_id == task.id)
        .where(task.active)
        .group_by(task.workflow)
    )
    found = {row.workflow: (row.tasks, row.last) for row in tx.connection.execute(query)}
    owners = set(tx.connection.execute(select(tables.channel.c.workflow).distinct()).scalars())
    return tuple(
        RegisteredWorkflow(
            name=name,
            file=files.get(name),
            tasks=tasks,
            registered=registered,
            deferred_until=waiting.get(name),
        )
        for name in sorted({*found, *owners, *waiting} - {""})
        for tasks, registered in [found.get(name, (0, None))]
    )


def workflow(tx: Transaction, name: str) -> RegisteredWorkflow:
    """Return a registered workflow.

    Raises:
        NotFound: there is no such workflow.
    """
    found = {each.name: each for each in workflows(tx)}
    if name not in found:
        raise NotFound(f"there is no workflow {name}", hint=closest_name(name, sorted(found)))
    return found[name]
