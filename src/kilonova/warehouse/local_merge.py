"""Compaction in this process: merging a base with the deltas after it with Arrow, bucket by bucket.

Rows of a key are neighbours once the blocks, which are sorted, are merged by key; the last one counts. This takes less
CPU than a Spark job that only copies the rows. It works for the keys and values of `arrow_types`; others, and blocks
whose buckets are too large for this process, are left to Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kilonova.model.block import Block, BlockName, StoredFile
from kilonova.model.encoding import Changes, Upsert, key_of
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.schema import Schema
from kilonova.warehouse.arrow_types import arrow_schema, comparable_types
from kilonova.warehouse.block_rows import as_upserts, completed, names_of, with_new_names
from kilonova.warehouse.spark_hash import buckets_of, hashes_like_spark, text_matrix, unscaled
from kilonova.warehouse.storage import Storage

_BUCKET = re.compile(r"_(\d+)(?:\.|$)")
_MEMORY = 1 << 30
"""Uncompressed size of the buckets that are merged at once, in bytes, at most."""

_AT_ONCE = 4
"""Number of deltas read concurrently."""

_DELETED = pa.field("_deleted", pa.bool_())


def merges_locally(snapshot: SnapshotRead, columns: Schema) -> bool:
    """Return whether `write_merged` can merge a snapshot.

    Args:
        snapshot: the snapshot.
        columns: its columns, state columns included.
    """
    key, keyed = key_of(snapshot.encoding), (snapshot.encoding, Changes(key_of(snapshot.encoding)))
    return (
        isinstance(snapshot.encoding, Upsert)
        and all(block.encoding in keyed for block in snapshot.deltas)
        and all(block.external is None and block.stored is not None for block in snapshot.blocks)
        and comparable_types(columns, key, as_key=True)
        and comparable_types(columns, columns.names)
        and hashes_like_spark(arrow_schema(columns.only(key)))
    )


def write_merged(storage: Storage, snapshot: SnapshotRead, columns: Schema, name: BlockName, buckets: int) -> bool:
    """Write the rows of a snapshot as the files of a base, sorted by key.

    Args:
        storage: the storage of the blocks.
        snapshot: a snapshot for which `merges_locally` holds.
        columns: the columns to write.
        name: the name of the new block.
        buckets: number of its buckets, a power of two; 0 for one file.

    Returns:
        Whether the files are written; False where the buckets, or texts in keys, are too large for this process.

    Raises:
        StorageFailed: a file cannot be read or written.
    """
    key, base = key_of(snapshot.encoding), snapshot.base
    old = 0 if base is None else base.buckets
    groups = min(old or 1, buckets or 1)
    files = [[file for file in _files(base) if _bucket(file) % groups == group] for group in range(groups)]
    sizes = [0 if base is None else storage.uncompressed_size(base.name, each) for each in files]
    deltas_size = sum(storage.uncompressed_size(each.name, _files(each)) for each in snapshot.deltas)
    largest = max(sizes) + deltas_size // groups
    if deltas_size > _MEMORY or largest > _MEMORY:
        return False
    schema = arrow_schema(columns)

    def merge(group: int, parts: Sequence[pa.Table]) -> None:
        added = _chained(parts, key)
        if base is not None and files[group]:
            whole = storage.table(base.name, files[group], names_of(base, columns))
            merged = overwritten(completed(with_new_names(whole, base, columns), columns), added, key)
        else:
            merged = added.filter(pc.invert(added["_deleted"]))
        merged = merged.select(schema.names)
        if buckets <= groups:
            storage.write_rows(name, file_name(group, buckets), merged)
            return
        place = buckets_of(merged.select(key), buckets)
        for bucket in range(group, buckets, groups):
            storage.write_rows(name, file_name(bucket, buckets), merged.filter(pa.array(place == bucket)))

    try:
        parts = _rows_by_group(storage, snapshot.deltas, columns, key, groups)
        with ThreadPoolExecutor(max(1, min(os.cpu_count() or 1, _MEMORY // max(largest, 1)))) as pool:
            list(pool.map(merge, range(groups), parts))
    except MemoryError:
        storage.delete([name])
        return False
    return True


def write_merged_deltas(
    storage: Storage, deltas: Sequence[Block], columns: Schema, name: BlockName, buckets: int
) -> bool:
    """Write the last row of each key of a chain of upserts, tombstones included, as the files of a delta.

    Args:
        storage: the storage of the blocks.
        deltas: the deltas, in order; `merges_locally` holds for a snapshot of them.
        columns: the columns of the relation.
        name: the name of the new block.
        buckets: number of its buckets; 0 for one file.

    Returns:
        Whether the files are written; False where the deltas, or texts in keys, are too large for this process.

    Raises:
        StorageFailed: a file cannot be read or written.
    """
    if sum(storage.uncompressed_size(each.name, _files(each)) for each in deltas) > _MEMORY:
        return False
    key, groups = key_of(deltas[0].encoding), buckets or 1

    def write(bucket: int, parts: Sequence[pa.Table]) -> None:
        storage.write_rows(name, file_name(bucket, buckets), _chained(parts, key))

    try:
        parts = _rows_by_group(storage, deltas, columns, key, groups)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(write, range(groups), parts))
    except MemoryError:
        storage.delete([name])
        return False
    return True


def newest_rows(rows: pa.Table, key: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the positions of the last row of each key, in the order of the keys.

    Args:
        rows: the rows; those of a block follow those of older blocks. The more they are sorted by key, the faster they
            are merged.
        key: the key columns, without nulls.
    """
    keys = _sortable(rows.select(key))
    order = np.argsort(keys, kind="stable")  # merges sorted runs
    ordered = keys[order]
    newest: npt.NDArray[np.int64] = order[np.append(ordered[1:] != ordered[:-1], True)[: len(order)]]
    return newest


