"""How the schema of a channel has changed, as its blocks tell it, live or not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from sqlalchemy import Text, cast, select

from kilonova.catalog import codec, tables
from kilonova.catalog.chains import channel_id
from kilonova.catalog.database import Transaction
from kilonova.model.schema import Column, Schema

_LOOKED_AT = 1000
"""How many of the last blocks of a channel are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRecord:
    """A point from which on a channel has other columns than before; at its first block, all are added.

    Attributes:
        point: the point.
        run: the run that filled it.
        time: when it did.
        added: the columns that are new.
        dropped: the columns that are gone.
        changed: the columns with another type, as they were and as they are.
    """

    point: int
    run: int
    time: datetime
    added: tuple[Column, ...]
    dropped: tuple[Column, ...]
    changed: tuple[tuple[Column, Column], ...]


def schemas(tx: Transaction, channel: str, limit: int) -> tuple[SchemaRecord, ...]:
    """The last changes of a channel's schema, newest first; those of the last thousand blocks.

    Args:
        tx: an open transaction.
        channel: the channel.
        limit: at most so many.

    Raises:
        UnknownName: there is no such channel.
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
    told = [(row, row.schema) for row in rows] + ([(None, "[]")] if len(rows) <= _LOOKED_AT else [])
    found: list[SchemaRecord] = []
    for (row, after), (_, before) in pairwise(told):
        if after != before and row is not None and len(found) < limit:
            record = _record(row.point, row.run_id, row.time, _schema(before), _schema(after))
            found += [record] if record.added or record.dropped or record.changed else []
    return tuple(found)


def _schema(text: str) -> Schema:
    return codec.schema_from_json(json.loads(text))


def _record(point: int, run: int, time: datetime, before: Schema, after: Schema) -> SchemaRecord:
    old, new = ({column.name.lower(): column for column in schema.columns} for schema in (before, after))
    return SchemaRecord(
        point=point,
        run=run,
        time=time,
        added=tuple(column for name, column in new.items() if name not in old),
        dropped=tuple(column for name, column in old.items() if name not in new),
        changed=tuple((old[name], column) for name, column in new.items() if old.get(name, column) != column),
    )
