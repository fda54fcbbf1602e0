"""Blocks of upsert channels, read in this process with Arrow: each as upserts, whatever it is stored as."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kilonova.model.block import Base, Block, StoredFile
from kilonova.model.encoding import DELETED, WEIGHT, Changes
from kilonova.model.schema import Schema
from kilonova.warehouse.arrow_types import arrow_schema
from kilonova.warehouse.storage import Storage


def read_upserts(
    storage: Storage,
    block: Block,
    columns: Schema,
    *,
    files: Iterable[StoredFile] | None = None,
    where: pc.Expression | None = None,
    count: int | None = None,
) -> list[pa.Table]:
    """Return rows of a block with all given columns and `_deleted`: of a key, the last one counts.

    Args:
        storage: the storage of the blocks.
        block: a base, an upsert, or a strong delta over a unique key.
        columns: columns of `stored_types`; those that the block lacks are null.
        files: the files to read; None for all.
        where: the condition that the rows satisfy.
        count: maximum number of rows.

    Raises:
        StorageFailed: a file cannot be read.
    """
    is_base, is_strong = isinstance(block.kind, Base), isinstance(block.encoding, Changes)
    control = () if is_base else (WEIGHT[0],) if is_strong else (DELETED[0],)
    stored = [name for name in columns.names if name in block.seen_as(columns).columns.names]
    files = block.stored or () if files is None else files
    table = storage.table(block.name, files, (*stored, *control), where, count=count)
    schema, size = arrow_schema(columns), table.num_rows
    rows = pa.Table.from_arrays(
        [table[each.name].cast(each.type) if each.name in stored else pa.nulls(size, each.type) for each in schema],
        schema=schema,
    )
    if is_base:
        return [rows.append_column(DELETED[0], pa.array(np.zeros(size, dtype=bool)))]
    if not is_strong:
        return [rows.append_column(DELETED[0], table[DELETED[0]])]
    removed = pc.less(table[WEIGHT[0]], 0)
    signed = rows.append_column(DELETED[0], removed)
    return [signed.filter(removed), signed.filter(pc.invert(removed))]
