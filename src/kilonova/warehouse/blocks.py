"""Blocks as lazy DataFrames.

A base laid out in buckets is read through an external table, because Spark knows buckets only of tables; the tables are
in the database `kilonova` of the session's catalog, and dropping one deletes no file. If the session's catalog does not
support them, the files are read directly, and merges shuffle: slower, with the same result.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from sqlglot import exp

from kilonova.model.block import Block, BlockName
from kilonova.model.encoding import SET, key_of
from kilonova.model.schema import Schema, quoted
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.verification import Verification

log = logging.getLogger(__name__)

POSITION = "_position"
"""Column with a delta row's position in its chain; internal to reads."""


def schema_of(struct: StructType) -> Schema:
    """Return a DataFrame's schema as a `Schema`."""
    return Schema.of(*((field.name, field.dataType.simpleString()) for field in struct.fields))


def column(name: str, of: str | None = None) -> Column:
    """Return a column by name, with any characters, optionally of an aliased DataFrame."""
    return F.col(f"{of}.{quoted(name)}" if of else quoted(name))


def conform(
    frame: DataFrame, schema: Schema, extra: Sequence[str] = (), absent: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """Return the frame with exactly the columns of `schema`, followed by the `extra` ones.

    Args:
        frame: the rows.
        schema: the columns; those that the frame lacks are null.
        extra: names of further columns.
        absent: SQL expressions of columns, those of `extra` included, that are used where the frame lacks the column.
    """
    names = frame.columns
    if names == [*schema.names, *extra]:
        return frame
    present, types = set(names), {item.name: item.type for item in schema.columns}
    texts = (
        quoted(name)
        if name in present
        else f"{absent[name] if name in absent else f'CAST(NULL AS {types[name]})'} AS {quoted(name)}"
        for name in (*schema.names, *extra)
    )
    return frame.selectExpr(*texts)


class Blocks:
    """Reader of one warehouse's blocks in one session.

    Args:
        spark: the session.
        storage: the storage of the blocks.
        identity: distinguishes this warehouse's tables from those of others in one catalog.
        external: returns the rows of a block that was registered in place, with its columns.
        verification: checks that blocks are as they were written.

    Attributes:
        together: whether each block is read by a single task.
    """

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        identity: str,
        external: Callable[[SparkSession, Block], DataFrame],
        verification: Verification,
    ) -> None:
        self.spark = spark
        self._external = external
        self.storage = storage
        self._prefix = f"kilonova.c{identity}_"
        self._verification = verification
        self._tables: dict[int, bool] = {}
        self._condition: Column | None = None
        self.together = False

    def empty(self, schema: Schema) -> DataFrame:
        """Return an empty DataFrame."""
        return self.spark.createDataFrame([], schema.ddl)

    def where(self, condition: Column) -> Blocks:
        """Return the same blocks, filtered by a condition; files that cannot satisfy it are skipped."""
        restricted = copy.copy(self)
        restricted._condition = condition
        return restricted

    def on(self, spark: SparkSession) -> Blocks:
        """Return the same blocks, read through another object of the same session."""
        other = copy.copy(self)
        other.spark = spark
        return other

    def by_one(self) -> Blocks:
        """Return the same blocks, each read by a single task, so that merging them does not shuffle."""
        alone = copy.copy(self)
        alone.together = True
        return alone

    def base(self, block: Block, schema: Schema) -> DataFrame:
        """Return the rows of a base block, as stored; columns that match the schema's only by name are left out."""
        self._verification.check([block])
        block = block.seen_as(schema)
        if self.aligned(block):
            return self._adapted(self.spark.table(f"{self._prefix}{block.name.directory}"), block, schema)
        return self._scan([block], schema)

    def aligned(self, block: Block) -> bool:
        """Return whether Spark will read a base bucket by bucket."""
        return bool(block.buckets) and self._table(block)

    def deltas(self, blocks: Sequence[Block], schema: Schema) -> DataFrame:
        """Return the rows of delta blocks, as `base`, with their position in the chain; one scan where they agree."""
        self._verification.check(blocks)
        blocks = [block.seen_as(schema) for block in blocks]
        if len(blocks) == 1:
            return self._scan(blocks, schema).withColumn(POSITION, F.lit(0))
        groups = _alike(blocks)
        place = {block.number: position for position, block in enumerate(blocks)}
        frames = [self._placed(group, place, schema) for group in groups]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame, allowMissingColumns=True)
        return whole

    def plain(self, blocks: Sequence[Block], schema: Schema) -> DataFrame:
        """Return the rows of blocks that only add rows, in one relation schema, without positions."""
        self._verification.check(blocks)
        groups = _alike([each.seen_as(schema) for each in blocks])
        frames = [conform(self._scan(group, schema), schema) for group in groups]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def forget(self, blocks: Sequence[BlockName]) -> None:
        """Drop the tables of deleted blocks."""
        self._verification.forget(blocks)
        for name in blocks:
            if self._tables.pop(name.number, False):
                self.spark.sql(f"DROP TABLE IF EXISTS {self._prefix}{name.directory}")

    def _scan(self, blocks: Sequence[Block], schema: Schema) -> DataFrame:
        if blocks[0].external is not None:
            (block,) = blocks
            return self._adapted(self._external(self.spark, block), block, schema)
        return self._adapted(self._files(blocks), blocks[0], schema)

    def _files(self, blocks: Sequence[Block]) -> DataFrame:
        paths = [self.storage.path(block.name) for block in blocks]
        return self.spark.read.schema(blocks[0].columns.ddl or StructType()).parquet(*paths)

    def _adapted(self, frame: DataFrame, block: Block, schema: Schema) -> DataFrame:
        names = block.columns.new_names(schema)
        frame = typed(renamed(frame, names), block.columns.renamed(names), schema)
        if SET[0] in block.columns.names and (names or not block.schema.identities <= schema.identities):
            frame = frame.withColumn(SET[0], _present_names(column(SET[0]), block.columns, schema))
        frame = frame if self._condition is None else frame.where(self._condition)
        return frame.coalesce(1) if self.together else frame

    def _placed(self, blocks: Sequence[Block], place: dict[int, int], schema: Schema) -> DataFrame:
        if len(blocks) == 1:
            return self._scan(blocks, schema).withColumn(POSITION, F.lit(place[blocks[0].number]))
        frame = self._files(blocks)
        places = (f"{_literal(file.name)}, {place[block.number]}" for block in blocks for file in block.stored or ())
        name = frame.metadataColumn("_metadata").getField("file_name")
        placed = frame.withColumn(POSITION, F.expr(f"map({', '.join(places)})")[name])
        return self._adapted(placed, blocks[0], schema)

    def _table(self, block: Block) -> bool:
        """Create the block's table unless it exists; return False if the session's catalog does not support it."""
        if block.number not in self._tables:
            key = ", ".join(map(quoted, key_of(block.encoding)))
            table = f"{self._prefix}{block.name.directory}"
            try:
                self.spark.sql(
                    "CREATE DATABASE IF NOT EXISTS kilonova COMMENT 'blocks of Kilonova, by reference'"
                    f" LOCATION {_literal(f'{self.storage.url}/tables')}"
                )
                self.spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {table} ({block.columns.ddl}) USING parquet"
                    f" CLUSTERED BY ({key}) SORTED BY ({key}) INTO {block.buckets} BUCKETS"
                    f" LOCATION {_literal(self.storage.path(block.name))}"
                )
                self._tables[block.number] = True
            except PySparkException as error:
                log.warning("reading block %s without its buckets; merges will shuffle: %s", block.number, error)
                self._tables[block.number] = False
        return self._tables[block.number]


