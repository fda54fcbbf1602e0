"""Reading of small blocks in this process: Arrow merges their rows, and Spark gets them as a relation of values.

A plan over such a relation neither lists nor opens files, and has no joins, windows and unions for the merge: Spark
analyses, optimizes and compiles less than it would read. The rows equal those of `algebra`, for the types of
`arrow_types`; what is not merged here is left to Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kilonova.model.block import Block
from kilonova.model.encoding import DELETED, WEIGHT, Append, Changes, Encoding, Upsert, key_of
from kilonova.model.read_plan import ChangesRead, DeltaRead, DiffRead, ReadPlan, SnapshotRead
from kilonova.model.schema import Schema
from kilonova.warehouse.arrow_types import arrow_schema, comparable_types
from kilonova.warehouse.local_checks import upsert_changes
from kilonova.warehouse.storage import Storage

_BYTES, _ROWS = 1 << 20, 10_000
"""Size of the blocks that are read here, in bytes of Parquet, and their number of rows, at most."""

_MEMORY = 4 << 20
"""Size of the rows in memory, in bytes, at most: frames of recent read plans are cached."""


class SmallReader:
    """Reader of the small blocks of one warehouse.

    Args:
        storage: the storage of the blocks.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def rows(self, reading: ReadPlan) -> pa.Table | None:
        """Return the rows of a read plan, as `Warehouse.open`; None if they are not small, or left to Spark.

        Raises:
            StorageFailed: a block cannot be read.
        """
        return _limited(self._read(reading, as_stored=False)) if _is_small(reading) else None

    def stored(self, reading: ReadPlan, weighed: bool) -> pa.Table | None:
        """Return the rows of a read plan, as `Warehouse.shared`; None if they are not small, or left to Spark.

        Raises:
            StorageFailed: a block cannot be read.
        """
        if not _is_small(reading):
            return None
        if weighed and isinstance(reading, SnapshotRead):
            return _limited(self._weighed(reading))
        return _limited(self._read(reading, as_stored=True))

    def _weighed(self, reading: SnapshotRead) -> pa.Table | None:
        schema, deltas = reading.schema, reading.deltas
        assert schema is not None
        strong = len([*takewhile(lambda block: isinstance(block.encoding, Append | Changes), reversed(deltas))])
        before = deltas[: len(deltas) - strong]
        rows = self._snapshot(reading.base, before, reading.encoding, schema)
        return None if rows is None else self._with_weights(rows, deltas[len(before) :], schema)

    def _read(self, reading: ReadPlan, as_stored: bool) -> pa.Table | None:
        schema = reading.schema
        assert schema is not None
        match reading:
            case SnapshotRead():
                return self._snapshot(reading.base, reading.deltas, reading.encoding, schema)
            case DeltaRead():
                return self._chain(reading.deltas, reading.encoding, schema, as_stored)
            case DiffRead(old=old, new=new, encoding=encoding):
                after = None if old.blocks else self._snapshot(new.base, new.deltas, new.encoding, schema)
                return None if after is None else _as_delta(after, encoding)
            case ChangesRead(old=old, delta=delta):
                changes = self._chain(delta.deltas, delta.encoding, schema, as_stored=False)
                if changes is None or isinstance(delta.encoding, Append | Changes):
                    return changes if changes is None or WEIGHT[0] in changes.column_names else _weighted(changes)
                before = self._snapshot(old.base, old.deltas, old.encoding, schema)
                return None if before is None else upsert_changes(changes, [before], key_of(delta.encoding))

    def _snapshot(
        self, base: Block | None, deltas: Sequence[Block], encoding: Encoding, schema: Schema
    ) -> pa.Table | None:
        if not isinstance(encoding, Append | Changes | Upsert):
            return None
        rows = arrow_schema(schema).empty_table() if base is None else self._stored(base, schema)
        if all(isinstance(block.encoding, Append) for block in deltas):
            return pa.concat_tables([rows, *(self._stored(block, schema) for block in deltas)])
        if key := key_of(encoding):
            parts = self._upserts(deltas, key, schema)
            if parts is None:
                return None
            newest = _newest(pa.concat_tables([_marked(rows, deleted=False), *parts]), key)
            return newest.filter(pc.invert(newest[DELETED[0]])).drop_columns(DELETED[0])
        if not all(isinstance(block.encoding, Append | Changes) for block in deltas):
            return None
        weighed = _added_up(self._with_weights(rows, deltas, schema))
        if weighed is None or pc.any(pc.less(weighed[WEIGHT[0]], 0)).as_py():
            return None
        repeated = np.repeat(np.arange(weighed.num_rows), weighed[WEIGHT[0]].to_numpy())
        return weighed.drop_columns(WEIGHT[0]).take(pa.array(repeated))

    def _chain(self, deltas: Sequence[Block], encoding: Encoding, schema: Schema, as_stored: bool) -> pa.Table | None:
        empty = arrow_schema(schema).empty_table()
        match encoding:
            case Append():
                return pa.concat_tables([empty, *(self._stored(block, schema) for block in deltas)])
            case Upsert(key):
                parts = self._upserts(deltas, key, schema)
                return (
                    None if parts is None else _newest(pa.concat_tables([_marked(empty, deleted=False), *parts]), key)
                )
            case Changes() if all(isinstance(block.encoding, Append | Changes) for block in deltas):
                rows = self._with_weights(empty, deltas, schema)
                effective = len(deltas) == 1 and not deltas[0].columns.state_columns.columns
                if as_stored or effective or all(isinstance(block.encoding, Append) for block in deltas):
                    return rows
                return _added_up(rows)
            case _:
                return None

    def _with_weights(self, rows: pa.Table, deltas: Sequence[Block], schema: Schema) -> pa.Table:
        """Return rows and those of append and changes blocks, with their weights."""
        weighed = (
            self._stored(block, schema.plus(WEIGHT))
            if isinstance(block.encoding, Changes)
            else _weighted(self._stored(block, schema))
            for block in deltas
        )
        return pa.concat_tables([_weighted(rows), *weighed])

    def _upserts(self, deltas: Sequence[Block], key: tuple[str, ...], schema: Schema) -> list[pa.Table] | None:
        """Return the rows of upserts, and of strong deltas as upserts, in order; None if there are other deltas."""
        parts: list[pa.Table] = []
        for block in deltas:
            if block.encoding == Upsert(key):
                parts.append(self._stored(block, schema.plus(DELETED)))
            elif block.encoding == Changes(key):
                rows = self._stored(block, schema.plus(WEIGHT))
                added = pc.greater(rows[WEIGHT[0]], 0)
                rows = rows.drop_columns(WEIGHT[0])
                parts.append(_marked(rows.filter(pc.invert(added)), deleted=True))
                parts.append(_marked(rows.filter(added), deleted=False))
            else:
                return None
        return parts

    def _stored(self, block: Block, columns: Schema) -> pa.Table:
        """Return the rows of a block with exactly the given columns, null where it lacks them."""
        there = block.seen_as(columns).columns.names
        names = [name for name in columns.names if name in there]
        rows = self._storage.table(block.name, block.stored or (), names)
        schema = arrow_schema(columns)
        arrays = [
            rows[field.name].cast(field.type) if field.name in names else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)


