"""Writing of small blocks in this process: Spark returns their rows, in half the time of a job that writes them.

Results that turn out to be large are left to Spark: so few rows are fetched, and such short texts in them, that they
fit into memory however large the result is.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation

from kilonova.model.check import of_rows
from kilonova.model.schema import Schema, quoted
from kilonova.model.write_plan import WritePlan
from kilonova.warehouse import checks as on
from kilonova.warehouse import jobs
from kilonova.warehouse.arrow_types import arrow_schema, comparable_types
from kilonova.warehouse.bucket_merge import file_name
from kilonova.warehouse.local_checks import key_metrics
from kilonova.warehouse.storage import Storage

_EXPECTED = 2 << 20
"""Expected size of the blocks that are written here, in bytes of Parquet, at most."""

_ROWS = 100_000
"""Number of their rows, at most."""

_MEMORY = 128 << 20
"""Size of their rows in memory, in bytes, at most."""

_TEXT, _NUMBER = 1 << 10, 16
"""Size of a text, at most, and of another value, in bytes."""


def is_small(plan: WritePlan, columns: Schema, layout: jobs.Layout) -> bool:
    """Return whether a block is expected to be so small that it is written here, if its columns allow it."""
    return (
        layout.tasks == 1
        and plan.expected is not None
        and plan.expected <= _EXPECTED
        and comparable_types(columns, columns.names)
        and comparable_types(columns, layout.key, as_key=True)
    )


def fetch_small(frame: DataFrame, columns: Schema, path: str, plan: WritePlan) -> pa.Table | None:
    """Return the rows of a frame, and check them; None if there are too many, or texts in them are too long.

    Args:
        frame: the rows.
        columns: its columns.
        path: the directory of the block that will have the rows.
        plan: the plan of the block, with the encoding of these rows.

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
    texts = [column.name for column in columns.columns if column.type in ("string", "binary")]
    long = "_" + max(columns.names, key=len)
    if texts:
        is_long = {name: f"octet_length({quoted(name)}) > {_TEXT}" for name in texts}
        short = (
            f"IF({is_long[name]}, NULL, {quoted(name)}) AS {quoted(name)}" if name in is_long else quoted(name)
            for name in columns.names
        )
        any_long = " OR ".join(f"IFNULL({each}, FALSE)" for each in is_long.values())
        frame = frame.selectExpr(*short, f"{any_long} AS {quoted(long)}")
    width = len(texts) * _TEXT + (len(columns.names) - len(texts)) * _NUMBER
    most = min(_ROWS, _MEMORY // width)
    table = jobs.fetch_table(frame, path, most + 1)
    if table.num_rows > most or (texts and pc.any(table[long]).as_py()):
        return None
    if checks:
        on.check_violations(observation.get, checks)  # of all rows, as the limit was not reached
    return table.select(columns.names).cast(arrow_schema(columns))


def write_small(storage: Storage, rows: pa.Table, plan: WritePlan, layout: jobs.Layout) -> jobs.Effect | None:
    """Check the keys of the rows of a block, and write them in the order of their keys.

    Args:
        storage: the storage of the blocks.
        rows: the rows, with all columns of the block.
        plan: the plan of the block.
        layout: its layout.

    Returns:
        The number of rows that a strong delta adds and removes; None for other blocks.

    Raises:
        KeyViolation: keys are null or duplicate; nothing is written then.
        StorageFailed: the file cannot be written.
    """
    key = list(layout.key)
    if key:
        rows = rows.sort_by([(each, "ascending") for each in key])
        if not layout.trusted:
            seen = key_metrics(rows.select(key), ordered=True)
            on.check_keys(seen if jobs.must_be_unique(plan, layout) else {"nulls": seen.get("nulls")}, layout.key)
    storage.write_rows(plan.name, file_name(0, 0), rows)
    if not plan.is_strong_delta:
        return None
    added, removed = (pc.sum(some(rows["_weight"], 0)).as_py() for some in (pc.max_element_wise, pc.min_element_wise))
    return jobs.Effect(added=int(added or 0), removed=-int(removed or 0))
