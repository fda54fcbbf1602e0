"""Channels in the catalog: their declarations, and the workflows that declare them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import select, update

from kilonova.catalog import channel_store, codec, events, tables
from kilonova.catalog.channel_store import new_stamp
from kilonova.catalog.database import Transaction, insert_all
from kilonova.catalog.files import set_watched_directory
from kilonova.errors import Conflict
from kilonova.model.channel import Channel
from kilonova.model.column_rules import STRICT
from kilonova.model.event import EventKind
from kilonova.model.schema import Column, Schema

RECOVERED = ""
"""Workflow name of recovered channels and tasks, until a workflow declares them."""


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
                "encoding": codec.encoding_to_json(channel.encoding),
                "workflow": workflow,
                "stamp": new_stamp(),
                **_metadata(channel),
            }
            for channel in every
        ],
    )
    for channel in every:
        if channel.watch is not None:
            set_watched_directory(tx, channel.name, channel.watch)


def change_channel(tx: Transaction, channel: Channel) -> None:
    """Change the schema or encoding of a channel; existing blocks keep theirs."""
    tx.connection.execute(
        update(tables.channel)
        .where(tables.channel.c.name == channel.name)
        .values(
            schema=None if channel.schema is None else codec.schema_to_json(channel.schema),
            encoding=codec.encoding_to_json(channel.encoding),
            **_metadata(channel),
        )
    )
    set_watched_directory(tx, channel.name, channel.watch)


def update_channel_metadata(tx: Transaction, channel: Channel) -> None:
    """Update the declaration of a channel except its schema and encoding."""
    tx.connection.execute(
        update(tables.channel).where(tables.channel.c.name == channel.name).values(**_metadata(channel))
    )
    set_watched_directory(tx, channel.name, channel.watch)


def add_columns(tx: Transaction, run: int, channel: Channel, new: Sequence[Column]) -> None:
    """Add columns of ingested rows to a channel, in the transaction that publishes the rows.

    Args:
        tx: a writing transaction.
        run: the run that has ingested the rows.
        channel: the channel, as it was when the run began.
        new: the columns.

    Raises:
        Conflict: the columns of the channel have changed since.
    """
    known = channel_store.channel(tx, channel.name)
    if known.schema is None or known.schema != channel.schema or known.rules != channel.rules:
        raise Conflict(
            "the columns of the channel have changed while rows with new ones were ingested",
            channel=channel.name,
            hint="Ingest them again",
        )
    schema = Schema((*known.schema.columns, *new))
    change_channel(tx, replace(known, schema=schema, added=(*known.added, *(column.name for column in new))))
    said = ", ".join(f"{column.name} {column.type}" for column in new)
    text = f"{channel.name}: new column{'s' if len(new) > 1 else ''} {said}"
    events.record(tx, EventKind.COLUMNS_ADDED, run=run, channels=[channel.name], text=text)


def _metadata(channel: Channel) -> dict[str, Any]:
    return {
        "description": channel.description or None,
        "checks": codec.checks_to_json(channel.checks) if channel.checks else None,
        "adopts": channel.adopts or channel.schema is None,
        "several_writers": channel.several_writers,
        "sequence_by": channel.sequence_by,
        "retention": channel.retention,
        "rules": None if channel.rules == STRICT else codec.rules_to_json(channel.rules),
        "added": list(channel.added) or None,
        "accepts": channel.accepts,
    }


def channel_owners(tx: Transaction) -> dict[str, str]:
    """Return the workflow that declares each channel."""
    rows = tx.connection.execute(select(tables.channel.c.name, tables.channel.c.workflow))
    return {row.name: row.workflow for row in rows}


def adopt_recovered(tx: Transaction, names: Iterable[str], workflow: str) -> None:
    """Assign the recovered channels among the given ones to the workflow that declares them."""
    tx.connection.execute(
        update(tables.channel)
        .where(tables.channel.c.name.in_(list(names)), tables.channel.c.workflow == RECOVERED)
        .values(workflow=workflow)
    )
