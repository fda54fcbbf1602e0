"""Spark jobs: all of them start here.

A block is written by one job; the required facts about its rows (null and duplicate keys, removals) are observed
by that same job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from kilonova.errors import SettingsError, StorageFailed
from kilonova.model.check import of_rows
from kilonova.model.encoding import Changes, Columns, Custom, Encoding, Increment, Upsert, key_of
from kilonova.model.schema import Schema
from kilonova.model.write_plan import WritePlan
from kilonova.query.row_order import SortKey
from kilonova.warehouse import checks as on
from kilonova.warehouse.blocks import column
from kilonova.warehouse.equality import any_of, weights_added
from kilonova.warehouse.guards import Guard, LargerThanExpected, fail
from kilonova.warehouse.spark_errors import is_result_too_large, reason, translate_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Distribution of a block's rows over files.

    Attributes:
        key: the columns to group and sort by; empty for no order.
        buckets: number of files by hash of the key; 0 lets Spark choose.
        tasks: number of tasks that write the rows, at most, without a shuffle; None to let Spark choose, and to shuffle
            the rows of a key into one task.
        trusted: whether the keys are known to be non-null and unique, because the rows come from a snapshot.
        arranged: whether the rows are already in their buckets, task by task, in order.
        checked_later: whether the caller checks the keys in the written files, if they have to be checked.
    """

    key: tuple[str, ...]
    buckets: int
    tasks: int | None
    trusted: bool = False
    arranged: bool = False
    checked_later: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """Numbers of rows that a delta adds to the snapshot before it and removes from it."""

    added: int
    removed: int

    @property
    def any(self) -> bool:
        """Return whether any rows are added or removed."""
        return bool(self.added or self.removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStatistics:
    """Statistics observed by the job that wrote a block.

    Attributes:
        effect: number of rows that a strong delta adds and removes; None for other blocks.
        misplaced: number of rows of a bucketed block that are in the wrong bucket.
    """

    effect: Effect | None
    misplaced: int


_ROW_GROUP = 4 << 20
"""Size of a row group of a keyed block, in bytes: to look up a few keys, all of those that may have them are read."""


def with_control_columns(frame: DataFrame, encoding: Encoding, schema: Schema) -> DataFrame:
    """Return a user's delta with all control columns; weights are summed, and zeros dropped."""
    present = set(frame.columns)
    match encoding:
        case Upsert() if "_deleted" in present:
            return frame.withColumn("_deleted", F.coalesce(column("_deleted"), F.lit(False)))
        case Upsert():
            return frame.withColumn("_deleted", F.lit(False))
        case Changes() if "_weight" in present:
            return weights_added(frame, schema.names, F.coalesce(column("_weight"), F.lit(1)))
        case Changes():
            return frame.withColumn("_weight", F.lit(1).cast("bigint"))
        case Columns(key):
            given = [name for name in schema.names if name in present and name not in key]
            every = F.array(*map(F.lit, given)).cast("array<string>")
            if "_deleted" not in present:
                frame = frame.withColumn("_deleted", F.lit(False))
            chosen = F.coalesce(_settable(schema, key), every) if "_set" in present else every
            frame = frame.withColumn("_deleted", F.coalesce(column("_deleted"), F.lit(False)))
            return frame.withColumn("_set", F.when(~column("_deleted"), chosen))
        case Increment(key, measures):
            summed = frame.groupBy(*map(column, key)).agg(
                *(
                    F.coalesce(F.sum(column(n)).cast(schema.type_of(n)), F.lit(0).cast(schema.type_of(n))).alias(n)
                    for n in measures
                )
            )
            return summed.where(any_of(column(name) != 0 for name in measures))
        case _:
            return frame


def _settable(schema: Schema, key: tuple[str, ...]) -> Column:
    """Return `_set` where it names columns that can be set; raise an error elsewhere."""
    others = F.array(*(F.lit(name) for name in schema.names if name not in key)).cast("array<string>")
    unknown = F.element_at(F.array_except(column("_set"), others), 1)
    wrong = F.size(F.array_except(column("_set"), others)) > 0
    raised = fail(Guard.SETTABLE, column=unknown).cast("array<string>")
    return F.when(wrong, raised).otherwise(column("_set"))


@dataclass(frozen=True, slots=True)
class ObservedKeys:
    """Observation of the keys of a delta while it is read.

    Attributes:
        rows: the delta.
        observation: Spark's observation of the rows.
        again: the same metrics as a separate query.
    """

    rows: DataFrame
    observation: Observation
    again: DataFrame

    def seen(self) -> dict[str, Any]:
        """Return the observed metrics, after a job has read the rows."""
        try:
            return self.observation.get
        except (PySparkException, Py4JJavaError):  # Spark skips rows that it finds to be irrelevant while executing
            return self.again.collect()[0].asDict()


def undeleted(delta: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Return the rows of a delta that are not tombstones; null or duplicate keys, tombstones included, are an error."""
    rows = delta.withColumn("_same", F.count(F.lit(1)).over(Window.partitionBy(*map(column, key))))
    absent = reduce(or_, (column(name).isNull() for name in key))
    refused = F.when(absent | (column("_same") > 1), _violation(key))
    return rows.where(refused.otherwise(~column("_deleted"))).drop("_same")


def newest(delta: DataFrame, key: Sequence[str], order: Sequence[str]) -> DataFrame:
    """Return the last row of each key of a delta; two rows of a key that are equal in the order are an error.

    Args:
        delta: the rows.
        key: the columns of the key.
        order: the columns that order the rows of a key; null is lower than any value.
    """
    place = F.struct(*map(column, order))
    within = Window.partitionBy(*map(column, key)).orderBy(*(column(name).asc_nulls_first() for name in order))
    rows = delta.withColumn("_next", F.lead(place).over(within))
    refused = F.when(column("_next") == place, _violation(key))
    return rows.where(refused.otherwise(column("_next").isNull())).drop("_next")


def _violation(key: Sequence[str]) -> Column:
    """Return a condition that raises an error with the key of a row."""
    return fail(Guard.KEY, key=F.struct(*map(column, key))).cast("boolean")


def observe_keys(delta: DataFrame, key: tuple[str, ...]) -> ObservedKeys:
    """Observe the keys of a delta while it is read; for a `write` of rows derived from the delta."""
    rows = delta.withColumn("_same", F.count(F.lit(1)).over(Window.partitionBy(*map(column, key))))
    metrics = [seen.alias(name) for name, seen in (_absent(key) | _repeated(key)).items()]
    observation = Observation()
    return ObservedKeys(rows.observe(observation, *metrics).drop("_same"), observation, rows.agg(*metrics))


def write(
    frame: DataFrame, path: str, plan: WritePlan, layout: Layout, keys: ObservedKeys | None = None
) -> WrittenStatistics:
    """Write the rows of a block, and check its keys and rows in the same job.

    Args:
        frame: exactly the columns to store.
        path: the block's directory.
        plan: the plan, with the encoding in which the rows are stored.
        layout: the distribution of the rows over files.
        keys: the observed keys of the delta that the rows derive from.

    Returns:
        The observed statistics.

    Raises:
        Misplaced: rows that were assumed to be in their buckets are not; the files are invalid then.
        KeyViolation: keys are null or duplicate; the files are invalid then.
        CheckFailed: rows violate a check; the files are invalid then.
        InputError: an input file cannot be read.
        StorageFailed: the files cannot be written.
    """
    key, columns = layout.key, frame.columns
    unique = must_be_unique(plan, layout)
    later = unique and layout.checked_later
    rows = _arranged(frame, layout, unique and not later)
    metrics = _metrics(frame, plan, () if layout.trusted or later else key, unique and not later)
    if layout.buckets:
        elsewhere = F.pmod(F.hash(*map(column, key)), F.lit(layout.buckets)) != F.spark_partition_id()
        if layout.arranged:
            rows = rows.where(F.when(elsewhere, fail(Guard.MISPLACED).cast("boolean")).otherwise(True))
        else:
            metrics["misplaced"] = F.count_if(elsewhere)
    observation = Observation() if metrics else None
    if observation is not None:
        rows = rows.observe(observation, *(metric.alias(name) for name, metric in metrics.items()))
    with translate_errors(path):
        rows = rows if rows.columns == columns else rows.select(*map(column, columns))
        writer = rows.write.option("compression", "zstd")
        (writer.option("parquet.block.size", _ROW_GROUP) if key else writer).parquet(path)
        seen: dict[str, Any] = observation.get if observation is not None else {}
        on.check_violations(seen, of_rows(plan.checks))
        on.check_keys(seen if keys is None else keys.seen(), key)
    return WrittenStatistics(effect=_observed_effect(seen, plan), misplaced=int(seen.get("misplaced") or 0))


def must_be_unique(plan: WritePlan, layout: Layout) -> bool:
    """Return whether a block's keys have to be checked for nulls and duplicates when it is written."""
    if layout.trusted or plan.is_strong_delta or isinstance(plan.encoding, Custom):
        return False
    return bool(layout.key) and (plan.is_base or not isinstance(plan.encoding, Increment))


def inspect(frame: DataFrame, plan: WritePlan) -> tuple[int, Effect | None]:
    """Read all rows of an existing block in one job, and check its keys and rows as `write` does.

    Args:
        frame: the block's rows, control columns included.
        plan: the plan by which it is registered.

    Returns:
        The number of rows, and the number of rows that a strong delta adds and removes; None for other blocks.

    Raises:
        KeyViolation: keys are null or duplicate.
        CheckFailed: rows violate a check.
        InputError: a file cannot be read.
    """
    key = key_of(plan.encoding)
    unique = bool(key) and not plan.is_strong_delta and not isinstance(plan.encoding, Custom | Increment)
    values = F.to_json(F.struct(*map(column, frame.columns)))
    metrics = {"rows": F.count(F.lit(1)), "_all": F.max(F.length(values))}  # forces every column to be read
    metrics |= _metrics(frame, plan, key, unique)
    if unique:
        frame = frame.withColumn("_same", F.count(F.lit(1)).over(Window.partitionBy(*map(column, key))))
    (row,) = fetch(frame.agg(*(metric.alias(name) for name, metric in metrics.items())))
    seen = dict(zip(metrics, row, strict=True))
    on.check_violations(seen, of_rows(plan.checks))
    on.check_keys(seen, key)
    return int(seen["rows"]), _observed_effect(seen, plan)


def _metrics(frame: DataFrame, plan: WritePlan, key: tuple[str, ...], unique: bool) -> dict[str, Column]:
    """Return the metrics of a block's rows: violations of checks, null and duplicate keys, weights.

    Args:
        frame: the rows.
        plan: the plan of the block.
        key: the columns that must not be null.
        unique: whether the key must be unique; the rows then have `_same`, the number of rows that share their key.
    """
    checks = of_rows(plan.checks)
    metrics = on.metrics(frame, checks, plan.schema, on.weight(plan.kind, plan.encoding)) if checks else {}
    if key:
        metrics |= _absent(key)
    if unique:
        metrics |= _repeated(key)
    if plan.is_strong_delta:
        metrics["added"] = F.sum(F.greatest(column("_weight"), F.lit(0)))
        metrics["removed"] = -F.sum(F.least(column("_weight"), F.lit(0)))
    return metrics


def _observed_effect(seen: dict[str, Any], plan: WritePlan) -> Effect | None:
    """Return the observed number of rows that a strong delta adds and removes; None for other blocks."""
    if not plan.is_strong_delta:
        return None
    return Effect(added=int(seen["added"] or 0), removed=int(seen["removed"] or 0))


def _absent(key: tuple[str, ...]) -> dict[str, Column]:
    return {"nulls": F.count_if(reduce(or_, (column(name).isNull() for name in key)))}


def _repeated(key: tuple[str, ...]) -> dict[str, Column]:
    """Return the metrics of duplicate keys, for rows with `_same`, the number of rows that share their key."""
    example = F.min(F.when(column("_same") > 1, F.to_json(F.struct(*map(column, key)))))
    return {"duplicates": F.count_if(column("_same") > 1), "example": example}


def _arranged(frame: DataFrame, layout: Layout, unique: bool) -> DataFrame:
    """Distribute and sort rows as the layout specifies; if `unique`, add the number of rows with the same key."""
    if not layout.key:
        return frame if layout.tasks is None else frame.coalesce(layout.tasks)
    if layout.arranged:
        return frame
    names = [column(name) for name in layout.key]
    if layout.buckets:
        rows = frame.repartition(layout.buckets, *names)
    else:
        rows = frame.repartition(*names) if layout.tasks is None else frame.coalesce(layout.tasks)
    if unique:
        rows = rows.withColumn("_same", F.count(F.lit(1)).over(Window.partitionBy(*names)))
    return rows.sortWithinPartitions(*names)


def effect(counted: DataFrame) -> Effect:
    """Fetch the columns `added` and `removed` of the single row that counts a delta's effect."""
    with translate_errors(None):
        row = counted.collect()[0]
    return Effect(added=int(row["added"] or 0), removed=int(row["removed"] or 0))


def fetch(frame: DataFrame, limit: int | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of a frame, at most `limit`."""
    with translate_errors(None):
        return [tuple(row) for row in (frame if limit is None else frame.limit(limit)).collect()]


def fetched(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table as `fetch` returns those of a frame: timestamps are in this process's time zone."""
    columns = (
        [None if at is None else at.astimezone().replace(tzinfo=None) for at in column.to_pylist()]
        if pa.types.is_timestamp(column.type) and column.type.tz
        else column.to_pylist()
        for column in rows.columns
    )
    return list(zip(*columns, strict=True)) if rows.num_columns else [()] * rows.num_rows


def fetch_table(frame: DataFrame, path: str) -> pa.Table | None:
    """Return the rows of a frame as a table; None if its guard, or `spark.driver.maxResultSize`, is exceeded.

    Args:
        frame: the rows.
        path: the directory of the block that will have them.

    Raises:
        KilonovaError: any error of `write`.
    """
    try:
        with translate_errors(path):
            return frame.toArrow()
    except LargerThanExpected:
        return None
    except PySparkException as error:
        if is_result_too_large(error):
            return None
        raise


def ordered(frame: DataFrame, first: Sequence[SortKey]) -> DataFrame:
    """Return the rows of a frame in a total order, as far as its columns can be ordered.

    Args:
        frame: the rows.
        first: the columns to order by; those that the frame does not have are left out, its others follow.
    """
    known = [key for key in first if key.column in frame.columns]
    others = {field.name for field in frame.schema if _orderable(field.dataType)} - {key.column for key in known}
    return frame.orderBy(*map(_sorted_by, [*known, *(SortKey(name) for name in frame.columns if name in others)]))


def _sorted_by(key: SortKey) -> Column:
    by = column(key.column)
    if key.descending:
        return by.desc_nulls_first() if key.nulls_first else by.desc_nulls_last()
    return by.asc_nulls_first() if key.nulls_first else by.asc_nulls_last()


def write_page(frame: DataFrame, file: str, first: Sequence[SortKey], offset: int, limit: int) -> None:
    """Write some rows of a frame to a file, as an Arrow stream; points in time are in UTC.

    Args:
        frame: the rows.
        file: the file.
        first: the columns to order by; see `ordered`.
        offset: number of rows to skip.
        limit: maximum number of rows to write.
    """
    with translate_errors(None):
        table = _in_utc(ordered(frame, first).offset(offset).limit(limit).toArrow())
    with pa.OSFile(file, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _in_utc(table: pa.Table) -> pa.Table:
    """Return a table whose columns with a time zone, which is the session's, have the zone UTC."""
    zoned = [pa.types.is_timestamp(field.type) and field.type.tz is not None for field in table.schema]
    fields = [field.with_type(_UTC) if zone else field for field, zone in zip(table.schema, zoned, strict=True)]
    return table.cast(pa.schema(fields))


_UTC = pa.timestamp("us", "UTC")


def _orderable(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _orderable(kind.elementType)
        case StructType():
            return all(_orderable(field.dataType) for field in kind.fields)
        case _:
            return not isinstance(kind, MapType | VariantType)


def export(frame: DataFrame, target: str, format: str) -> None:
    """Write rows to a directory outside the warehouse.

    Raises:
        SettingsError: the directory exists already.
        StorageFailed: the directory cannot be written.
    """
    writer = frame.coalesce(1).write.format(format)
    try:
        with translate_errors(target):
            (writer.option("header", "true") if format == "csv" else writer).save(target)
    except PySparkException as error:
        if error.getCondition() == "PATH_ALREADY_EXISTS":
            raise SettingsError(
                "the output directory already exists",
                path=target,
                hint="Name a new directory",
            ) from None
        raise StorageFailed(f"the rows cannot be written: {reason(error)}", path=target) from error
