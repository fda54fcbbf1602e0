"""Idempotency keys of ingests.

A key of a channel is recorded in the transaction that starts its run and reserves its point, and identifies that run
from then on:

    the run is running       the ingest is rejected with `Conflict`
    the run has succeeded    it is returned
    the run ended otherwise  nothing was published, and the key is free again

A key takes effect in the same transaction that publishes its block, and a process that dies leaves nothing to repair.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, delete, insert, select, update

from kilonova.catalog import tables
from kilonova.catalog.channel_store import channel_id
from kilonova.catalog.database import Transaction
from kilonova.errors import Conflict, KeyReused
from kilonova.model.idempotency import IdempotencyKey
from kilonova.model.run import RunState


def finished(tx: Transaction, channel: str, key: IdempotencyKey) -> int | None:
    """Return the run that has completed the ingest of a key; None if there is none.

    Raises:
        NotFound: there is no such channel.
        KeyReused: the key was used for another ingest.
        Conflict: the run of the ingest is running.
    """
    row = tx.connection.execute(
        select(tables.ingest_key.c.digest, tables.ingest_key.c.run_id, tables.run.c.state)
        .join(tables.run, tables.run.c.id == tables.ingest_key.c.run_id)
        .where(*_is(tx, channel, key))
    ).first()
    if row is None or row.state not in (RunState.RUNNING.value, RunState.SUCCEEDED.value):
        return None
    run = int(row.run_id)
    if row.digest != key.digest:
        raise KeyReused(
            f"the idempotency key {key.text!r} belongs to another ingest",
            channel=channel,
            run=run,
            hint="Choose a new key for each ingest, and repeat one only with the same data and options",
        )
    if row.state == RunState.RUNNING.value:
        raise Conflict(
            f"the ingest with the idempotency key {key.text!r} is still running",
            channel=channel,
            run=run,
            hint="Retry when it has ended; its rows are inserted once",
        )
    return run


def claim(tx: Transaction, run: int, channel: str, key: IdempotencyKey) -> None:
    """Record a free key for a run that starts.

    Args:
        tx: the transaction that starts the run, in which `finished` gave None.
        run: the run.
        channel: the channel.
        key: the key.
    """
    values = {"digest": key.digest, "run_id": run, "time": tx.now}
    if not tx.connection.execute(update(tables.ingest_key).where(*_is(tx, channel, key)).values(values)).rowcount:
        values |= {"channel_id": channel_id(tx, channel), "key": key.text}
        tx.connection.execute(insert(tables.ingest_key).values(values))


def forget(tx: Transaction, before: datetime) -> None:
    """Delete keys that were last used before a time, except those of running runs."""
    running = select(tables.run.c.id).where(tables.run.c.state == RunState.RUNNING.value)
    old = tables.ingest_key.c.time < before
    tx.connection.execute(delete(tables.ingest_key).where(old, tables.ingest_key.c.run_id.not_in(running)))


def _is(tx: Transaction, channel: str, key: IdempotencyKey) -> tuple[ColumnElement[bool], ...]:
    return tables.ingest_key.c.channel_id == channel_id(tx, channel), tables.ingest_key.c.key == key.text