def renamed(frame: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Return rows whose columns have been renamed since they were stored, with their new names by the stored ones."""
    return frame.select(*(column(name).alias(names.get(name, name)) for name in frame.columns)) if names else frame


def _present_names(names: Column, stored: Schema, schema: Schema) -> Column:
    """Return stored names of columns as those that the columns have in a schema, without those that are not in it."""
    there = {item.identity: item.name for item in schema.columns}
    known = {item.name: there[item.identity] for item in stored.columns if item.identity in there}
    if not known:
        return F.when(names.isNotNull(), F.array().cast(SET[1]))
    places = F.create_map(*(F.lit(name) for pair in known.items() for name in pair))
    return F.filter(F.transform(names, lambda name: places[name]), lambda name: name.isNotNull())


def typed(frame: DataFrame, stored: Schema, schema: Schema) -> DataFrame:
    """Return rows as they are stored with the types of a schema, which may have been widened since."""
    types = {item.name: item.type for item in schema.columns}
    others = {item.name: types[item.name] for item in stored.columns if types.get(item.name, item.type) != item.type}
    return frame.withColumns({name: column(name).cast(kind) for name, kind in others.items()}) if others else frame


def _alike(blocks: Sequence[Block]) -> list[list[Block]]:
    """Group blocks that one scan can read, and whose rows are told apart by the names of their files."""
    groups: dict[tuple[Schema, int | None], list[Block]] = {}
    for block in blocks:
        groups.setdefault((block.columns, None if block.stored else block.number), []).append(block)
    return list(groups.values())


def _literal(text: str) -> str:
    """Return a text as a Spark SQL literal, with any characters escaped."""
    return exp.Literal.string(text).sql(dialect="spark")
