"""Rows of blocks as Arrow tables, with the columns of a relation."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kilonova.model.block import Block
from kilonova.model.encoding import DELETED, WEIGHT
from kilonova.model.schema import Schema
from kilonova.warehouse import parquet_rows
from kilonova.warehouse.arrow_types import arrow_schema


def names_of(block: Block, columns: Schema) -> list[str]:
    """Return the stored names of the columns to read from a block.

    They are its control column, and the columns of a relation that it has.
    """
    wanted = (*columns.names, DELETED[0], WEIGHT[0])
    stored = block.seen_as(columns).columns
    names = stored.new_names(columns)
    return [name for name in stored.names if names.get(name, name) in wanted]


def new_names(block: Block, columns: Schema) -> dict[str, str]:
    """Return the stored names of the columns to read from a block, each with the name that it has in a relation."""
    names = block.columns.new_names(columns)
    return {name: names.get(name, name) for name in names_of(block, columns)}


def with_new_names(rows: pa.Table, block: Block, columns: Schema) -> pa.Table:
    """Return rows as a block stores them, with the names that their columns have in a relation."""
    names = block.columns.new_names(columns)
    return rows.rename_columns([names.get(name, name) for name in rows.column_names]) if names else rows


def completed(rows: pa.Table, columns: Schema) -> pa.Table:
    """Return rows with exactly the given columns, null where they are absent.

    Args:
        rows: the rows, as a block stores them.
        columns: columns of types of `arrow_types`.
    """
    return parquet_rows.completed(rows, arrow_schema(columns))


def last_places(keys: pa.Table) -> npt.NDArray[np.int64]:
    """Return the place of the last row of each key, in no order.

    Keys are hashed, not sorted as in `bucket_merge.last_rows`, which pads texts to the longest.
    """
    named = keys.rename_columns([f"k{place}" for place in range(keys.num_columns)])
    places = named.append_column("place", pa.array(np.arange(keys.num_rows)))
    last = places.group_by(named.column_names, use_threads=False).aggregate([("place", "max")])["place_max"]
    return cast("npt.NDArray[np.int64]", last.to_numpy())
