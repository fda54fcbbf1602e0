"""Reading of small blocks in this process: Arrow merges their rows, and Spark, if needed, gets them as values.

A plan over such a relation neither lists nor opens files, and has no joins, windows and unions for the merge: Spark
analyses, optimizes and compiles less than it would read. The rows equal those of `algebra`, for the types of
`arrow_types`; what is not merged here is left to Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kilonova.model.block import Block, BlockName
from kilonova.model.encoding import DELETED, WEIGHT, Append, Changes, Encoding, Upsert, key_of
from kilonova.model.read_plan import ChangesRead, DeltaRead, DiffRead, ReadPlan, SnapshotRead
from kilonova.model.schema import Schema
from kilonova.warehouse.arrow_types import arrow_schema, comparable_types
from kilonova.warehouse.block_rows import completed, last_places, names_of, with_new_names
from kilonova.warehouse.bucket_merge import as_upserts
from kilonova.warehouse.local_checks import upsert_changes
from kilonova.warehouse.storage import Storage

_BYTES, _ROWS, _FILES = 1 << 20, 10_000, 64
"""Size of the blocks that are read here, in bytes of Parquet, and their number of rows and files, at most."""

_MEMORY = 4 << 20
"""Size of the rows of each block, and of the result, in memory, in bytes, at most."""

_AT_ONCE = 8
"""Number of blocks read concurrently."""


class _LeftToSpark(Exception):
    """Rows that turn out to be too large, or that Spark compares by rules of its own."""


class SmallReader:
    """Reader of the small blocks of one warehouse as frames.

    Args:
        spark: the session of the frames.
        storage: the storage of the blocks.
    """

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self._spark = spark
        self._tables = SmallTables(storage)

    def open(self, reading: ReadPlan) -> DataFrame | None:
        """Return the rows of a read plan, as `Warehouse.open`; None if they are not small, or left to Spark.

        Raises:
            StorageFailed: a block cannot be read.
        """
        rows = self._tables.rows(reading) if is_small_reading(reading) else None
        return None if rows is None else _values(self._spark, rows, _schema(reading))

    def shared(self, reading: ReadPlan, weighed: bool) -> DataFrame | None:
        """Return the rows of a small read plan, as `Warehouse.shared`; None if they are left to Spark.

        Raises:
            StorageFailed: a block cannot be read.
        """
        rows = self._tables.rows(reading, as_stored=True, weighed=weighed)
        return None if rows is None else derived_rows(self._spark, rows, _schema(reading))


class SmallTables:
    """Reader of the small blocks of one warehouse as Arrow tables, without Spark.

    Args:
        storage: the storage of the blocks.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def rows(self, reading: ReadPlan, *, as_stored: bool = False, weighed: bool = False) -> pa.Table | None:
        """Return the rows of a read plan for which `is_small_reading` holds; None if they are left to Spark.

        Args:
            reading: the read plan.
            as_stored: whether strong deltas may remove and add the same row.
            weighed: whether snapshots are weighted rows that sum up to them.

        Raises:
            StorageFailed: a block cannot be read.
        """
        schema = reading.schema
        assert schema is not None
        try:
            merge = _Merge(tables=self._tables(reading.blocks, schema), schema=schema)
            if weighed and isinstance(reading, SnapshotRead):
                rows = merge.weighed(reading)
            else:
                rows = merge.rows(reading, as_stored=as_stored)
        except _LeftToSpark:
            return None
        return None if rows.nbytes > _MEMORY else rows

    def _tables(self, blocks: Sequence[Block], schema: Schema) -> dict[BlockName, pa.Table]:
        """Return the rows of blocks, as they are stored."""

        def table(block: Block) -> pa.Table:
            names = names_of(block, schema)  # without any, rows would not be counted
            rows = self._storage.small_table(block.name, block.stored or (), names, _MEMORY) if names else None
            if rows is None:
                raise _LeftToSpark
            return with_new_names(rows, block, schema)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return {block.name: rows for block, rows in zip(blocks, pool.map(table, blocks), strict=True)}


