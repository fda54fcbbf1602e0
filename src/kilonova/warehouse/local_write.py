"""Writing of small blocks in this process: Spark returns their rows, in half the time of a job that writes them.

Results that turn out to be large are left to Spark: so few rows are fetched, and such short texts in them, that they
fit into memory however large the result is.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation

from kilonova.model.check import of_rows
from kilonova.model.encoding import Append
from kilonova.model.schema import Schema, quoted
from kilonova.model.write_plan import WritePlan
from kilonova.warehouse import checks as on
from kilonova.warehouse import jobs
from kilonova.warehouse.arrow_types import arrow_schema, comparable_types, stored_types
from kilonova.warehouse.blocks import NUMBER
from kilonova.warehouse.local_checks import key_metrics
from kilonova.warehouse.local_merge import file_name
from kilonova.warehouse.storage import Storage

_EXPECTED = 2 << 20
"""Expected size of the blocks that are written here, in bytes of Parquet, at most."""

_ROWS = 100_000
"""Number of their rows, at most."""

_MEMORY = 128 << 20
"""Size of their rows in memory, in bytes, at most."""

_TEXT, _NUMBER = 1 << 10, 16
"""Size of a text, at most, and of another value, in bytes."""

_ELEMENTS = 32
"""Number of elements of an array or a map, at most."""


def is_small(plan: WritePlan, columns: Schema, layout: jobs.Layout) -> bool:
    """Return whether a block is expected to be so small that it is written here, if its columns allow it."""
    return (
        layout.tasks == 1
        and plan.expected is not None
        and plan.expected <= _EXPECTED
        and stored_types(columns)
        and comparable_types(columns, layout.key, as_key=True)
    )


def fetch_small(frame: DataFrame, columns: Schema, path: str, plan: WritePlan) -> pa.Table | None:
    """Return the rows of a frame, and check them; None if there are too many, or values in them are too large.

    Args:
        frame: the rows.
        columns: its columns.
        path: the directory of the block that will have the rows.
        plan: the plan of the block, with the encoding of these rows.

    Raises:
        CheckFailed: rows violate a check.
        KilonovaError: any error of `jobs.write`.
    """
    schema, checks = arrow_schema(columns), of_rows(plan.checks)
    width = sum(_size(field.type) for field in schema)
    most = min(_ROWS, _MEMORY // width)
    observation = None
    if checks:
        observation = Observation()
        metrics = on.metrics(frame, checks, plan.schema, on.weight(plan.kind, plan.encoding))
        frame = frame.observe(observation, *(metric.alias(name) for name, metric in metrics.items()))
    larger = {field.name: " OR ".join(_larger(quoted(field.name), field.type)) for field in schema}
    excess, marked = "_" + max(columns.names, key=len), any(larger.values())
    if marked:
        kept = (
            f"IF({larger[name]}, NULL, {quoted(name)}) AS {quoted(name)}" if larger[name] else quoted(name)
            for name in columns.names
        )
        any_larger = " OR ".join(f"IFNULL({each}, FALSE)" for each in larger.values() if each)
        frame = frame.selectExpr(*kept, f"{any_larger} AS {quoted(excess)}")
    table = jobs.fetch_table(frame, path, most + 1)
    if table.num_rows > most or (marked and pc.any(table[excess]).as_py()):
        return None
    if observation is not None:
        on.check_violations(observation.get, checks)
    return table.select(columns.names).cast(schema)


def _size(kind: pa.DataType) -> int:
    """Return the size of a value in memory, in bytes, at most, unless it is `_larger`."""
    if pa.types.is_struct(kind):
        return sum(_size(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _ELEMENTS * _size(kind.value_type)
    if pa.types.is_map(kind):
        return _ELEMENTS * (_size(kind.key_type) + _size(kind.item_type))
    return _TEXT if pa.types.is_string(kind) or pa.types.is_binary(kind) else _NUMBER


def _larger(value: str, kind: pa.DataType) -> list[str]:
    """Return the conditions, in SQL, under any of which a value is larger than its `_size`."""
    if pa.types.is_struct(kind):
        return [each for field in kind for each in _larger(f"{value}.{quoted(field.name)}", field.type)]
    if pa.types.is_list(kind):
        inside = {value: kind.value_type}
    elif pa.types.is_map(kind):
        inside = {f"map_keys({value})": kind.key_type, f"map_values({value})": kind.item_type}
    else:
        return [f"octet_length({value}) > {_TEXT}"] if _size(kind) == _TEXT else []
    elements = (f"exists({part}, x -> {each})" for part, of in inside.items() for each in _larger("x", of))
    return [f"size({value}) > {_ELEMENTS}", *elements]


def write_small(storage: Storage, rows: pa.Table, plan: WritePlan, layout: jobs.Layout) -> int | None:
    """Check the keys of the rows of a block, and write them in the order of their keys.

    Args:
        storage: the storage of the blocks.
        rows: the rows, with all columns of the block.
        plan: the plan of the block.
        layout: its layout.

    Returns:
        The number of rows that a strong delta removes; None for other blocks.

    Raises:
        KeyViolation: keys are null or duplicate; nothing is written then.
        StorageFailed: the file cannot be written.
    """
    if layout.key:
        rows = sorted_by_key(rows, layout, unique=jobs.must_be_unique(plan, layout))
    removed = pc.sum(pc.min_element_wise(rows["_weight"], 0)).as_py() if plan.is_strong_delta else None
    if not plan.is_base and not isinstance(plan.encoding, Append):
        number = pa.scalar(plan.name.number, pa.int64())
        rows = rows.append_column(NUMBER, pa.repeat(number, rows.num_rows))
    storage.write_rows(plan.name, file_name(0, 0), rows)
    return -int(removed or 0) if plan.is_strong_delta else None


def sorted_by_key(rows: pa.Table, layout: jobs.Layout, *, unique: bool) -> pa.Table:
    """Return the rows of a block in the order of their keys.

    Args:
        rows: the rows.
        layout: the layout of the block, with a key; if it is trusted, keys are not checked.
        unique: whether the keys must be unique.

    Raises:
        KeyViolation: keys are null, or duplicate.
    """
    key = list(layout.key)
    rows = rows.sort_by([(each, "ascending") for each in key])
    if not layout.trusted:
        seen = key_metrics(rows.select(key))
        on.check_keys(seen if unique else {"nulls": seen.get("nulls")}, layout.key)
    return rows
