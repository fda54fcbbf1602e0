"""The seam to the rows: readings become DataFrames, DataFrames become blocks.

`open` is lazy; `write` is one Spark job per block (and one or two more where an upsert is compared with what it
replaces). What a reading equals is defined by `kilonova.testing.reference`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import date
from functools import lru_cache, reduce
from itertools import groupby, takewhile
from operator import and_
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kilonova.errors import BrokenInvariant, Busy, EncodingError, KeyViolation, SparkUnavailable
from kilonova.model.block import Base, Block, BlockName, Delta, External, Kind, Statistics
from kilonova.model.check import Check, RowCheck, Unique, across_rows, of_rows, refuse_unknown
from kilonova.model.encoding import (
    WEIGHT,
    Append,
    Changes,
    Columns,
    Custom,
    Encoding,
    Increment,
    Upsert,
    delta_schema,
    key_of,
    merged_as,
)
from kilonova.model.reading import Chain, Diff, Reading, Snapshot, Strong
from kilonova.model.schema import Schema
from kilonova.schedule.layout import Sizes, Strategy, buckets_for, compares_whole, strategy, together
from kilonova.warehouse import algebra, counting, jobs
from kilonova.warehouse import checks as on
from kilonova.warehouse.blocks import NUMBER, POSITION, Blocks, column, schema_of, shaped
from kilonova.warehouse.equality import differ_at_end
from kilonova.warehouse.files import read_external, refuse_changed
from kilonova.warehouse.splitting import evaluated_once
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.verification import Verification

_FEW = 8
"""How many keys of an upsert into a large channel are looked up first; Spark has Parquet skip pages for up to ten."""

_SHARED = 256
"""How many readings are kept open for queries."""

_LOOKED_UP = ("tinyint", "smallint", "int", "bigint", "string", "date", "decimal", "boolean")
"""Types of keys that are the same as values of Python, whatever the time zone."""


class Warehouse:
    """The blocks of one catalog, in one Spark session.

    Args:
        spark: the session.
        storage: where the blocks are.
        identity: the catalog's identity.
        functions: gives the per-key functions of custom encodings by name.
        sizes: where the physical strategies change over.
        checksums: whether the contents of blocks are verified when they are first read, besides names and sizes.
    """

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        identity: str,
        functions: algebra.Functions,
        sizes: Sizes,
        *,
        checksums: bool = False,
    ) -> None:
        self.spark = spark
        self.storage = storage
        self.sizes = sizes
        self.functions = functions
        self._verification = Verification(storage, checksums=checksums)
        self._blocks = Blocks(spark, storage, identity, _external, self._verification)
        self._held: dict[Reading, DataFrame] = {}
        self._kept = lru_cache(maxsize=_SHARED)(self._shared)

    def counting(self, name: str) -> AbstractContextManager[counting.Jobs | counting.Operations]:
        """Count what this thread asks of Spark within a block, under this name in Spark's own pages."""
        return counting.counted(self.spark, name)

    def is_frame(self, item: object) -> bool:
        """Return whether something is a DataFrame."""
        return isinstance(item, DataFrame)

    def schema_of(self, frame: DataFrame) -> Schema:
        """Schema of a DataFrame."""
        return schema_of(frame.schema)

    def sql(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Result of a SQL query over DataFrames, which it names in braces."""
        return self.spark.sql(text, **dict[str, Any](frames))

    def evaluated_once(
        self, frames: Sequence[DataFrame], inputs: Iterable[DataFrame], name: Callable[[], BlockName]
    ) -> AbstractContextManager[tuple[DataFrame, ...]]:
        """Frames that agree with each other until the end of the block, whatever code they share.

        Args:
            frames: the frames.
            inputs: what they are made of, which is the same each time.
            name: names a block, in whose directory is kept what they share.
        """
        return evaluated_once(self.spark, frames, inputs, lambda: self.storage.path(name()))

    @contextmanager
    def holding(self, readings: Iterable[Reading]) -> Iterator[None]:
        """Keep what is put together for some readings, once it has been, until the end of the block.

        Several runs that read the same then read it once (Nova, section 4.2).
        """
        frames = {reading: self.open(reading).persist() for reading in readings}
        self._held |= frames
        try:
            yield
        finally:
            for reading, frame in frames.items():
                del self._held[reading]
                frame.unpersist()

    def open(self, reading: Reading) -> DataFrame:
        """The rows of a reading: those of the relation, or of a delta with its control columns.

        Args:
            reading: which blocks to put together, and how.

        Raises:
            BlockDamaged: a block is not as it was written.
        """
        self._verification.check(reading.blocks)
        if (held := self._held.get(reading)) is not None:
            return held
        schema = reading.schema
        if schema is None:
            raise BrokenInvariant("a channel without a schema was read")
        if together(reading.blocks, self.sizes):
            alone = copy.copy(self)
            alone._blocks = self._blocks.by_one()
            return alone._opened(reading, schema)
        return self._opened(reading, schema)

    def open_apart(self, reading: Reading) -> tuple[DataFrame, object]:
        """The rows of a reading, as `open` gives them, and something that lives as long as they are used.

        That is a copy of the session's object, which Spark hands on to every frame that is made of a frame. A client of
        Spark Connect ends with the first copy that goes: there it is the frame itself.
        """
        if type(self.spark) is not SparkSession:
            frame = self.open(reading)
            return frame, frame
        apart = copy.copy(self)
        apart.spark = copy.copy(self.spark)
        apart._blocks = self._blocks.on(apart.spark)
        apart._held = {}
        return apart.open(reading), apart.spark

    def _opened(self, reading: Reading, schema: Schema) -> DataFrame:
        match reading:
            case Snapshot():
                return self._snapshot(reading, schema)
            case Chain():
                return self._chain(reading, schema)
            case Diff(old=old, new=new, encoding=encoding):
                before, after = self._snapshot(old, schema), self._snapshot(new, schema)
                if not old.blocks and not isinstance(encoding, Custom):
                    return self.as_delta(after, encoding, schema)
                return algebra.diff(before, after, encoding, schema, self.functions)
            case Strong(old=old, delta=delta):
                small = sum(block.statistics.bytes for block in delta.deltas) <= self.sizes.broadcast
                how = Strategy.BROADCAST if small else Strategy.SHUFFLED
                how = Strategy.TOGETHER if self._blocks.together else how
                return algebra.strong(
                    self._snapshot(old, schema), self._chain(delta, schema), delta.encoding, schema, how, self.functions
                )

    def shared(self, reading: Reading, weighed: bool) -> DataFrame:
        """As `open`, or as `weighed`, for what views read.

        Several read the same, making the frame may take longer than a job of it, and blocks never change: frames are
        kept. Strong deltas come as stored: rows may go and come that do not change.
        """
        self._verification.check(reading.blocks)
        for block in reading.blocks:
            if block.external is not None:
                refuse_changed(block.external)
        return self._kept(reading, weighed)

    def _shared(self, reading: Reading, weighed: bool) -> DataFrame:
        if weighed and isinstance(reading, Snapshot):
            return self.weighed(reading)
        if isinstance(reading, Chain) and isinstance(reading.encoding, Changes) and reading.deltas and reading.schema:
            return reduce(DataFrame.unionByName, self._weights(reading.deltas, reading.schema))
        return self.open(reading)

    def weighed(self, reading: Snapshot) -> DataFrame:
        """The rows of a snapshot as rows with weights that add up to them: its base and its strong deltas as stored.

        Args:
            reading: which blocks; deltas that are not strong are merged first.
        """
        schema = reading.schema
        if schema is None:
            raise BrokenInvariant("a channel without a schema was read")
        deltas = reading.deltas
        strong = tuple(takewhile(lambda block: isinstance(block.encoding, Append | Changes), reversed(deltas)))[::-1]
        before = replace(reading, deltas=deltas[: len(deltas) - len(strong)])
        parts = [self.as_changes(self.open(before) if before.blocks else self._blocks.empty(schema))]
        return reduce(DataFrame.unionByName, [*parts, *self._weights(strong, schema)])

    def inserts(self, changes: DataFrame, schema: Schema) -> DataFrame:
        """The rows of a strong delta that is known to take none away."""
        return algebra.inserts(changes, schema)

    def as_delta(self, rows: DataFrame, encoding: Encoding, schema: Schema) -> DataFrame:
        """A relation as the delta that makes it of nothing."""
        wanted = delta_schema(encoding, schema)
        return jobs.completed(shaped(rows, schema), encoding, schema).select(*map(column, wanted.names))

    def completed(self, delta: DataFrame, encoding: Encoding, schema: Schema) -> DataFrame:
        """A delta as its maker gave it, with all control columns."""
        return jobs.completed(delta, encoding, schema)

    def relation(self, delta: DataFrame, encoding: Encoding, schema: Schema) -> DataFrame:
        """A delta to nothing as the relation that it makes: M(∅, Δ)."""
        made = jobs.completed(delta, encoding, schema)
        match encoding:
            case Append() | Increment():
                return shaped(made, schema)
            case Upsert(key) | Columns(key):
                there = jobs.undeleted(made, key) if "_deleted" in delta.columns else made
                return (
                    shaped(there, schema) if isinstance(encoding, Upsert) else algebra.inserted(there, encoding, schema)
                )
            case Changes():
                return algebra.repeated(made, schema)
            case Custom():
                how = strategy(None, (), self.sizes)
                return algebra.merge(self._blocks.empty(schema), made, encoding, schema, how, self.functions)

    def write(
        self,
        frame: DataFrame,
        *,
        name: BlockName,
        kind: Kind,
        schema: Schema,
        encoding: Encoding,
        expected: int | None,
        old: Snapshot | None,
        strong: bool = False,
        derived: bool = False,
        checks: tuple[Check, ...] = (),
    ) -> Block | None:
        """Write a block.

        Args:
            frame: rows that fit the relation (a base) or the encoding's delta (control columns may be absent).
            name: the block's name, which is that of its directory.
            kind: base or delta.
            schema: the relation's schema at the block's end.
            encoding: how the block's rows read.
            expected: how many bytes to reckon with; None if that is not known.
            old: the snapshot that a delta applies to, where it is known.
            strong: whether a delta is written with what it replaces, for readers of changes.
            derived: whether a delta is known to have each key once, and to change what it says; it may be strong then.
            checks: what the relation's rows must satisfy; those of `old` do.

        Returns:
            The block, or None if it changes nothing; then its files are of no use.

        Raises:
            KeyViolation: keys are null or occur twice.
            CheckFailed: rows violate a check.
            Busy: rows must be compared with those of a point that another run is still writing.
            UnreadableInput: a file that the rows come from cannot be read.
            StorageFailed: the block cannot be written.
        """
        keys = None
        for check in checks:
            refuse_unknown(check, schema.names)
        compared = across_rows(checks, encoding)
        if compared and old is None and not isinstance(kind, Base):
            raise _unsettled("rows must be unique")
        given = isinstance(encoding, Changes) and not isinstance(kind, Base) and not derived
        if given and old is None and key_of(encoding):
            raise _unsettled("keys must be unique")
        if not isinstance(kind, Base):
            if derived and WEIGHT[0] in frame.columns:
                encoding = Changes(key_of(encoding))
            else:
                frame = jobs.completed(frame, encoding, schema)
            if strong and old is not None and isinstance(encoding, Upsert | Increment | Columns):
                frame = shaped(frame, delta_schema(encoding, schema))
                if not derived and not isinstance(encoding, Increment):
                    keys = jobs.watched(frame, encoding.key)
                    frame = keys.rows
                frame = self._strengthened(frame, old, encoding, schema, expected)
                encoding = Changes(encoding.key)
        elif isinstance(encoding, Increment) and not derived:
            frame = algebra.amounted(frame, encoding)
        complete = Schema((*schema.columns, *schema_of(frame.schema).kept.columns))
        columns = complete if isinstance(kind, Base) else delta_schema(encoding, complete)
        layout = jobs.Layout(
            key=key_of(encoding),
            buckets=buckets_for(expected or 0, None, self.sizes) if isinstance(kind, Base) and key_of(encoding) else 0,
            single=expected is not None and expected <= self.sizes.single,
            trusted=derived and not isinstance(kind, Base),
        )
        rows = shaped(frame, columns)
        block = self._written(rows, name, kind, schema, columns, encoding, layout, keys, of_rows(checks))
        return self._accepted(block, old, derived, given, compared)

    def register(
        self,
        external: External,
        *,
        name: BlockName,
        kind: Kind,
        schema: Schema,
        encoding: Encoding,
        old: Snapshot | None,
        checks: tuple[Check, ...] = (),
    ) -> Block | None:
        """Make files that lie outside of the warehouse a block, without copying them; see `write`.

        Args:
            external: the files, which have the columns of the relation (a base) or of the encoding's delta.
            name: the block's name.
            kind: base or delta.
            schema: the relation's schema at the block's end.
            encoding: how the block's rows read.
            old: the snapshot that a delta applies to, where it is known.
            checks: what the relation's rows must satisfy; those of `old` do.

        Returns:
            The block, or None if it changes nothing.

        Raises:
            KilonovaError: what `write` raises.
            UnreadableInput: a file cannot be read, or changed meanwhile.
        """
        for check in checks:
            refuse_unknown(check, schema.names)
        compared = across_rows(checks, encoding)
        whole = isinstance(kind, Base)
        if compared and old is None and not whole:
            raise _unsettled("rows must be unique")
        given = isinstance(encoding, Changes) and not whole
        if given and old is None and key_of(encoding):
            raise _unsettled("keys must be unique")
        files = external.files
        block = Block(
            number=name.number,
            kind=kind,
            schema=schema,
            encoding=encoding,
            columns=schema if whole else delta_schema(encoding, schema),
            buckets=0,
            statistics=Statistics(rows=0, bytes=sum(seen.size for _, seen in files), files=len(files)),
            external=external,
            suffix=name.suffix,
            stored=(),
        )
        rows, removals = jobs.inspect(_external(self.spark, block), kind, encoding, schema, of_rows(checks))
        refuse_changed(external)
        removals = 0 if isinstance(encoding, Append) and not whole else removals
        block = replace(block, statistics=replace(block.statistics, rows=rows, removals=removals))
        return self._accepted(block, old, False, given, compared)

    def _accepted(
        self, block: Block, old: Snapshot | None, derived: bool, given: bool, compared: Sequence[Unique]
    ) -> Block | None:
        """Return a block that applies to the snapshot before it, or None if it changes nothing.

        Args:
            block: the block.
            old: the snapshot.
            derived: whether it is known to apply, and to change something.
            given: whether it is a strong delta that may not apply.
            compared: the columns whose values must be unique in the relation.
        """
        if not isinstance(block.kind, Base):
            if block.statistics.rows == 0:
                return None
            if given and (key_of(block.encoding) or block.statistics.removals):
                self._check_strong(block, old)
            if old is not None and not derived and isinstance(block.encoding, Upsert | Columns | Custom):
                changed = self._compared(block, old)
                if changed is None:
                    return None
                block = changed
        for unique in compared:
            self._refuse_repeated(unique, block, old)
        return block

    def copied(self, block: Block, name: BlockName, kind: Kind) -> Block | None:
        """A block with the rows of another, of the same kind, that another run may take away meanwhile.

        Args:
            block: the other one.
            name: the name of the block to be.
            kind: between which points it stands.

        Returns:
            The block; None if the other one has gone.

        Raises:
            StorageFailed: it cannot be copied.
        """
        self.storage.copy(block.name, name)
        stored, told = self.storage.recorded(name), block.statistics
        found = (sum(file.rows for file in stored), sum(file.size for file in stored), len(stored))
        if found != (told.rows, told.bytes, told.files) or block.stored not in (None, stored):
            return None
        return replace(block, number=name.number, suffix=name.suffix, kind=kind, stored=stored, manifest=None)

    def verify(self, snapshot: Snapshot, checks: tuple[Check, ...]) -> None:
        """Refuse checks that the rows which are there do not satisfy.

        Raises:
            CheckFailed: rows violate one.
            DeclarationError: one names a column that is not there.
            QueryError: Spark cannot make sense of a condition.
        """
        assert snapshot.schema is not None
        for check in checks:
            refuse_unknown(check, snapshot.schema.names)
        rows, alone = self.open(snapshot), of_rows(checks)
        if alone:
            metrics = on.metrics(rows, alone, snapshot.schema, F.lit(1))
            found = jobs.fetch(rows.select(*(metric.alias(name) for name, metric in metrics.items())))
            on.refuse(dict(zip(metrics, found[0], strict=True)), alone)
        for unique in across_rows(checks, snapshot.encoding):
            on.refuse_repeated(unique, jobs.fetch(on.repeated(rows, unique, None)))

    def _refuse_repeated(self, check: Unique, block: Block, old: Snapshot | None) -> None:
        """Refuse a block after which values are repeated that must not be."""
        schema, encoding = block.schema, block.encoding
        if isinstance(block.kind, Base):
            after = Snapshot(at=block.end, schema=schema, encoding=encoding, base=block, deltas=())
            touched = None
        else:
            assert old is not None
            after = replace(old, at=block.end, schema=schema, deltas=(*old.deltas, block))
            delta = Chain(start=old.at, end=block.end, schema=schema, encoding=encoding, deltas=(block,))
            added = self.open(delta).where(on.weight(block.kind, encoding) > 0)
            touched = on.values(added, check).distinct()
            touched = F.broadcast(touched) if block.statistics.bytes <= self.sizes.broadcast else touched
        on.refuse_repeated(check, jobs.fetch(on.repeated(self.open(after), check, touched)))

    def _strengthened(
        self, delta: DataFrame, old: Snapshot, encoding: Upsert | Increment | Columns, schema: Schema, size: int | None
    ) -> DataFrame:
        """A delta with what it replaces.

        Args:
            delta: all its columns, each key once.
            old: the snapshot that it applies to.
            encoding: how it reads.
            schema: the relation's schema after it.
            size: how many bytes it has, about.
        """
        before = self.open(replace(old, schema=schema))
        whole = sum(block.statistics.bytes for block in old.blocks)
        alone = size is not None and size + whole <= self.sizes.single
        if alone:
            before, delta = before.coalesce(1).hint("merge"), delta.coalesce(1)
        elif whole <= self.sizes.broadcast:
            before = F.broadcast(before)
        elif old.base is not None and self._blocks.aligned(old.base):
            delta = delta.repartition(old.base.buckets, *map(column, key_of(encoding)))
            before = before.hint("merge")
        return algebra.replaced(before, delta, encoding, schema, together=alone)

    def compact(self, snapshot: Snapshot, name: BlockName) -> Block:
        """Write a snapshot down as a base, bucket by bucket where it is merged that way.

        Args:
            snapshot: the snapshot; the contents of its blocks are verified, as what is damaged would be so for good.
            name: the name of the new block.

        Raises:
            BlockDamaged: a block is not as it was written.
            StorageFailed: the block cannot be written.
        """
        assert snapshot.schema is not None
        self._verification.check(snapshot.blocks, checksums=True)
        encoding, base = snapshot.encoding, snapshot.base
        expected = sum(block.statistics.bytes for block in snapshot.blocks)
        aligned = base is not None and len(_runs(snapshot.deltas)) == 1 and self._blocks.aligned(base)
        buckets = buckets_for(expected, base if aligned else None, self.sizes) if key_of(encoding) else 0
        layout = jobs.Layout(
            key=key_of(encoding),
            buckets=buckets,
            single=expected <= self.sizes.single,
            trusted=True,
            arranged=aligned and base is not None and 0 < buckets == base.buckets,
        )
        alone = together(snapshot.blocks, self.sizes)
        columns = snapshot.complete.schema
        assert columns is not None
        rows = self.open(snapshot.complete) if alone else self._snapshot(snapshot, columns, copied=True)
        kind = Base(snapshot.at)
        try:
            return self._written(rows, name, kind, snapshot.schema, columns, encoding, layout)
        except jobs.Misplaced:
            again = replace(layout, arranged=False)
            self.storage.delete([name])
            return self._written(rows, name, kind, snapshot.schema, columns, encoding, again)

    def merge_deltas(self, deltas: tuple[Block, ...], name: BlockName) -> Block:
        """Write neighbouring deltas as one.

        Args:
            deltas: deltas that only add rows, in order, all of the same columns; what is in them is verified.
            name: the name of the new block.

        Raises:
            BlockDamaged: a block is not as it was written.
            StorageFailed: the block cannot be written.
        """
        self._verification.check(deltas, checksums=True)
        first, size = deltas[0], sum(block.statistics.bytes for block in deltas)
        blocks = self._blocks.by_one() if together(deltas, self.sizes) else self._blocks
        layout = jobs.Layout(key=(), buckets=0, single=size <= self.sizes.single, trusted=True, arranged=False)
        kind = Delta(first.start, deltas[-1].end)
        rows = blocks.plain(deltas, first.columns)
        return self._written(rows, name, kind, first.schema, first.columns, first.encoding, layout)

    def _written(
        self,
        rows: DataFrame,
        name: BlockName,
        kind: Kind,
        schema: Schema,
        columns: Schema,
        encoding: Encoding,
        layout: jobs.Layout,
        keys: jobs.Watched | None = None,
        checks: Sequence[RowCheck] = (),
    ) -> Block:
        if not isinstance(kind, Base) and not isinstance(encoding, Append):
            rows = rows.withColumn(NUMBER, _uncompiled(name.number))
        seen = jobs.write(rows, self.storage.path(name), kind, encoding, schema, layout, keys, checks)
        stored = self.storage.recorded(name)
        size = sum(file.size for file in stored)
        # Spark moves rows once more to group by floating-point keys; and few rows may come of large inputs.
        buckets = 0 if seen.misplaced or 4 * size < self.sizes.bucketed else layout.buckets
        if buckets:
            stored = self.storage.name_buckets(name, stored)
        removals = 0 if isinstance(encoding, Append) and not isinstance(kind, Base) else seen.removals
        return Block(
            number=name.number,
            kind=kind,
            schema=schema,
            encoding=encoding,
            columns=columns,
            buckets=buckets,
            statistics=Statistics(
                rows=sum(file.rows for file in stored), bytes=size, files=len(stored), removals=removals
            ),
            suffix=name.suffix,
            stored=stored,
        )

    def _compared(self, block: Block, old: Snapshot) -> Block | None:
        """The block, with what it removes where that was counted, or None if it changes nothing."""
        if not compares_whole(old, self.sizes) and self._differs_early(block, old):
            return block
        effect = self._effect(block, old)
        return replace(block, statistics=replace(block.statistics, removals=effect.removed)) if effect.any else None

    def _differs_early(self, block: Block, old: Snapshot) -> bool:
        """Whether an upsert changes something in a few of its keys; False where they are hard to look up."""
        encoding, schema = block.encoding, block.schema
        deltas = (*old.deltas, block)
        if not isinstance(encoding, Upsert) or any(delta.encoding != encoding for delta in deltas):
            return False
        if block.external is not None:  # few rows are not found faster than all
            return False
        known = [name for name in encoding.key if schema.type_of(name).partition("(")[0] in _LOOKED_UP]
        some = self.storage.first_rows(block.name, known, _FEW) if known else []
        if not some:
            return False
        few = self._blocks.where(reduce(and_, (column(name).isin([row[name] for row in some]) for name in known)))
        rows = shaped(few.deltas(deltas, schema), schema, ["_deleted", POSITION])
        if old.base is not None:
            base = shaped(few.base(old.base, schema), schema)
            rows = rows.unionByName(base.withColumns({"_deleted": F.lit(False), POSITION: F.lit(-1)}))
        found = jobs.fetch(rows.select(F.struct(*map(column, encoding.key)), *map(column, rows.columns)))
        return differ_at_end([(row[0], None if row[-2] else row[1:-2], row[-1]) for row in found])

    def _effect(self, block: Block, old: Snapshot) -> jobs.Effect:
        """How many rows a delta adds to the snapshot before it and takes away."""
        schema, encoding = block.schema, block.encoding
        delta = Chain(start=old.at, end=block.end, schema=schema, encoding=encoding, deltas=(block,))
        size = block.statistics.bytes
        if isinstance(encoding, Upsert) and all(other.encoding == encoding for other in old.deltas):
            counts = algebra.upserted(
                None if old.base is None else shaped(self._blocks.base(old.base, schema), schema),
                self._blocks.deltas(old.deltas, schema) if old.deltas else None,
                self.open(delta),
                encoding.key,
                schema,
                broadcast=size <= self.sizes.broadcast,
                single=size + sum(other.statistics.bytes for other in old.blocks) <= self.sizes.single,
            )
        elif old.blocks:
            counts = algebra.counted(self.open(Strong(old=old, delta=delta)))
        else:
            made = self.relation(self.open(delta), encoding, schema)
            counts = algebra.counted(self.as_changes(made))
        return jobs.effect(counts)

    def _check_strong(self, block: Block, old: Snapshot | None) -> None:
        """Refuse a strong delta that does not apply to the snapshot before it; only rows that it touches are read.

        Raises:
            Busy: the snapshot is not known yet.
            EncodingError: it takes away rows which are not there.
            KeyViolation: a key would be there twice.
        """
        if old is None:
            raise _unsettled("rows that are taken away must be there")
        schema, key = block.schema, key_of(block.encoding)
        delta = self.open(Chain(start=old.at, end=block.end, schema=schema, encoding=Changes(), deltas=(block,)))
        before = self._snapshot(old, schema)
        size = sum(each.statistics.bytes for each in (block, *old.blocks))
        if size > self.sizes.single:
            touched = delta if key else delta.where(column("_weight") < 0)
            before = algebra.among(
                before, touched, key or schema.names, broadcast=block.statistics.bytes <= self.sizes.broadcast
            )
        wrong = jobs.fetch(algebra.misapplied(self.as_changes(before), delta, key, schema), 1)
        if not wrong:
            return
        *values, weight = wrong[0]
        row = dict(zip(schema.names, values, strict=True))
        if weight < 0:
            raise EncodingError(
                f"a row is retracted more often than it is there: {row}",
                hint="A delta must apply to the rows before it",
            )
        raise KeyViolation(
            f"the delta leaves a key with two rows, one of them {row}",
            column=", ".join(key),
            hint="Retract the row that it replaces, in the same delta",
        )

    def as_changes(self, rows: DataFrame) -> DataFrame:
        """Rows as a strong delta that adds them."""
        return algebra.strong(rows, rows, Append(), Schema(()), Strategy.SHUFFLED, self.functions)

    def probe(self) -> None:
        """Have Spark do something small.

        Raises:
            SparkUnavailable: it does nothing any more.
        """
        try:
            jobs.fetch(self.spark.range(1).toDF("n"))
        except PySparkException as error:
            raise SparkUnavailable(f"Spark carries nothing out: {error}", hint="Try again") from error

    def delete(self, blocks: Iterable[BlockName]) -> None:
        """Delete the files of blocks."""
        gone = list(blocks)
        self._blocks.forget(gone)
        self.storage.delete(gone)

    def blocks(self) -> list[BlockName]:
        """The names of the blocks that have a directory."""
        return self.storage.blocks()

    def seal(self, block: BlockName, manifest: str) -> None:
        """Put a manifest beside the files of a block, and have all of them outlast a loss of power."""
        self.storage.seal(block, manifest)

    def mark_committed(self, blocks: Iterable[BlockName]) -> None:
        """Put a mark beside the manifests of blocks that a catalog has published."""
        self.storage.mark_committed(blocks)

    def keep_log(self, run: int, day: date, text: str) -> None:
        """Write the log of a run that began on a day, in place of what is there."""
        self.storage.keep_log(run, day, text)

    def delete_logs(self, before: date) -> None:
        """Delete the logs of the runs that began before a day."""
        self.storage.delete_logs(before)

    def _snapshot(self, reading: Snapshot, schema: Schema, *, copied: bool = False) -> DataFrame:
        base, deltas = reading.base and reading.base.seen_as(schema), reading.deltas
        whole = self._blocks.empty(schema) if base is None else shaped(self._blocks.base(base, schema), schema)
        if base is not None and isinstance(reading.encoding, Increment):
            absent = [item for item in schema.columns if item.name not in base.columns.names]
            whole = whole.withColumns({item.name: F.lit(0).cast(item.type) for item in absent}) if absent else whole
        here = base
        for run in _runs(deltas):
            encoding = merged_as(run[0].encoding)
            if isinstance(encoding, Append):
                added = self._blocks.plain(run, schema)
                whole = added if here is None and run[0] is deltas[0] else whole.unionByName(added)
                here = None
                continue
            how = Strategy.TOGETHER if self._blocks.together else strategy(here, run, self.sizes, copied=copied)
            if isinstance(encoding, Upsert) and how is Strategy.BROADCAST:
                whole = algebra.overwritten(whole, self._upserts(run, schema), encoding.key, schema)
                here = None
                continue
            buckets = here.buckets if here is not None and how is Strategy.ALIGNED else 0
            link = Chain(start=0, end=run[-1].end, schema=schema, encoding=encoding, deltas=run)
            if isinstance(encoding, Custom) and len(run) > 1:
                own = delta_schema(encoding, schema)
                chained = shaped(self._blocks.deltas(run, own), own, [POSITION])
            else:
                chained = self._chain(link, schema, buckets)
            if all(isinstance(block.encoding, Changes) and not block.removes for block in run):
                added = algebra.repeated(self._chain(replace(link, encoding=Changes()), schema), schema)
                whole = added if here is None and run[0] is deltas[0] else whole.unionByName(added)
                here = None
                continue
            whole = algebra.merge(whole, chained, encoding, schema, how, self.functions)
            here = None
        return whole

    def _chain(self, reading: Chain, schema: Schema, buckets: int = 0) -> DataFrame:
        """Deltas as one, spread like a base that has buckets: else Spark may rather move the base to the delta."""
        deltas, encoding = reading.deltas, reading.encoding
        wanted = delta_schema(encoding, schema)
        if not deltas:
            return self._blocks.empty(wanted)
        if isinstance(encoding, Append):
            return self._blocks.plain(deltas, schema)
        if isinstance(encoding, Changes) and any(block.encoding != encoding for block in deltas):
            return self._mixed(deltas, schema)
        rows = (self._upserts if isinstance(encoding, Upsert) else self._blocks.deltas)(deltas, wanted)
        if buckets:
            rows = rows.repartition(buckets, *map(column, key_of(encoding)))
        if len(deltas) == 1 and deltas[0].encoding == encoding and deltas[0].columns == wanted:
            return rows.select(*map(column, wanted.names))
        return algebra.chain(rows, encoding, schema, self.functions).select(*map(column, wanted.names))

    def _upserts(self, deltas: Sequence[Block], schema: Schema) -> DataFrame:
        """The rows of upserts, and of strong deltas over the same key as those of upserts, with their position."""
        rows = self._blocks.deltas(deltas, schema)
        return algebra.as_upserts(rows) if any(isinstance(block.encoding, Changes) for block in deltas) else rows

    def _mixed(self, deltas: Sequence[Block], schema: Schema) -> DataFrame:
        """Append and changes blocks as one strong delta."""
        whole = reduce(DataFrame.unionByName, self._weights(deltas, schema))
        effective = len(deltas) == 1 and not deltas[0].columns.kept.columns
        if effective or all(isinstance(block.encoding, Append) for block in deltas):
            return whole
        return algebra.chain(whole, Changes(), schema, self.functions)

    def _weights(self, deltas: Sequence[Block], schema: Schema) -> list[DataFrame]:
        """The rows of append and changes blocks, with their weights."""
        return [
            self.as_changes(self._blocks.plain(run, schema))
            if isinstance(run[0].encoding, Append)
            else shaped(self._blocks.deltas(run, schema), schema, ["_weight"])
            for run in _runs(tuple(deltas))
        ]


def _unsettled(why: str) -> Busy:
    return Busy(f"another run is writing the channel, and {why}", hint="Try again when it has ended")


def _external(spark: SparkSession, block: Block) -> DataFrame:
    """Rows of a block that was registered in place, with its columns."""
    rows = read_external(spark, block)
    if not isinstance(block.kind, Base):
        rows = jobs.completed(rows, block.encoding, block.schema)
    return shaped(rows, block.columns)


def _uncompiled(number: int) -> Column:
    """A number that is no part of the code that Spark makes of a query, so that the same code serves the next block."""
    return F.element_at(F.array(F.lit(number).cast("bigint")), F.spark_partition_id() * 0 + 1)


def _runs(deltas: tuple[Block, ...]) -> list[tuple[Block, ...]]:
    """Deltas in stretches of those that are merged alike."""
    return [tuple(run) for _, run in groupby(deltas, lambda block: merged_as(block.encoding))]