def is_small_reading(reading: ReadPlan) -> bool:
    """Return whether the blocks of a read plan are small, and their columns of types that Arrow compares as Spark."""
    schema, blocks = reading.schema, reading.blocks
    return (
        schema is not None
        and sum(block.statistics.rows for block in blocks) <= _ROWS
        and sum(block.statistics.bytes for block in blocks) <= _BYTES
        and sum(block.statistics.files for block in blocks) <= _FILES
        and all(block.external is None and block.stored for block in blocks)
        and comparable_types(schema, schema.names)
        and all(block.has_key_of(schema) for block in blocks)
        and all(comparable_types(schema, key_of(block.encoding), as_key=True) for block in blocks)
    )


_LITERAL = 64 << 10
"""Maximum size in bytes of rows that are part of a plan of derived logic, as values.

Spark compares and hashes plans while it analyses a query, with all values. 10,000 rows of a change took 0.2 s so, in a
query that reads them several times. Queries of users have values of any size: a hint keeps Spark from ordering joins.
"""

_LOCAL_RELATION = "spark.sql.execution.arrow.localRelationThreshold"


def _schema(reading: ReadPlan) -> Schema:
    assert reading.schema is not None
    return reading.schema


def derived_rows(spark: SparkSession, rows: pa.Table, schema: Schema) -> DataFrame:
    """Return rows with columns of a schema, and control columns, as a frame for derived logic."""
    if rows.nbytes <= _LITERAL or type(spark) is not SparkSession:  # on Connect they are always values
        return _values(spark, rows, schema)
    usual = str(spark.conf.get(_LOCAL_RELATION))
    spark.conf.set(_LOCAL_RELATION, "0")
    try:
        return _values(spark, rows, schema).hint("broadcast")  # as of values, whose size Spark knows
    finally:
        spark.conf.set(_LOCAL_RELATION, usual)


def _values(spark: SparkSession, rows: pa.Table, schema: Schema) -> DataFrame:
    """Return rows with columns of a schema, and control columns, as a frame of values."""
    types = dict((DELETED, WEIGHT)) | {column.name: column.type for column in schema.columns}
    columns = Schema.of(*((name, types[name]) for name in rows.column_names))
    return spark.createDataFrame(rows.combine_chunks(), _parsed(columns.ddl))  # Spark ignores rows after an empty chunk