def overwritten(base: pa.Table, delta: pa.Table, key: Sequence[str]) -> pa.Table:
    """M(B, Δ): the rows of a base after an upsert, sorted by key.

    Args:
        base: rows with unique keys; they need not be sorted, but usually are.
        delta: rows with the same columns and `_deleted`, sorted by key, which is unique.
        key: the key columns, without nulls.
    """
    count = base.num_rows
    rows = pa.concat_tables([base, delta.select(base.column_names)])
    keys = _sortable(rows.select(key))
    old, new = keys[:count], keys[count:]
    order = np.arange(count)
    if np.any(old[1:] < old[:-1]):
        order = np.argsort(old, kind="stable")
        old = old[order]
    place = np.searchsorted(old, new)
    found = place < count
    found[found] = old[place[found]] == new[found]
    deleted = delta["_deleted"].to_numpy(zero_copy_only=False)
    from_delta = np.where(deleted, -1, np.arange(count, len(keys)))
    order[place[found]] = from_delta[found]
    order = np.insert(order, place[~found], from_delta[~found])
    return rows.combine_chunks().take(pa.array(order[order >= 0] if deleted.any() else order))


def _rows_by_group(
    storage: Storage, deltas: Sequence[Block], columns: Schema, key: Sequence[str], groups: int
) -> list[list[pa.Table]]:
    """Return the rows of a chain of upserts, with `_deleted`, by group of buckets, older ones first."""

    def split(block: Block) -> list[pa.Table]:
        stored = with_new_names(storage.table(block.name, _files(block), names_of(block, columns)), block, columns)
        rows = pa.concat_tables(as_upserts(block, stored, columns)).combine_chunks()
        if groups == 1:
            return [rows]
        group = buckets_of(rows.select(key), groups).astype(np.uint16)
        rows = rows.take(pa.array(np.argsort(group, kind="stable")))
        ends = [0, *np.cumsum(np.bincount(group, minlength=groups)).tolist()]
        return [rows.slice(begin, end - begin) for begin, end in pairwise(ends)]

    none = arrow_schema(columns).append(_DELETED).empty_table()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        every = list(pool.map(split, deltas))
    return [[none, *(parts[group] for parts in every)] for group in range(groups)]


def _chained(parts: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Return the last row of each key of tables that follow each other, sorted by key."""
    rows = pa.concat_tables(parts).combine_chunks()
    return rows.take(pa.array(newest_rows(rows, key)))


def _files(block: Block | None) -> tuple[StoredFile, ...]:
    return () if block is None or block.stored is None else block.stored


def _bucket(file: StoredFile) -> int:
    """Return the bucket of a file of a bucketed block; 0 for other files, where it does not matter."""
    match = _BUCKET.search(file.name)
    return 0 if match is None else int(match[1])


def file_name(bucket: int, buckets: int) -> str:
    """Return the name of a new file, as Spark would name it."""
    return f"part-{bucket:05d}-{uuid4()}{f'_{bucket:05d}' if buckets else ''}.c000.zstd.parquet"


def _sortable(keys: pa.Table) -> npt.NDArray[Any]:
    """Return values that are ordered as keys are: numbers for a single column of numbers, else texts of bytes."""
    columns = [column.combine_chunks() for column in keys.columns]
    if len(columns) == 1 and not (pa.types.is_string(columns[0].type) or pa.types.is_decimal(columns[0].type)):
        return _numbers(columns[0])
    parts = np.hstack([part for column in columns for part in _ordered_bytes(column)])
    return np.ascontiguousarray(parts).view(f"S{parts.shape[1]}").ravel()


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.int32())
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)


def _ordered_bytes(column: pa.Array) -> list[npt.NDArray[np.uint8]]:
    """Return bytes whose order is that of a key column: of texts, their length comes after them."""
    if pa.types.is_string(column.type):
        texts, lengths = text_matrix(column)
        return [texts, _big_endian(lengths.astype(np.uint32))]
    if pa.types.is_decimal(column.type):
        words = unscaled(column)
        return [_signed(words[:, 1]), _big_endian(words[:, 0].view(np.uint64))]
    return [_signed(_numbers(column))]


def _signed(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    return _big_endian(np.ascontiguousarray(values).view(np.uint64) ^ np.uint64(1 << 63))


def _big_endian(values: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.uint8]:
    wide = np.ascontiguousarray(values).byteswap()
    return wide.view(np.uint8).reshape(len(values), wide.dtype.itemsize)
