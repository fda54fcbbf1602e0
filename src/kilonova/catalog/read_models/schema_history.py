"""Schema history of a channel, as recorded in its blocks, live or not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from sqlalchemy import Text, cast, select

from kilonova.catalog import codec, tables
from kilonova.catalog.channel_store import channel_id
from kilonova.catalog.database import Transaction
from kilonova.model.schema import Column, Schema

_LOOKED_AT = 1000
"""Number of the last blocks of a channel that are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRecord:
    """Schema change of a channel at a point; at its first block, all columns are added.

    Attributes:
        point: the point.
        run: the run that filled it.
        time: the time when it was filled.
        added: the new columns.
        dropped: the removed columns.
        changed: the columns with another name or type, each before and after.
    """

    point: int
    run: int
    time: datetime
    added: tuple[Column, ...]
    dropped: tuple[Column, ...]
    changed: tuple[tuple[Column, Column], ...]


def schemas(tx: Transaction, channel: str, limit: int = 20) -> tuple[SchemaRecord, ...]:
    """Return the last schema changes of a channel, newest first, among its last thousand blocks.

    Args:
        tx: an open transaction.
        channel: the channel.
        limit: the maximum number of changes.

    Raises:
        NotFound: there is no such channel.
    """
    output, point = tables.run_output, tables.point
    rows = tx.connection.execute(
        select(output.c.point, output.c.run_id, point.c.time, cast(tables.block.c.schema, Text).label("schema"))
        .join(tables.block, tables.block.c.id == output.c.block_id)
        .join(point, (point.c.channel_id == output.c.channel_id) & (point.c.number == output.c.point))
        .where(output.c.channel_id == channel_id(tx, channel))
        .order_by(output.c.point.desc(), output.c.run_id.desc())
        .limit(_LOOKED_AT + 1)
    ).all()
    schemas = [(row, row.schema) for row in rows] + ([(None, "[]")] if len(rows) <= _LOOKED_AT else [])
    found: list[SchemaRecord] = []
    for (row, after), (_, before) in pairwise(schemas):
        if after != before and row is not None and len(found) < limit:
            record = _record(row.point, row.run_id, row.time, _schema(before), _schema(after))
            found += [record] if record.added or record.dropped or record.changed else []
    return tuple(found)


def _schema(text: str) -> Schema:
    return codec.schema_from_json(json.loads(text))


def _record(point: int, run: int, time: datetime, before: Schema, after: Schema) -> SchemaRecord:
    names = before.new_names(after)
    old = {names.get(column.name, column.name).lower(): column for column in before.columns}
    new = {column.name.lower(): column for column in after.columns}
    return SchemaRecord(
        point=point,
        run=run,
        time=time,
        added=tuple(column for name, column in new.items() if name not in old),
        dropped=tuple(column for name, column in old.items() if name not in new),
        changed=tuple((old[name], column) for name, column in new.items() if old.get(name, column) != column),
    )
