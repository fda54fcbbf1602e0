"""Writing of blocks in this process: Spark returns their rows, which takes less time than a job that writes them.

Results that turn out to be large are left to Spark: so few rows are fetched, and such short texts in them, that they
fit into memory however large the result is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from kilonova.model.block import StoredFile
from kilonova.model.check import of_rows
from kilonova.model.schema import Schema, quoted
from kilonova.model.write_plan import WritePlan
from kilonova.warehouse import checks as on
from kilonova.warehouse import jobs
from kilonova.warehouse.arrow_types import arrow_schema, comparable_types
from kilonova.warehouse.bucket_merge import file_name
from kilonova.warehouse.guards import Guard, fail
from kilonova.warehouse.local_checks import key_metrics
from kilonova.warehouse.storage import Storage

_EXPECTED = 2 << 20
"""Expected size of a small block, in bytes of Parquet, at most."""

_DENSE = 8
"""Bytes of Parquet per value, above which rows are taken to have long texts."""

_NUMBER = 16
"""Size of a value other than a text, in bytes."""


@dataclass(frozen=True, slots=True)
class FetchLimit:
    """Limit of what is fetched to write a block here.

    Attributes:
        rows: number of rows, at most; of those in several partitions, half of it in each.
        memory: size of the rows in memory, in bytes, at most.
        text: length of a text, in bytes, at most.
        partitions: number of partitions in which the rows are fetched.
    """

    rows: int
    memory: int
    text: int
    partitions: int = 1

    def of(self, columns: Schema, partitions: int) -> FetchLimit:
        """Return the limit for rows with these columns, of which the memory holds fewer if there are many columns."""
        texts = len(_texts(columns))
        width = texts * self.text + (len(columns.names) - texts) * _NUMBER
        return replace(self, rows=min(self.rows, self.memory // width), partitions=partitions)


_SMALL = FetchLimit(rows=100_000, memory=128 << 20, text=1 << 10)
_LARGER = FetchLimit(rows=3_000_000, memory=512 << 20, text=1 << 7)


def fetch_limit(plan: WritePlan, columns: Schema, layout: jobs.Layout, *, local_mode: bool) -> FetchLimit | None:
    """Return the limit of what is fetched to write a block here; None if Spark writes it.

    Small blocks are written here if their columns allow it. So are larger deltas of a keyed channel in local mode,
    whose rows would have to be sorted and checked, if they fit into memory as far as the blocks before can tell.

    Args:
        plan: the plan of the block.
        columns: its columns.
        layout: its layout.
        local_mode: whether Spark's tasks run on this machine.
    """
    if plan.expected is None or layout.tasks is None or layout.buckets:
        return None
    if not comparable_types(columns, columns.names) or not comparable_types(columns, layout.key, as_key=True):
        return None
    if layout.tasks == 1 and plan.expected <= _EXPECTED:
        return _SMALL.of(columns, 1)
    before = [block.statistics for block in plan.old.blocks] if plan.old is not None else []
    size, count = sum(each.bytes for each in before), sum(each.rows for each in before)
    if not (local_mode and layout.checked_later and 0 < size <= _DENSE * count * len(columns.names)):
        return None
    limit = _LARGER.of(columns, layout.tasks)
    return limit if plan.expected * count <= limit.rows // 2 * size else None


def _texts(columns: Schema) -> list[str]:
    return [column.name for column in columns.columns if column.type in ("string", "binary")]


def fetch_rows(frame: DataFrame, columns: Schema, path: str, plan: WritePlan, limit: FetchLimit) -> pa.Table | None:
    """Return the rows of a frame, and check them; None if there are too many, or texts in them are too long.

    Args:
        frame: the rows.
        columns: its columns.
        path: the directory of the block that will have the rows.
        plan: the plan of the block, with the encoding of these rows.
        limit: the limit.

    Raises:
        CheckFailed: rows violate a check.
        KilonovaError: any error of `jobs.write`.
    """
    if plan.without_rows:
        return arrow_schema(columns).empty_table()
    checks, observation = of_rows(plan.checks), Observation()
    if checks:
        metrics = on.metrics(frame, checks, plan.schema, on.weight(plan.kind, plan.encoding))
        frame = frame.observe(observation, *(metric.alias(name) for name, metric in metrics.items()))
    long = "_" + max(columns.names, key=len)
    small = limit.partitions == 1
    table = jobs.fetch_table(_few(frame, columns, limit, long) if small else _guarded(frame, columns, limit), path)
    if table is None or table.num_rows > limit.rows or (long in table.column_names and pc.any(table[long]).as_py()):
        return None
    if checks:
        on.check_violations(observation.get, checks)  # of all rows, as the limit was not reached
    return table.select(columns.names).cast(arrow_schema(columns))


def _few(frame: DataFrame, columns: Schema, limit: FetchLimit, long: str) -> DataFrame:
    """Return rows of a frame, one more than the limit at most, without longer texts.

    Args:
        frame: the rows.
        columns: its columns.
        limit: the limit.
        long: name of a column that is true where a text is longer; it is missing if there are no texts.
    """
    frame = frame.coalesce(1).limit(limit.rows + 1)
    is_long = {name: _is_long(name, limit) for name in _texts(columns)}
    if not is_long:
        return frame
    names = (
        f"IF({is_long[name]}, NULL, {quoted(name)}) AS {quoted(name)}" if name in is_long else quoted(name)
        for name in columns.names
    )
    return frame.selectExpr(*names, f"{' OR '.join(is_long.values())} AS {quoted(long)}")


def _guarded(frame: DataFrame, columns: Schema, limit: FetchLimit) -> DataFrame:
    """Return the rows of a frame, on a condition that ends Spark's job at the first row beyond the limit.

    This takes less time than a column that says so, as `_few` has. On a cluster, Spark would execute the task again.
    """
    number = f"(monotonically_increasing_id() & {_PLACE})"
    excess = [f"{number} >= {limit.rows // 2}", *(_is_long(name, limit) for name in _texts(columns))]
    guard = F.when(F.expr(" OR ".join(excess)), fail(Guard.LARGE).cast("boolean")).otherwise(True)
    return frame.coalesce(limit.partitions).where(guard)


def _is_long(text: str, limit: FetchLimit) -> str:
    return f"IFNULL(octet_length({quoted(text)}) > {limit.text}, FALSE)"


_PLACE = (1 << 33) - 1
"""Bits of `monotonically_increasing_id` that number the rows of a partition."""


def write_fetched(
    storage: Storage, rows: pa.Table, plan: WritePlan, layout: jobs.Layout
) -> tuple[tuple[StoredFile, ...], jobs.Effect | None]:
    """Check the keys of the rows of a block, and write them, each file in the order of its keys.

    Args:
        storage: the storage of the blocks.
        rows: the rows, with all columns of the block.
        plan: the plan of the block.
        layout: its layout.

    Returns:
        The files, and the number of rows that a strong delta adds and removes; None for other blocks.

    Raises:
        KeyViolation: keys are null or duplicate; nothing is written then.
        StorageFailed: a file cannot be written.
    """
    assert layout.tasks is not None
    each = max(1, math.ceil(rows.num_rows / layout.tasks))
    parts = [rows.slice(start, each) for start in range(0, max(1, rows.num_rows), each)]
    by = [(name, "ascending") for name in layout.key]
    with ThreadPoolExecutor(len(parts)) as pool:
        if by:
            parts = list(pool.map(lambda part: part.sort_by(by), parts))
            _check_keys(parts, plan, layout)
        names = [file_name(number, 0) for number in range(len(parts))]
        files = tuple(pool.map(partial(storage.write_rows, plan.name), names, parts))
    if not plan.is_strong_delta:
        return files, None
    added, removed = (pc.sum(some(rows["_weight"], 0)).as_py() for some in (pc.max_element_wise, pc.min_element_wise))
    return files, jobs.Effect(added=int(added or 0), removed=-int(removed or 0))


def _check_keys(parts: Sequence[pa.Table], plan: WritePlan, layout: jobs.Layout) -> None:
    """Check the keys of a block's rows, which are sorted file by file."""
    if layout.trusted:
        return
    seen = key_metrics(pa.concat_tables(part.select(layout.key) for part in parts), ordered=len(parts) == 1)
    on.check_keys(seen if jobs.must_be_unique(plan, layout) else {"nulls": seen.get("nulls")}, layout.key)