def frame_of(spark: SparkSession, rows: pa.Table, schema: Schema) -> DataFrame:
    """Return rows with columns of a schema, and control columns, as a frame."""
    types = dict((DELETED, WEIGHT)) | {column.name: column.type for column in schema.columns}
    columns = Schema.of(*((name, types[name]) for name in rows.column_names))
    return spark.createDataFrame(rows, _parsed(columns.ddl))


@lru_cache(maxsize=1024)
def _parsed(ddl: str) -> StructType:
    return cast(StructType, StructType.fromDDL(ddl))


def _is_small(reading: ReadPlan) -> bool:
    schema, blocks = reading.schema, reading.blocks
    return (
        schema is not None
        and sum(block.statistics.rows for block in blocks) <= _ROWS
        and sum(block.statistics.bytes for block in blocks) <= _BYTES
        and all(block.external is None and block.stored is not None for block in blocks)
        and comparable_types(schema, schema.names)
    )


def _limited(rows: pa.Table | None) -> pa.Table | None:
    """Return rows in one batch, as Spark ignores those after an empty one; None if they are large."""
    return rows.combine_chunks() if rows is not None and rows.nbytes <= _MEMORY else None


def _as_delta(rows: pa.Table, encoding: Encoding) -> pa.Table | None:
    """Return a relation as the delta that creates it from the empty relation."""
    match encoding:
        case Append():
            return rows
        case Upsert():
            return _marked(rows, deleted=False)
        case Changes():
            return _weighted(rows)
        case _:
            return None


def _marked(rows: pa.Table, *, deleted: bool) -> pa.Table:
    return rows.append_column(DELETED[0], pa.repeat(pa.scalar(deleted), rows.num_rows))


def _weighted(rows: pa.Table) -> pa.Table:
    return rows.append_column(WEIGHT[0], pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))


def _newest(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last row of each key, in their order."""
    keys = rows.select(list(key)).rename_columns([f"k{place}" for place in range(len(key))])
    places = keys.append_column("place", pa.array(np.arange(rows.num_rows)))
    last = places.group_by(keys.column_names, use_threads=False).aggregate([("place", "max")])["place_max"]
    return rows.take(pa.array(np.sort(last.to_numpy())))


def _added_up(rows: pa.Table) -> pa.Table | None:
    """Return weighted rows, each once, without those of weight zero; None for numbers that Spark compares by rules."""
    if any(pa.types.is_floating(column.type) for column in rows.columns):
        return None
    names = [name for name in rows.column_names if name != WEIGHT[0]]
    short = rows.rename_columns([f"c{place}" for place in range(rows.num_columns - 1)] + ["weight"])
    sums = short.group_by(short.column_names[:-1], use_threads=False).aggregate([("weight", "sum")])
    ordered = sums.select([*short.column_names[:-1], "weight_sum"])
    added = ordered.rename_columns([*names, WEIGHT[0]]).cast(rows.schema)
    return added.filter(pc.not_equal(added[WEIGHT[0]], 0))
