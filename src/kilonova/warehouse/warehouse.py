"""Interface to the rows: turns read plans into DataFrames, and DataFrames into blocks.

`open` is lazy; `write` is one Spark job per block (and one or two more where an upsert is compared with the rows that
it replaces). The result of a read plan is defined by `kilonova.testing.reference`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import date
from functools import lru_cache, reduce
from itertools import groupby, takewhile

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kilonova.errors import BrokenInvariant, Conflict, EncodingError, KeyViolation, SparkUnavailable
from kilonova.model.block import Base, Block, BlockName, Delta, External, Statistics, StoredFile
from kilonova.model.check import Check, Unique, across_rows, check_columns_exist, of_rows
from kilonova.model.column_mapping import ColumnMapping
from kilonova.model.encoding import (
    DELETED,
    WEIGHT,
    Append,
    Changes,
    Columns,
    Custom,
    Encoding,
    Increment,
    Removal,
    Upsert,
    delta_schema,
    key_of,
    merge_encoding,
)
from kilonova.model.ingest_columns import FILE, INGESTED
from kilonova.model.read_plan import ChangesRead, DeltaRead, DiffRead, KeyLookup, ReadPlan, SnapshotRead
from kilonova.model.schema import Schema
from kilonova.model.write_plan import WritePlan
from kilonova.schedule.layout import LayoutThresholds, Strategy, buckets_for, strategy, tasks_for, together
from kilonova.warehouse import algebra, job_tracking, jobs
from kilonova.warehouse import checks as on
from kilonova.warehouse.arrow_types import comparable_types
from kilonova.warehouse.blocks import POSITION, Blocks, column, conform, renamed, schema_of, typed
from kilonova.warehouse.file_readers import check_files_unchanged, read_external
from kilonova.warehouse.frame_views import FrameViews
from kilonova.warehouse.guards import Misplaced
from kilonova.warehouse.key_lookup import KeyReader, can_look_up
from kilonova.warehouse.local_checks import key_metrics
from kilonova.warehouse.local_merge import merges_by_arrow, write_merged, write_merged_deltas
from kilonova.warehouse.local_read import SmallReader, derived_rows, is_small_reading, weighted
from kilonova.warehouse.local_write import fetch_limit, fetch_rows, write_fetched
from kilonova.warehouse.shared_evaluation import evaluate_once
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.task_merge import TaskMerge
from kilonova.warehouse.upsert_comparison import UpsertComparison
from kilonova.warehouse.verification import Verification

_LOCAL = re.compile(r"local(\[|$)")
"""Master of a session in local mode; that of a cluster on this machine is `local-cluster[…]`."""

_SHARED = 256
"""Number of read plans whose frames are cached for queries."""

_VALUES = 64
"""Number of those whose frames have their rows, which take up to 4 MB of memory each."""

_FOUND = 16
"""Number of frames of rows looked up by key that are cached, which take up to 16 MB of memory each."""


class Warehouse:
    """Blocks of one catalog, in one Spark session.

    Args:
        spark: the session.
        storage: the storage of the blocks.
        identity: the catalog's identity.
        functions: returns the per-key functions of custom encodings by name.
        sizes: the thresholds between physical strategies.
        checksums: whether to verify the contents of blocks when they are first read, besides names and sizes.
    """

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        identity: str,
        functions: algebra.Functions,
        sizes: LayoutThresholds,
        *,
        checksums: bool = False,
    ) -> None:
        self.spark = spark
        self.storage = storage
        self.sizes = sizes
        self.functions = functions
        self._verification = Verification(storage, checksums=checksums)
        self._blocks = Blocks(spark, storage, identity, _external, self._verification)
        self._small = SmallReader(spark, storage)
        self._by_key = KeyReader(storage)
        self._tasks = TaskMerge(spark, storage)
        self._held: dict[ReadPlan, DataFrame] = {}
        self._large: set[Schema] = set()  # columns of results that were larger than expected: they will be again
        self._views = FrameViews(spark)
        self._empty = lru_cache(maxsize=_SHARED)(lambda schema: self._views.keep(self._blocks.empty(schema)))
        self._kept = lru_cache(maxsize=_SHARED)(self._shared)
        self._kept_values = lru_cache(maxsize=_VALUES)(self._shared_values)
        self._kept_rows = lru_cache(maxsize=_FOUND)(self._found_rows)

    def counting(self, name: str) -> AbstractContextManager[job_tracking.JobTracker | job_tracking.ConnectOperations]:
        """Track this thread's Spark work within a `with` block, under this name in the Spark UI."""
        return job_tracking.track_jobs(self.spark, name)

    def is_frame(self, item: object) -> bool:
        """Return whether an object is a DataFrame."""
        return isinstance(item, DataFrame)

    def schema_of(self, frame: DataFrame) -> Schema:
        """Return the schema of a DataFrame."""
        return schema_of(frame.schema)

    def sql(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Return the result of a SQL query over DataFrames, which it names in braces."""
        return self._views.sql(text, frames)

    def evaluated_once(
        self, frames: Sequence[DataFrame], inputs: Iterable[DataFrame], name: Callable[[], BlockName]
    ) -> AbstractContextManager[tuple[DataFrame, ...]]:
        """Make frames consistent with each other until the end of the `with` block, whatever code they share.

        Args:
            frames: the frames.
            inputs: the deterministic inputs of the frames.
            name: names a block whose directory stores the shared results.
        """
        return evaluate_once(self.spark, frames, inputs, lambda: self.storage.path(name()))

    @contextmanager
    def holding(self, readings: Iterable[ReadPlan]) -> Iterator[None]:
        """Cache the rows of some read plans, after their first use, until the end of the `with` block.

        Several runs with the same read plan then read it once (Nova, section 4.2).
        """
        frames = {reading: self.open(reading).persist() for reading in readings}
        self._held |= frames
        try:
            yield
        finally:
            for reading, frame in frames.items():
                del self._held[reading]
                frame.unpersist()

    def open(self, reading: ReadPlan) -> DataFrame:
        """Return the rows of a read plan: those of the relation, or of a delta with its control columns.

        Args:
            reading: the blocks to combine, and how.

        Raises:
            BlockDamaged: a block is not as it was written.
        """
        self._verification.check(reading.blocks)
        if (held := self._held.get(reading)) is not None:
            return held
        if isinstance(reading, SnapshotRead) and reading.schema is not None and not reading.blocks:
            return self._empty(reading.schema)
        small = self._small.open(reading) if self.sizes.local_check_max > 0 else None
        return self._open_files(reading) if small is None else small

    def _open_files(self, reading: ReadPlan) -> DataFrame:
        schema = reading.schema
        if schema is None:
            raise BrokenInvariant("a channel without a schema was read")
        if together(reading.blocks, self.sizes):
            alone = copy.copy(self)
            alone._blocks = self._blocks.by_one()
            return alone._opened(reading, schema)
        return self._opened(reading, schema)

    def open_apart(self, reading: ReadPlan) -> tuple[DataFrame, object]:
        """Return the rows of a read plan, as `open`, and an object that lives as long as they are used.

        The rows stay in their files. The object is a copy of the session, which Spark passes on to every frame derived
        from a frame. A Spark Connect client closes with the first copy that is deleted: there, the object is the frame
        itself.
        """
        self._verification.check(reading.blocks)
        if type(self.spark) is not SparkSession:
            frame = self._open_files(reading)
            return frame, frame
        apart = copy.copy(self)
        apart.spark = copy.copy(self.spark)
        apart._blocks = self._blocks.on(apart.spark)
        return apart._open_files(reading), apart.spark

    def _opened(self, reading: ReadPlan, schema: Schema) -> DataFrame:
        match reading:
            case SnapshotRead():
                return self._snapshot(reading, schema)
            case DeltaRead():
                return self._chain(reading, schema)
            case DiffRead(old=old, new=new, encoding=encoding):
                before, after = self._former(old, schema), self._snapshot(new, schema)
                if not old.blocks and not isinstance(encoding, Custom):
                    return self.as_delta(after, encoding, schema)
                return algebra.diff(before, after, encoding, schema, self.functions)
            case ChangesRead(old=old, delta=delta):
                small = sum(block.statistics.bytes for block in delta.deltas) <= self.sizes.broadcast_max
                how = Strategy.BROADCAST if small else Strategy.SHUFFLED
                how = Strategy.TOGETHER if self._blocks.together else how
                return algebra.strong(
                    self._snapshot(old, schema), self._chain(delta, schema), delta.encoding, schema, how, self.functions
                )

    def _former(self, old: SnapshotRead, schema: Schema) -> DataFrame:
        """Return an earlier snapshot in columns of now: if it had another key, its blocks are merged by that before."""
        own = old.schema
        if own is None or all(block.has_key_of(schema) for block in old.blocks):
            return self._snapshot(old, schema)
        names, kept = own.new_names(schema), own.without(*own.replaced_in(schema)).names
        rows = self._snapshot(old, own).select(*(column(name).alias(names.get(name, name)) for name in kept))
        return conform(rows, schema)

    def shared(self, reading: ReadPlan, weighed: bool, lookup: KeyLookup | None = None) -> DataFrame:
        """Return the rows of a read plan for views, as `open` or `weighed`.

        Frames are cached: several views read the same plan, building a frame may take longer than a job over it, and
        blocks never change. Strong deltas are read as stored: they may remove and add unchanged rows.

        Args:
            reading: the read plan.
            weighed: whether to return weighted rows that add up to it.
            lookup: which rows are enough; None for all. They are read by key in this process where that pays.
        """
        self._verification.check(reading.blocks)
        if lookup is not None and isinstance(reading, SnapshotRead) and self._looks_up(reading, lookup):
            rows = self._kept_rows(reading, weighed, lookup)
            if rows is not None:
                return rows
        for block in reading.blocks:
            if block.external is not None:
                check_files_unchanged(block.external)
        here = self.sizes.local_check_max > 0 and is_small_reading(reading)
        values = self._kept_values(reading, weighed) if here else None
        return self._kept(reading, weighed) if values is None else values

    def _looks_up(self, snapshot: SnapshotRead, lookup: KeyLookup) -> bool:
        """Return whether rows of a snapshot are looked up by key in this process."""
        return self._is_near(snapshot.blocks) and can_look_up(snapshot, lookup, self.sizes.lookup_min)

    def _found_rows(self, snapshot: SnapshotRead, weighed: bool, lookup: KeyLookup) -> DataFrame | None:
        rows = self._by_key.rows(snapshot, lookup)
        if rows is None or snapshot.schema is None:
            return None
        return self._views.keep(derived_rows(self.spark, weighted(rows) if weighed else rows, snapshot.schema))

    def _shared_values(self, reading: ReadPlan, weighed: bool) -> DataFrame | None:
        values = self._small.shared(reading, weighed)
        return None if values is None else self._views.keep(values)

    def _shared(self, reading: ReadPlan, weighed: bool) -> DataFrame:
        return self._views.keep(self._as_stored(reading, weighed))

    def _as_stored(self, reading: ReadPlan, weighed: bool) -> DataFrame:
        if weighed and isinstance(reading, SnapshotRead):
            return self.weighed(reading)
        if (
            isinstance(reading, DeltaRead)
            and isinstance(reading.encoding, Changes)
            and reading.deltas
            and reading.schema
        ):
            return reduce(DataFrame.unionByName, self._weights(reading.deltas, reading.schema))
        return self.open(reading)

    def weighed(self, reading: SnapshotRead) -> DataFrame:
        """Return a snapshot as weighted rows that sum up to it: its base and its strong deltas as stored.

        Args:
            reading: the blocks; deltas that are not strong are merged first.
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
        """Return the rows of a strong delta that is known to remove none."""
        return algebra.inserts(changes, schema)

    def as_delta(self, rows: DataFrame, encoding: Encoding, schema: Schema) -> DataFrame:
        """Return a relation as the delta that creates it from the empty relation."""
        wanted = delta_schema(encoding, schema)
        return jobs.with_control_columns(conform(rows, schema), encoding, schema).select(*map(column, wanted.names))

    def completed(self, delta: DataFrame, encoding: Encoding, schema: Schema) -> DataFrame:
        """Return a user's delta with all control columns."""
        return jobs.with_control_columns(delta, encoding, schema)

    def mapped(self, frame: DataFrame, mapping: ColumnMapping, schema: Schema, others: Sequence[str]) -> DataFrame:
        """Return ingested rows with the columns of a channel, as a mapping says, and some others.

        Args:
            frame: the rows.
            mapping: the mapping of their columns, except for the others.
            schema: the columns of the channel.
            others: names of further columns of the rows.
        """
        names = [name for name in frame.columns if name not in others]
        kept = ((name, target) for name, target in zip(names, mapping.targets, strict=True) if target is not None)
        return frame.select(
            *(column(name).alias(target) for name, target in kept),
            *(F.lit(value).cast(schema.type_of(name)).alias(name) for name, value in mapping.filled),
            *map(column, others),
        )

    def with_ingest_columns(self, frame: DataFrame, names: Sequence[str]) -> DataFrame:
        """Return ingested rows with these ingest columns; the time of the ingest is filled where it is null.

        Args:
            frame: the rows.
            names: the ingest columns that their channel has.
        """
        types = {name: "string" if name == FILE else "timestamp" for name in names}
        given = {name: column(name) if name in frame.columns else F.lit(None).cast(types[name]) for name in names}
        if INGESTED in given:
            given[INGESTED] = F.coalesce(given[INGESTED], F.current_timestamp())
        return frame.withColumns(given) if given else frame

    def newest(self, rows: DataFrame, key: Sequence[str], order: Sequence[str], size: int | None) -> DataFrame:
        """Return the last row of each key.

        Args:
            rows: the rows of a delta that is not checked yet.
            key: the columns of the key.
            order: the columns that order the rows of a key; positions of files are left out of the result.
            size: the approximate size of the rows in bytes; None if unknown.

        Returns:
            The rows; reading them raises KeyViolation if the order does not tell which of two rows is the last.
        """
        alone = size is not None and size <= self.sizes.single_task_max
        return jobs.newest(rows.coalesce(1) if alone else rows, key, order).drop(POSITION)

    def without_older(
        self,
        rows: DataFrame,
        key: Sequence[str],
        sequence_by: str,
        old: SnapshotRead,
        schema: Schema,
        size: int | None,
    ) -> DataFrame:
        """Return the rows of a delta except those of keys whose row before has a higher value in a column.

        Args:
            rows: the rows of an upsert without deletions.
            key: the columns of the key.
            sequence_by: the column; null is lower than any value.
            old: the snapshot that the delta applies to.
            schema: the relation's schema after the delta.
            size: the approximate size of the rows in bytes; None if unknown.
        """
        if not old.blocks:
            return rows
        delta, before, _ = self._beside(rows, old, key, schema, size)
        return algebra.without_older(delta, before, key, sequence_by)

    def relation(self, delta: DataFrame, encoding: Encoding, schema: Schema) -> DataFrame:
        """Return the relation that a delta creates from the empty one: M(∅, Δ)."""
        made = jobs.with_control_columns(delta, encoding, schema)
        match encoding:
            case Append() | Increment():
                return conform(made, schema)
            case Upsert(key) | Columns(key):
                there = jobs.undeleted(made, key) if "_deleted" in delta.columns else made
                return (
                    conform(there, schema)
                    if isinstance(encoding, Upsert)
                    else algebra.inserted(there, encoding, schema)
                )
            case Changes():
                return algebra.repeated(made, schema)
            case Custom():
                how = strategy(None, (), self.sizes)
                return algebra.merge(self._blocks.empty(schema), made, encoding, schema, how, self.functions)

    def write(self, frame: DataFrame, plan: WritePlan) -> Block | None:
        """Write a block.

        Args:
            frame: rows that fit the relation (a base) or the encoding's delta (control columns may be absent).
            plan: the plan.

        Returns:
            The block, or None if it changes nothing; its files are unused then.

        Raises:
            KeyViolation: keys are null or duplicate.
            CheckFailed: rows violate a check.
            Conflict: rows must be compared with those of a point that another run is still writing.
            InputError: a file that the rows come from cannot be read.
            StorageFailed: the block cannot be written.
        """
        _check_comparable(plan)
        frame, encoding, keys = self._encoded(frame, plan)
        complete = Schema((*plan.schema.columns, *schema_of(frame.schema).state_columns.columns))
        columns = complete if plan.is_base else delta_schema(encoding, complete)
        key, expected = key_of(encoding), plan.expected
        small = expected is not None and expected <= self.sizes.local_check_max
        checked_later = bool(key) and small and comparable_types(plan.schema, key, as_key=True)
        layout = jobs.Layout(
            key=key,
            buckets=buckets_for(expected or 0, None, self.sizes) if plan.is_base and key else 0,
            tasks=tasks_for(expected, self.sizes, checked_later=checked_later),
            trusted=plan.derived and not plan.is_base,
            checked_later=checked_later,
        )
        block = self._written(frame, replace(plan, encoding=encoding), columns, layout, keys)
        return self._accepted(block, plan)

    def _encoded(self, frame: DataFrame, plan: WritePlan) -> tuple[DataFrame, Encoding, jobs.ObservedKeys | None]:
        """Return rows as they are stored, their encoding then, and the keys to be checked where they are read."""
        schema, encoding = plan.schema, plan.encoding
        if plan.is_base:
            if isinstance(encoding, Increment) and not plan.derived:
                frame = algebra.amounted(frame, encoding)
            return frame, encoding, None
        if plan.derived and WEIGHT[0] in frame.columns:
            return frame, Changes(key_of(encoding)), None
        if not isinstance(encoding, Upsert) or "_deleted" in frame.columns or plan.strong:  # else `_written` adds it
            frame = jobs.with_control_columns(frame, encoding, schema)
        if not plan.strong or plan.old is None or not isinstance(encoding, Upsert | Increment | Columns):
            return frame, encoding, None
        frame, keys = conform(frame, delta_schema(encoding, schema)), None
        if not plan.derived and not isinstance(encoding, Increment):
            keys = jobs.observe_keys(frame, encoding.key)
            frame = keys.rows
        return self._strengthened(frame, plan.old, encoding, schema, plan.expected), Changes(encoding.key), keys

    def register(self, external: External, plan: WritePlan) -> Block | None:
        """Register files outside of the warehouse as a block, without copying them; see `write`.

        Args:
            external: the files, which have the columns of the relation (a base) or of the encoding's delta.
            plan: the plan.

        Returns:
            The block, or None if it changes nothing.

        Raises:
            KilonovaError: any error of `write`.
            InputError: a file cannot be read, or has changed meanwhile.
        """
        _check_comparable(plan)
        files = external.files
        block = Block(
            number=plan.name.number,
            kind=plan.kind,
            schema=plan.schema,
            encoding=plan.encoding,
            columns=plan.schema if plan.is_base else delta_schema(plan.encoding, plan.schema),
            buckets=0,
            statistics=Statistics(rows=0, bytes=sum(seen.size for _, seen in files), files=len(files)),
            external=external,
            suffix=plan.name.suffix,
            stored=(),
        )
        rows, effect = jobs.inspect(_external(self.spark, block), plan)
        check_files_unchanged(external)
        block = replace(block, statistics=replace(block.statistics, rows=rows))
        return self._accepted(_with_effect(block, effect), plan)

    def _accepted(self, block: Block, plan: WritePlan) -> Block | None:
        """Return a block that applies to the snapshot before it, or None if it changes nothing."""
        old = plan.old
        if not plan.is_base:
            columns_only = plan.derived and old is not None and old.schema != plan.schema
            if block.statistics.rows == 0 and not columns_only:
                return None
            given = plan.is_strong_delta and not plan.derived
            if given and (key_of(block.encoding) or block.statistics.removals):
                self._check_strong(block, old)
            if old is not None and not plan.derived and isinstance(block.encoding, Upsert | Columns | Custom):
                changed = self._compared(block, old)
                if changed is None:
                    return None
                block = changed
        for unique in across_rows(plan.checks, plan.encoding):
            self._refuse_repeated(unique, block, old)
        return block

    def verify(self, snapshot: SnapshotRead, checks: tuple[Check, ...]) -> None:
        """Check that the existing rows satisfy the checks.

        Raises:
            CheckFailed: rows violate a check.
            DeclarationError: a check names an unknown column.
            QueryError: Spark cannot analyze a condition.
        """
        assert snapshot.schema is not None
        for check in checks:
            check_columns_exist(check, snapshot.schema.names)
        rows, alone = self.open(snapshot), of_rows(checks)
        if alone:
            metrics = on.metrics(rows, alone, snapshot.schema, F.lit(1))
            found = jobs.fetch(rows.select(*(metric.alias(name) for name, metric in metrics.items())))
            on.check_violations(dict(zip(metrics, found[0], strict=True)), alone)
        for unique in across_rows(checks, snapshot.encoding):
            on.check_repeated(unique, jobs.fetch(on.repeated(rows, unique, None)))

    def _refuse_repeated(self, check: Unique, block: Block, old: SnapshotRead | None) -> None:
        """Check that a block does not repeat values that must be unique."""
        schema, encoding = block.schema, block.row_encoding
        if isinstance(block.kind, Base):
            after = SnapshotRead(at=block.end, schema=schema, encoding=encoding, base=block, deltas=())
            touched = None
        else:
            assert old is not None
            after = replace(old, at=block.end, schema=schema, deltas=(*old.deltas, block))
            delta = DeltaRead(start=old.at, end=block.end, schema=schema, encoding=encoding, deltas=(block,))
            added = self.open(delta).where(on.weight(block.kind, encoding) > 0)
            touched = on.values(added, check).distinct()
            touched = F.broadcast(touched) if block.statistics.bytes <= self.sizes.broadcast_max else touched
        on.check_repeated(check, jobs.fetch(on.repeated(self.open(after), check, touched)))

    def _strengthened(
        self,
        delta: DataFrame,
        old: SnapshotRead,
        encoding: Upsert | Increment | Columns,
        schema: Schema,
        size: int | None,
    ) -> DataFrame:
        """Return a delta with the rows that it replaces.

        Args:
            delta: the delta with all its columns and unique keys.
            old: the snapshot that it applies to.
            encoding: its encoding.
            schema: the relation's schema after it.
            size: its approximate size in bytes.
        """
        delta, before, alone = self._beside(delta, old, encoding.key, schema, size)
        return algebra.replaced(before, delta, encoding, schema, together=alone)

    def _beside(
        self, delta: DataFrame, old: SnapshotRead, key: Sequence[str], schema: Schema, size: int | None
    ) -> tuple[DataFrame, DataFrame, bool]:
        """Return a delta and the snapshot before it, for a left join, and whether each is in one partition.

        Args:
            delta: the delta.
            old: the snapshot that it applies to.
            key: the columns by which they are joined.
            schema: the relation's schema after it.
            size: the delta's approximate size in bytes.
        """
        before = self.open(replace(old, schema=schema))
        whole = sum(block.statistics.bytes for block in old.blocks)
        alone = size is not None and size + whole <= self.sizes.single_task_max
        if alone:
            return delta.coalesce(1), before.coalesce(1).hint("merge"), alone
        if whole <= self.sizes.broadcast_max:
            before = F.broadcast(before)
        elif old.base is not None and self._blocks.aligned(old.base):
            delta = delta.repartition(old.base.buckets, *map(column, key))
            before = before.hint("merge")
        return delta, before, alone

    def compact(self, snapshot: SnapshotRead, name: BlockName) -> Block:
        """Write a snapshot as a base, bucket by bucket where it is merged that way.

        Upserts are merged in this process, or by Spark's Python workers if they have more than `sizes.local_check_max`
        and Spark is not in local mode.

        Args:
            snapshot: the snapshot; the contents of its blocks are verified, because damage would become permanent.
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
            tasks=tasks_for(expected, self.sizes),
            trusted=True,
            arranged=aligned and base is not None and 0 < buckets == base.buckets,
        )
        alone = together(snapshot.blocks, self.sizes)
        columns = snapshot.complete.schema
        assert columns is not None
        plan = WritePlan(name=name, kind=Base(snapshot.at), schema=snapshot.schema, encoding=encoding)
        if merges_by_arrow(snapshot, columns):
            if self._is_near(snapshot.blocks) and write_merged(self.storage, snapshot, columns, name, buckets):
                return self._block(plan, columns, self.storage.recorded(name), buckets, None)
            if base is not None and snapshot.deltas and 0 < base.buckets <= buckets:
                written = self._written_by_bucket(base, snapshot.deltas, columns, plan, buckets)
                if written is not None:
                    return written
        rows = self.open(snapshot.complete) if alone else self._snapshot(snapshot, columns, copied=True)
        try:
            return self._written(rows, plan, columns, layout)
        except Misplaced:
            self.storage.delete([name])
            return self._written(rows, plan, columns, replace(layout, arranged=False))

    def _is_near(self, blocks: Sequence[Block]) -> bool:
        """Return whether this process reads the rows of blocks, if it can, instead of Spark."""
        size = sum(block.statistics.bytes for block in blocks)
        return self.sizes.local_check_max > 0 and (size <= self.sizes.local_check_max or self._is_local_mode())

    def _written_by_bucket(
        self, base: Block | None, deltas: tuple[Block, ...], columns: Schema, plan: WritePlan, buckets: int
    ) -> Block | None:
        """Write upserts merged with a base, or with each other, in Spark's Python workers; None if they fail."""
        if self.sizes.local_check_max <= 0:
            return None
        files = self._tasks.write(base, deltas, columns, plan.name, buckets)
        if files is None:
            return None
        return self._block(plan, columns if plan.is_base else deltas[0].columns, files, buckets, None)

    def merge_deltas(self, deltas: tuple[Block, ...], base: Block | None, name: BlockName) -> Block:
        """Merge adjacent deltas into one, in the buckets of the base if they are upserts.

        Args:
            deltas: deltas in order, all appends or all upserts, with the same columns; their contents are verified.
            base: the base that they are read with; None if there is none.
            name: the name of the new block.

        Raises:
            BlockDamaged: a block is not as it was written.
            StorageFailed: the block cannot be written.
        """
        self._verification.check(deltas, checksums=True)
        first = deltas[0]
        kind = Delta(first.start, deltas[-1].end)
        plan = WritePlan(name=name, kind=kind, schema=first.schema, encoding=first.row_encoding)
        if not isinstance(first.encoding, Append):
            return self._merged_upserts(deltas, plan, 0 if base is None else base.buckets)
        blocks = self._blocks.by_one() if together(deltas, self.sizes) else self._blocks
        tasks = tasks_for(sum(block.statistics.bytes for block in deltas), self.sizes)
        layout = jobs.Layout(key=(), buckets=0, tasks=tasks, trusted=True)
        return self._written(blocks.plain(deltas, first.columns), plan, first.columns, layout)

    def _merged_upserts(self, deltas: tuple[Block, ...], plan: WritePlan, buckets: int) -> Block:
        """Write the last row of each key of a chain of upserts, tombstones included, laid out in buckets."""
        key, columns = key_of(plan.encoding), deltas[0].columns
        schema = columns.without(DELETED[0])
        seen = [block.statistics for block in deltas]
        net = [each.net_rows for each in seen if each.net_rows is not None]
        removals = 0 if all(each.removals == 0 for each in seen) else None
        net_rows = sum(net) if len(net) == len(seen) else None
        whole = SnapshotRead(at=deltas[-1].end, schema=schema, encoding=plan.encoding, base=None, deltas=deltas)
        merged: Block | None = None
        if merges_by_arrow(whole, schema):
            near = self._is_near(deltas)
            stored = write_merged_deltas(self.storage, deltas, schema, plan.name, buckets) if near else None
            if stored is not None:
                merged = self._block(plan, columns, stored, buckets, None)
            elif buckets:
                merged = self._written_by_bucket(None, deltas, schema, plan, buckets)
        if merged is not None:
            return replace(merged, statistics=replace(merged.statistics, removals=removals, net_rows=net_rows))
        link = DeltaRead(start=0, end=whole.at, schema=schema, encoding=plan.encoding, deltas=deltas)
        tasks = None if buckets else tasks_for(sum(block.statistics.bytes for block in deltas), self.sizes)
        layout = jobs.Layout(key=key, buckets=buckets, tasks=tasks, trusted=True)
        merged = self._written(self._chain(link, schema), plan, columns, layout)
        return replace(merged, statistics=replace(merged.statistics, removals=removals, net_rows=net_rows))

    def _written(
        self,
        rows: DataFrame,
        plan: WritePlan,
        columns: Schema,
        layout: jobs.Layout,
        keys: jobs.ObservedKeys | None = None,
    ) -> Block:
        """Write rows with exactly the given columns, null if absent, and return the block."""
        name = plan.name
        rows = conform(rows, columns, absent={"_deleted": "false"})
        if keys is None and (here := self._written_here(rows, plan, columns, layout)) is not None:
            return here
        seen = jobs.write(rows, self.storage.path(name), plan, layout, keys)
        stored = self.storage.recorded(name)
        if layout.checked_later and jobs.must_be_unique(plan, layout) and stored:
            written = self.storage.table(name, stored, layout.key)
            on.check_keys(key_metrics(written, ordered=layout.tasks == 1 or bool(layout.buckets)), layout.key)
        # Spark repartitions once more to group by floating-point keys.
        block = self._block(plan, columns, stored, 0 if seen.misplaced else layout.buckets, seen.effect)
        return replace(block, stored=self.storage.name_buckets(name, stored)) if block.buckets else block

    def _written_here(self, rows: DataFrame, plan: WritePlan, columns: Schema, layout: jobs.Layout) -> Block | None:
        """Write rows in this process, and return the block; None if Spark has to write them."""
        if self.sizes.local_check_max <= 0 or columns in self._large:
            return None
        limit = fetch_limit(plan, columns, layout, local_mode=self._is_local_mode())
        if limit is None:
            return None
        try:
            fetched = fetch_rows(rows, columns, self.storage.path(plan.name), plan, limit)
            if fetched is not None:
                stored, effect = write_fetched(self.storage, fetched, plan, layout)
                return self._block(plan, columns, stored, 0, effect)
        except MemoryError:
            self.storage.delete([plan.name])
        self._large.add(columns)
        return None

    def _block(
        self,
        plan: WritePlan,
        columns: Schema,
        stored: tuple[StoredFile, ...],
        buckets: int,
        effect: jobs.Effect | None,
    ) -> Block:
        """Return a block with the files that were written; it has no buckets if there are few rows."""
        size = sum(file.size for file in stored)
        block = Block(
            number=plan.name.number,
            kind=plan.kind,
            schema=plan.schema,
            encoding=plan.encoding,
            columns=columns,
            buckets=0 if plan.is_base and 4 * size < self.sizes.bucketing_min else buckets,
            statistics=Statistics(rows=sum(file.rows for file in stored), bytes=size, files=len(stored)),
            suffix=plan.name.suffix,
            stored=stored,
        )
        return _with_effect(block, effect)

    def _is_local_mode(self) -> bool:
        """Return whether Spark's tasks run in the Java process of this one."""
        return type(self.spark) is SparkSession and bool(_LOCAL.match(self.spark.sparkContext.master or ""))

    def _compared(self, block: Block, old: SnapshotRead) -> Block | None:
        """Return the block, with its effect if counted, or None if it changes nothing."""
        self._verification.check(old.blocks)
        schema, encoding = block.schema, block.row_encoding
        delta = DeltaRead(start=old.at, end=block.end, schema=schema, encoding=encoding, deltas=(block,))
        if isinstance(encoding, Upsert) and all(other.encoding == encoding for other in old.deltas):
            comparison = UpsertComparison(block=block, old=old, blocks=self._blocks, sizes=self.sizes)
            if comparison.differs_early():
                return block
            effect = comparison.local_effect() or jobs.effect(comparison.counted(self.open(delta)))
        elif old.blocks:
            effect = jobs.effect(algebra.counted(self.open(ChangesRead(old=old, delta=delta))))
        else:
            made = self.relation(self.open(delta), encoding, schema)
            effect = jobs.effect(algebra.counted(self.as_changes(made)))
        return _with_effect(block, effect) if effect.any else None

    def _check_strong(self, block: Block, old: SnapshotRead | None) -> None:
        """Check that a strong delta applies to the snapshot before it; only rows that it touches are read.

        Raises:
            Conflict: the snapshot is not known yet.
            EncodingError: the delta removes rows that do not exist.
            KeyViolation: a key would be duplicate.
        """
        if old is None:
            raise _unsettled("removed rows must exist")
        schema, key = block.schema, key_of(block.encoding)
        delta = self.open(DeltaRead(start=old.at, end=block.end, schema=schema, encoding=Changes(), deltas=(block,)))
        before = self._snapshot(old, schema)
        size = sum(each.statistics.bytes for each in (block, *old.blocks))
        if size > self.sizes.single_task_max:
            touched = delta if key else delta.where(column("_weight") < 0)
            before = algebra.among(
                before, touched, key or schema.names, broadcast=block.statistics.bytes <= self.sizes.broadcast_max
            )
        wrong = jobs.fetch(algebra.misapplied(self.as_changes(before), delta, key, schema), 1)
        if not wrong:
            return
        *values, weight = wrong[0]
        row = dict(zip(schema.names, values, strict=True))
        if weight < 0:
            raise EncodingError(
                f"a row is retracted more often than it occurs: {row}",
                hint="A delta must apply to the rows before it",
            )
        raise KeyViolation(
            f"the delta leaves a key with two rows, one of them {row}",
            column=", ".join(key),
            hint="Retract the row that it replaces, in the same delta",
        )

    def as_changes(self, rows: DataFrame) -> DataFrame:
        """Return rows as a strong delta that adds them."""
        return algebra.strong(rows, rows, Append(), Schema(()), Strategy.SHUFFLED, self.functions)

    def probe(self) -> None:
        """Check that Spark executes a small job.

        Raises:
            SparkUnavailable: Spark does not execute it.
        """
        try:
            jobs.fetch(self.spark.range(1).toDF("n"))
        except PySparkException as error:
            raise SparkUnavailable(f"Spark cannot execute anything: {error}", hint="Try again") from error

    def delete(self, blocks: Iterable[BlockName]) -> None:
        """Delete the files of blocks."""
        gone = list(blocks)
        self._blocks.forget(gone)
        self.storage.delete(gone)

    def blocks(self) -> list[BlockName]:
        """Return the names of the blocks that have a directory."""
        return self.storage.blocks()

    def seal(self, block: BlockName, manifest: str) -> None:
        """Write a manifest next to the files of a block and flush all of them to disk."""
        self.storage.seal(block, manifest)

    def unseal(self, placements: Iterable[tuple[BlockName, str]]) -> None:
        """Delete manifests of blocks and their markers."""
        self.storage.unseal(placements)

    def mark_committed(self, placements: Iterable[tuple[BlockName, str]]) -> None:
        """Mark blocks as published by a catalog."""
        self.storage.mark_committed(placements)

    def keep_log(self, run: int, day: date, text: str) -> None:
        """Write the log of a run that began on the given day, replacing any earlier one."""
        self.storage.keep_log(run, day, text)

    def delete_logs(self, before: date) -> None:
        """Delete the logs of runs that began before the given day."""
        self.storage.delete_logs(before)

    def branches(self) -> list[str]:
        """Return the names of the branches that have a directory."""
        return self.storage.branches()

    def delete_branch(self, name: str) -> None:
        """Delete a branch with its blocks; a missing one counts as deleted."""
        self.storage.delete_branch(name)

    def _snapshot(self, reading: SnapshotRead, schema: Schema, *, copied: bool = False) -> DataFrame:
        base, deltas = reading.base and reading.base.seen_as(schema), reading.deltas
        removals = [place for place, block in enumerate(deltas) if isinstance(block.encoding, Removal)]
        if removals:
            before, removal = replace(reading, deltas=deltas[: removals[-1]]), deltas[removals[-1]]
            whole, deltas = self._remaining(before, removal, schema, copied=copied), deltas[removals[-1] + 1 :]
        else:
            whole = self._blocks.empty(schema) if base is None else conform(self._blocks.base(base, schema), schema)
        if base is not None and isinstance(reading.encoding, Increment):
            absent = [item for item in schema.columns if item.identity not in base.columns.identities]
            whole = whole.withColumns({item.name: F.lit(0).cast(item.type) for item in absent}) if absent else whole
        here = base if removals in ([], [0]) else None  # a filter leaves a base in its buckets
        nothing = base is None and not removals
        for run in _runs(deltas):
            encoding = merge_encoding(run[0].row_encoding)
            if isinstance(encoding, Append):
                added = self._blocks.plain(run, schema)
                whole = added if nothing and run[0] is deltas[0] else whole.unionByName(added)
                here = None
                continue
            how = Strategy.TOGETHER if self._blocks.together else strategy(here, run, self.sizes, copied=copied)
            if isinstance(encoding, Upsert) and not copied and here is not None and self._follows(here, run[0]):
                whole = self._overwritten_aligned(whole, run, schema, here.buckets)
                here = None
                continue
            if isinstance(encoding, Upsert) and how is Strategy.BROADCAST:
                whole = algebra.overwritten(whole, self._upserts(run, schema), encoding.key, schema)
                here = None
                continue
            buckets = here.buckets if here is not None and how is Strategy.ALIGNED else 0
            link = DeltaRead(start=0, end=run[-1].end, schema=schema, encoding=encoding, deltas=run)
            if isinstance(encoding, Custom) and len(run) > 1:
                own = delta_schema(encoding, schema)
                chained = conform(self._blocks.deltas(run, own), own, [POSITION])
            else:
                chained = self._chain(link, schema, buckets)
            if all(isinstance(block.encoding, Changes) and not block.removes for block in run):
                added = algebra.repeated(self._chain(replace(link, encoding=Changes()), schema), schema)
                whole = added if nothing and run[0] is deltas[0] else whole.unionByName(added)
                here = None
                continue
            whole = algebra.merge(whole, chained, encoding, schema, how, self.functions)
            here = None
        return whole

    def _remaining(self, before: SnapshotRead, removal: Block, schema: Schema, *, copied: bool) -> DataFrame:
        """Return the rows of a snapshot without those that a delta after it removes by a condition.

        The condition sees the columns of then, as some may have been dropped, replaced, renamed or widened since.
        """
        assert isinstance(removal.encoding, Removal)
        alike = {*removal.schema.columns} <= {*schema.columns}
        own = schema if alike else Schema((*removal.schema.user_columns.columns, *schema.state_columns.columns))
        gone = F.coalesce(F.expr(removal.encoding.condition), F.lit(False))
        rows = self._snapshot(before, own, copied=copied).where(~gone)
        if alike:
            return rows
        names, others = own.new_names(schema), own.replaced_in(schema)
        stored = own.without(*others).renamed(names)
        return conform(typed(renamed(rows.drop(*others), names), stored, schema), schema)

    def _follows(self, base: Block, delta: Block) -> bool:
        """Return whether a delta of upserts is read by bucket, in the buckets of a base."""
        aligned = 0 < base.buckets == delta.buckets and all(map(self._blocks.aligned, (base, delta)))
        return aligned and isinstance(delta.encoding, Upsert)

    def _overwritten_aligned(
        self, base: DataFrame, deltas: tuple[Block, ...], schema: Schema, buckets: int
    ) -> DataFrame:
        """Return the rows of a base after upserts, the first of which is in the buckets of the base."""
        merged = conform(self._blocks.base(deltas[0], schema), schema, ["_deleted"])
        later = self._upserts(deltas[1:], schema) if len(deltas) > 1 else None
        small = sum(block.statistics.bytes for block in deltas[1:]) <= self.sizes.broadcast_max
        key = key_of(deltas[0].encoding)
        return algebra.overwritten_aligned(base, merged, later, key, schema, buckets, small=small)

    def _chain(self, reading: DeltaRead, schema: Schema, buckets: int = 0) -> DataFrame:
        """Chain deltas, partitioned like a bucketed base: otherwise Spark may shuffle the base instead of the delta."""
        deltas, encoding = reading.deltas, reading.encoding
        wanted = delta_schema(encoding, schema)
        if not deltas:
            return self._blocks.empty(wanted)
        if isinstance(encoding, Append):
            return self._blocks.plain(deltas, schema)
        if isinstance(encoding, Changes) and any(block.encoding != encoding for block in deltas):
            return self._mixed(deltas, schema)
        alone = len(deltas) == 1 and deltas[0].encoding == encoding and deltas[0].columns == wanted
        if alone:
            rows = self._blocks.plain(deltas, wanted)
        else:
            rows = (self._upserts if isinstance(encoding, Upsert) else self._blocks.deltas)(deltas, wanted)
        if buckets:
            rows = rows.repartition(buckets, *map(column, key_of(encoding)))
        if alone:
            return rows
        return algebra.chain(rows, encoding, schema, self.functions).select(*map(column, wanted.names))

    def _upserts(self, deltas: Sequence[Block], schema: Schema) -> DataFrame:
        """Return the rows of upserts, and of strong deltas with the same key as upserts, with their position."""
        rows = self._blocks.deltas(deltas, schema)
        return algebra.as_upserts(rows) if any(isinstance(block.encoding, Changes) for block in deltas) else rows

    def _mixed(self, deltas: Sequence[Block], schema: Schema) -> DataFrame:
        """Return append and changes blocks as one strong delta."""
        whole = reduce(DataFrame.unionByName, self._weights(deltas, schema))
        effective = len(deltas) == 1 and deltas[0].is_effective(schema)
        if effective or all(isinstance(block.encoding, Append) for block in deltas):
            return whole
        return algebra.chain(whole, Changes(), schema, self.functions)

    def _weights(self, deltas: Sequence[Block], schema: Schema) -> list[DataFrame]:
        """Return the rows of append and changes blocks, with their weights."""
        return [
            self.as_changes(self._blocks.plain(run, schema))
            if isinstance(run[0].encoding, Append)
            else conform(self._blocks.deltas(run, schema), schema, ["_weight"])
            for run in _runs(tuple(deltas))
        ]


def _check_comparable(plan: WritePlan) -> None:
    """Check that the columns of the checks exist, and that the rows that a delta is to be compared with are known.

    Raises:
        DeclarationError: a check names an unknown column.
        Conflict: another run is still writing those rows.
    """
    for check in plan.checks:
        check_columns_exist(check, plan.schema.names)
    if plan.is_base or plan.old is not None:
        return
    if across_rows(plan.checks, plan.encoding):
        raise _unsettled("rows must be unique")
    if plan.is_strong_delta and not plan.derived and key_of(plan.encoding):
        raise _unsettled("keys must be unique")


def _with_effect(block: Block, effect: jobs.Effect | None) -> Block:
    """Return a block with its effect on the relation before it in its statistics; it is known for appended rows."""
    if isinstance(block.encoding, Append) and not isinstance(block.kind, Base):
        effect = jobs.Effect(added=block.statistics.rows, removed=0)
    if effect is None:
        return block
    return replace(
        block, statistics=replace(block.statistics, removals=effect.removed, net_rows=effect.added - effect.removed)
    )


def _unsettled(why: str) -> Conflict:
    return Conflict(f"another run is writing the channel, and {why}", hint="Try again when it has ended")


def _external(spark: SparkSession, block: Block) -> DataFrame:
    """Return the rows of a block that was registered in place, with its columns."""
    rows = read_external(spark, block)
    if not isinstance(block.kind, Base):
        rows = jobs.with_control_columns(rows, block.row_encoding, block.schema)
    return conform(rows, block.columns)


def _runs(deltas: tuple[Block, ...]) -> list[tuple[Block, ...]]:
    """Group consecutive deltas that have the same merge encoding."""
    return [tuple(run) for _, run in groupby(deltas, lambda block: merge_encoding(block.encoding))]
