"""Compaction in this process: merging a base with the deltas after it with Arrow, bucket by bucket.

This takes less CPU than a Spark job that only copies the rows. It works for the keys and values of `arrow_types`;
others, and deltas that are too large for this process, are left to Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa

from kilonova.model.block import Block, BlockName, StoredFile
from kilonova.model.encoding import Changes, Upsert, key_of
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.schema import Schema
from kilonova.warehouse import bucket_merge
from kilonova.warehouse.arrow_types import arrow_schema, comparable_types
from kilonova.warehouse.block_rows import names_of, new_names, with_new_names
from kilonova.warehouse.bucket_merge import as_upserts, file_name, last_rows, split_by_bucket, write_buckets
from kilonova.warehouse.parquet_rows import completed
from kilonova.warehouse.spark_hash import hashes_like_spark
from kilonova.warehouse.storage import Storage

_BUCKET = re.compile(r"_(\d+)(?:\.|$)")
_MEMORY = 1 << 30
"""Uncompressed size of the rows that are in memory at once, in bytes, at most."""

_AT_ONCE = 4
"""Number of deltas read concurrently."""


def merges_by_arrow(snapshot: SnapshotRead, columns: Schema) -> bool:
    """Return whether the blocks of a snapshot can be merged without Spark.

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
        snapshot: a snapshot for which `merges_by_arrow` holds.
        columns: the columns to write.
        name: the name of the new block.
        buckets: number of its buckets, a power of two; 0 for one file.

    Returns:
        Whether the files are written; False where the deltas, or texts in keys, are too large for this process.

    Raises:
        StorageFailed: a file cannot be read or written.
    """
    key, base, schema = key_of(snapshot.encoding), snapshot.base, arrow_schema(columns)
    groups = min(0 if base is None else base.buckets, buckets) or 1
    files = [[file for file in stored_files(base) if bucket_of(file) % groups == group] for group in range(groups)]
    # the rows of one file are sorted, and need not be in memory
    wholes = [storage.uncompressed_size(base.name, each) for each in files if base is not None and len(each) > 1]
    deltas_size = sum(storage.uncompressed_size(each.name, stored_files(each)) for each in snapshot.deltas)
    largest = max(wholes, default=0) + deltas_size // groups
    if deltas_size > _MEMORY or largest > _MEMORY:
        return False

    def rows(group: int) -> Iterator[pa.Table]:
        if base is not None:
            for file in files[group]:
                stored = storage.batches(base.name, file, new_names(base, columns))
                yield from (completed(rows, schema) for rows in stored)

    def merge(group: int, parts: Sequence[pa.Table]) -> None:
        written = range(group, max(buckets, 1), groups)
        names = {bucket: file_name(bucket, buckets) for bucket in written}

        def write(merged: Iterable[pa.Table]) -> None:
            write_buckets(merged, key, schema, written, buckets, lambda bucket: storage.created(name, names[bucket]))

        bucket_merge.write_merged(partial(rows, group), last_rows(parts, key), key, write)

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
) -> tuple[StoredFile, ...] | None:
    """Write the last row of each key of a chain of upserts, tombstones included, as the files of a delta.

    Args:
        storage: the storage of the blocks.
        deltas: the deltas, in order; `merges_by_arrow` holds for a snapshot of them.
        columns: the columns of the relation.
        name: the name of the new block.
        buckets: number of its buckets; 0 for one file.

    Returns:
        The files; None where the deltas, or texts in keys, are too large for this process.

    Raises:
        StorageFailed: a file cannot be read or written.
    """
    if sum(storage.uncompressed_size(each.name, stored_files(each)) for each in deltas) > _MEMORY:
        return None
    key, groups = key_of(deltas[0].encoding), buckets or 1

    def write(bucket: int, parts: Sequence[pa.Table]) -> StoredFile:
        return storage.write_rows(name, file_name(bucket, buckets), last_rows(parts, key))

    try:
        parts = _rows_by_group(storage, deltas, columns, key, groups)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return tuple(pool.map(write, range(groups), parts))
    except MemoryError:
        storage.delete([name])
        return None


def stored_files(block: Block | None) -> tuple[StoredFile, ...]:
    """Return the files of a block; none where there is no block."""
    return () if block is None or block.stored is None else block.stored


def bucket_of(file: StoredFile) -> int:
    """Return the bucket of a file of a bucketed block; 0 for other files, where it does not matter."""
    match = _BUCKET.search(file.name)
    return 0 if match is None else int(match[1])


def _rows_by_group(
    storage: Storage, deltas: Sequence[Block], columns: Schema, key: Sequence[str], groups: int
) -> list[list[pa.Table]]:
    """Return the rows of a chain of upserts, with `_deleted`, by group of buckets, older ones first."""
    schema = arrow_schema(columns)

    def split(block: Block) -> list[pa.Table]:
        stored = storage.table(block.name, stored_files(block), names_of(block, columns))
        rows = pa.concat_tables(as_upserts(with_new_names(stored, block, columns), schema)).combine_chunks()
        return split_by_bucket(rows, key, groups)

    (none,) = as_upserts(schema.empty_table(), schema)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        every = list(pool.map(split, deltas))
    return [[none, *(parts[group] for parts in every)] for group in range(groups)]
