"""The merge of one bucket, as a task of Spark executes it (see `task_merge`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
from fsspec import AbstractFileSystem
from pyspark import TaskContext

from kilonova.warehouse.bucket_merge import file_name, last_rows, write_buckets, write_merged
from kilonova.warehouse.parquet_rows import completed, read_batches, recorded
from kilonova.warehouse.spark_hash import buckets_of

WRITTEN = "bucket int, name string, size bigint, rows bigint, checksum string"
"""Columns of what a task returns: a row for each file that it has written."""


@dataclass(frozen=True, kw_only=True)
class BucketTask:
    """Merge of the rows of one bucket.

    Attributes:
        files: the file system of the blocks.
        base: the file of each bucket of the base; None if there is no base, to write deltas with their tombstones.
        names: the stored names of the base's columns to read, each with its name in the relation.
        upserts: the columns of the upserts: those of the relation, and `_deleted`; there may be further ones.
        key: the key columns.
        tasks: number of tasks.
        buckets: number of buckets of the new block, a multiple of the number of tasks.
        target: the directory to write files to.
    """

    files: AbstractFileSystem
    base: Mapping[int, str] | None
    names: Mapping[str, str]
    upserts: pa.Schema
    key: Sequence[str]
    tasks: int
    buckets: int
    target: str

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge the rows of the bucket that has the number of this task.

        Args:
            batches: rows of upserts, in the order of their keys and their positions in the chain.

        Returns:
            A row with the columns `WRITTEN` for each file.
        """
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        columns = self.upserts.names
        given = (
            pa.Table.from_batches([batch]).select(range(len(columns))).rename_columns(columns) for batch in batches
        )
        upserts = last_rows([self.upserts.empty_table(), *(completed(rows, self.upserts) for rows in given)], self.key)
        if np.any(buckets_of(upserts.select(self.key), self.tasks) != task):
            raise RuntimeError("Spark passed on rows of another bucket")
        written = range(task, self.buckets, self.tasks)
        names = {bucket: file_name(bucket, self.buckets) for bucket in written}
        self.files.makedirs(self.target, exist_ok=True)

        def create(bucket: int) -> AbstractContextManager[IO[bytes]]:
            opened: AbstractContextManager[IO[bytes]] = self.files.open(f"{self.target}/{names[bucket]}", "wb")
            return opened

        if self.base is None:
            write_buckets([upserts], self.key, self.upserts, written, self.buckets, create)
        else:
            schema = self.upserts.remove(self.upserts.get_field_index("_deleted"))
            base = self.base.get(task)

            def rows() -> Iterator[pa.Table]:
                if base is not None:
                    with self.files.open(base, "rb") as opened:
                        yield from read_batches(opened, self.names, schema)

            def write(merged: Iterable[pa.Table]) -> None:
                write_buckets(merged, self.key, schema, written, self.buckets, create)

            write_merged(rows, upserts, self.key, write)
        found = [(bucket, name, *recorded(self.files, f"{self.target}/{name}")) for bucket, name in names.items()]
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, kind) for values, kind in zip(zip(*found, strict=True), _TYPES, strict=True)],
            names=["bucket", "name", "size", "rows", "checksum"],
        )

    def _typed(self, batch: pa.RecordBatch) -> pa.Table:
        """Return rows as Spark passes them with the names and types of upserts."""
        rows = pa.Table.from_batches([batch]).select(range(len(self.upserts.names)))
        return completed(rows.rename_columns(self.upserts.names), self.upserts)


_TYPES = (pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.string())
