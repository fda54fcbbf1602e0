"""Deferred workflows: definitions that are registered, and replace the present ones at a later time.

Until then the present tasks run, and what a migration of their output may read is retained. A workflow has at most one
deferred definition; applying another one, at once or later, replaces it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, insert, select, update

from kilonova.catalog import tables
from kilonova.catalog.database import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredWorkflow:
    """Workflow that takes effect later.

    Attributes:
        number: its number.
        workflow: its name.
        until: the time at which it takes effect.
        registered: the time at which it was registered; the same for those that are applied together.
        tasks: the tasks that it changes, with their logic versions then.
    """

    number: int
    workflow: str
    until: datetime
    registered: datetime
    tasks: Mapping[str, int]


def deferred_workflows(tx: Transaction) -> tuple[DeferredWorkflow, ...]:
    """Return the deferred workflows, in the order in which they were registered."""
    table = tables.deferred.c
    query = select(table.id, table.workflow, table.until, table.registered, table.tasks).order_by(table.id)
    return tuple(
        DeferredWorkflow(
            number=row.id, workflow=row.workflow, until=row.until, registered=row.registered, tasks=row.tasks
        )
        for row in tx.connection.execute(query)
    )


def definition(tx: Transaction, number: int) -> bytes | None:
    """Return the serialized definition of a deferred workflow; None if there is no such workflow any more."""
    found: bytes | None = tx.connection.execute(
        select(tables.deferred.c.definition).where(tables.deferred.c.id == number)
    ).scalar()
    return found


def defer(tx: Transaction, workflow: str, until: datetime, tasks: Mapping[str, int], definition: bytes) -> None:
    """Record a deferred workflow, instead of the one that is recorded under its name, if there is one.

    Args:
        tx: a writing transaction.
        workflow: its name.
        until: the time at which it takes effect.
        tasks: the tasks that it changes, with their logic versions then.
        definition: its serialized definition.
    """
    discard(tx, workflow)
    tx.connection.execute(
        insert(tables.deferred).values(
            workflow=workflow, until=until, registered=tx.now, tasks=dict(tasks), definition=definition
        )
    )


def deferred_until(tx: Transaction, workflow: str) -> datetime | None:
    """Return the time at which the deferred definition of a workflow takes effect; None if there is none."""
    found: datetime | None = tx.connection.execute(
        select(tables.deferred.c.until).where(tables.deferred.c.workflow == workflow)
    ).scalar()
    return found


def discard(tx: Transaction, workflow: str) -> None:
    """Discard the deferred definition of a workflow, if there is one."""
    tx.connection.execute(delete(tables.deferred).where(tables.deferred.c.workflow == workflow))


def take(tx: Transaction, numbers: Collection[int]) -> bool:
    """Remove deferred workflows; return whether all of them were still there."""
    done = tx.connection.execute(delete(tables.deferred).where(tables.deferred.c.id.in_(list(numbers))))
    return done.rowcount == len(numbers)


def postpone(tx: Transaction, numbers: Collection[int], until: datetime) -> None:
    """Let deferred workflows take effect at another time."""
    tx.connection.execute(update(tables.deferred).where(tables.deferred.c.id.in_(list(numbers))).values(until=until))