@lru_cache(maxsize=1024)
def _parsed(ddl: str) -> StructType:
    return cast(StructType, StructType.fromDDL(ddl))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    """The rules of `Warehouse.open` for the rows of some blocks.

    Attributes:
        tables: the rows of the blocks, as they are stored.
        schema: the columns of the relation.
    """

    tables: Mapping[BlockName, pa.Table]
    schema: Schema

    def rows(self, reading: ReadPlan, *, as_stored: bool) -> pa.Table:
        """Return the rows of a read plan.

        Args:
            reading: the read plan.
            as_stored: whether strong deltas may remove and add the same row.
        """
        match reading:
            case SnapshotRead(base=base, deltas=deltas, encoding=encoding):
                return self._snapshot(base, deltas, encoding)
            case DeltaRead(deltas=deltas, encoding=encoding):
                return self._chain(deltas, encoding, as_stored)
            case DiffRead(old=old, new=new, encoding=encoding):
                if old.blocks:
                    raise _LeftToSpark
                return _as_delta(self._snapshot(new.base, new.deltas, new.encoding), encoding)
            case ChangesRead(old=old, delta=DeltaRead(deltas=deltas, encoding=encoding)):
                changes = self._chain(deltas, encoding, as_stored=False)
                if isinstance(encoding, Upsert):
                    return upsert_changes(changes, [self._snapshot(old.base, old.deltas, old.encoding)], encoding.key)
                return weighted(changes) if isinstance(encoding, Append) else changes

    def weighed(self, reading: SnapshotRead) -> pa.Table:
        """Return a snapshot as weighted rows that sum up to it: its base and its strong deltas as stored."""
        deltas = reading.deltas
        strong = len([*takewhile(lambda block: isinstance(block.encoding, Append | Changes), reversed(deltas))])
        before = len(deltas) - strong
        rows = self._snapshot(reading.base, deltas[:before], reading.encoding)
        return self._with_weights(rows, deltas[before:])

    def _snapshot(self, base: Block | None, deltas: Sequence[Block], encoding: Encoding) -> pa.Table:
        if not isinstance(encoding, Append | Changes | Upsert):
            raise _LeftToSpark
        rows = self._empty if base is None else self._stored(base)
        if all(isinstance(block.encoding, Append) for block in deltas):
            return pa.concat_tables([rows, *map(self._stored, deltas)])
        if key := key_of(encoding):
            newest = _newest([_marked(rows), *self._upserts(deltas, key)], key)
            return newest.filter(pc.invert(newest[DELETED[0]])).drop_columns(DELETED[0])
        return _repeated(_added_up(self._with_weights(rows, deltas)))

    def _chain(self, deltas: Sequence[Block], encoding: Encoding, as_stored: bool) -> pa.Table:
        match encoding:
            case Append():
                return pa.concat_tables([self._empty, *map(self._stored, deltas)])
            case Upsert(key):
                return _newest([_marked(self._empty), *self._upserts(deltas, key)], key)
            case Changes():
                rows = self._with_weights(self._empty, deltas)
                effective = len(deltas) == 1 and deltas[0].is_effective(self.schema)
                appends = all(isinstance(block.encoding, Append) for block in deltas)
                return rows if as_stored or effective or appends else _added_up(rows)
            case _:
                raise _LeftToSpark

    def _with_weights(self, rows: pa.Table, deltas: Sequence[Block]) -> pa.Table:
        """Return rows and those of append and changes blocks, with their weights."""
        parts = [weighted(rows)]
        for block in deltas:
            match block.encoding:
                case Append():
                    parts.append(weighted(self._stored(block)))
                case Changes():
                    parts.append(completed(self.tables[block.name], self.schema.plus(WEIGHT)))
                case _:
                    raise _LeftToSpark
        return pa.concat_tables(parts)

    def _upserts(self, deltas: Sequence[Block], key: tuple[str, ...]) -> list[pa.Table]:
        """Return the rows of upserts, and of strong deltas as upserts, in order."""
        if not all(block.encoding in (Upsert(key), Changes(key)) for block in deltas):
            raise _LeftToSpark
        schema = arrow_schema(self.schema)
        return [part for block in deltas for part in as_upserts(self.tables[block.name], schema)]

    def _stored(self, block: Block) -> pa.Table:
        return completed(self.tables[block.name], self.schema)

    @property
    def _empty(self) -> pa.Table:
        return arrow_schema(self.schema).empty_table()


def _as_delta(rows: pa.Table, encoding: Encoding) -> pa.Table:
    """Return a relation as the delta that creates it from the empty relation."""
    match encoding:
        case Append():
            return rows
        case Upsert():
            return _marked(rows)
        case Changes():
            return weighted(rows)
        case _:
            raise _LeftToSpark


def _marked(rows: pa.Table) -> pa.Table:
    """Return rows as those of an upsert."""
    return rows.append_column(DELETED[0], pa.repeat(pa.scalar(False), rows.num_rows))


def weighted(rows: pa.Table) -> pa.Table:
    """Return rows as those that a strong delta adds."""
    return rows.append_column(WEIGHT[0], pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))


def _newest(parts: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Return the last row of each key, in their order."""
    rows = pa.concat_tables(parts)
    return rows.take(pa.array(np.sort(last_places(rows.select(list(key))))))


def _added_up(rows: pa.Table) -> pa.Table:
    """Return weighted rows, each once, without those of weight zero."""
    if any(pa.types.is_floating(column.type) for column in rows.columns):
        raise _LeftToSpark  # which groups NaNs, and zeros of either sign
    *names, _ = rows.column_names
    short = rows.rename_columns([*(f"c{place}" for place in range(len(names))), "weight"])
    sums = short.group_by(short.column_names[:-1], use_threads=False).aggregate([("weight", "sum")])
    added = sums.select([*short.column_names[:-1], "weight_sum"]).rename_columns(rows.column_names).cast(rows.schema)
    return added.filter(pc.not_equal(added[WEIGHT[0]], 0))


def _repeated(rows: pa.Table) -> pa.Table:
    """Return each weighted row as often as its weight says."""
    weights = rows[WEIGHT[0]].to_numpy()
    if (weights < 0).any() or (weights > _ROWS).any() or weights.sum() > _ROWS:
        raise _LeftToSpark
    return rows.drop_columns(WEIGHT[0]).take(pa.array(np.repeat(np.arange(len(weights)), weights)))
