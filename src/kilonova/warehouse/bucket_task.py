"""Merging of upserts as tasks of Spark execute it: first the deltas are split by bucket, then each bucket is merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Protocol

import pyarrow as pa
from fsspec import AbstractFileSystem

from kilonova.warehouse.bucket_merge import (
    as_upserts,
    file_name,
    last_rows,
    split_by_bucket,
    write_buckets,
    write_merged,
)
from kilonova.warehouse.parquet_rows import completed, read_batches, recorded

WRITTEN = "bucket int, name string, size bigint, rows bigint, checksum string"
"""Columns of what a task returns: a row for each file that it has written."""

Written = tuple[int, str, int, int, str]


@dataclass(frozen=True, kw_only=True)
class RowFile:
    """File of a block.

    Attributes:
        path: its path on the file system of the warehouse.
        names: the stored names of the columns to read, each with its name in the relation.
    """

    path: str
    names: Mapping[str, str]


class NumberedTask(Protocol):
    """One of a number of tasks, each of which writes files."""

    def run(self, number: int) -> list[Written]:
        """Execute the task with a number, and describe the files that it has written."""


def run_tasks(task: NumberedTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Execute tasks, as a function for `mapInArrow`.

    Args:
        task: the tasks.
        batches: rows with one column, the numbers of the tasks to execute.

    Returns:
        A row with the columns `WRITTEN` for each file.
    """
    types = (pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.string())
    for batch in batches:
        found = [file for number in batch.column(0).to_pylist() for file in task.run(number)]
        columns = zip(*found, strict=True) if found else [()] * len(types)
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=["bucket", "name", "size", "rows", "checksum"])


@dataclass(frozen=True, kw_only=True)
class SplitTask:
    """Split of some deltas by bucket: each task writes a file with one record batch per bucket, sorted by key.

    Attributes:
        files: the file system of the warehouse.
        deltas: for each task, the files of each of its deltas, older ones first.
        schema: the columns of the relation.
        key: the key columns.
        buckets: number of buckets.
        target: the directory to write files to.
    """

    files: AbstractFileSystem
    deltas: Sequence[Sequence[Sequence[RowFile]]]
    schema: pa.Schema
    key: Sequence[str]
    buckets: int
    target: str

    def run(self, number: int) -> list[Written]:
        """Split the deltas of a task."""
        parts = (part for delta in self.deltas[number] for part in _upserts(self.files, delta, self.schema))
        rows = last_rows([*parts], self.key)
        self.files.makedirs(self.target, exist_ok=True)
        name, options = f"{file_name(number, 0)}.arrow", pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            self.files.open(f"{self.target}/{name}", "wb") as opened,
            pa.ipc.new_file(opened, rows.schema, options=options) as writer,
        ):
            for part in split_by_bucket(rows, self.key, self.buckets):
                arrays = [column.combine_chunks() for column in part.columns]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=rows.schema))
        return [(number, name, 0, rows.num_rows, "")]


@dataclass(frozen=True, kw_only=True)
class MergeTask:
    """Merge of the rows of a bucket: each task writes the files of the buckets of the new block that it falls into.

    Attributes:
        files: the file system of the warehouse.
        base: the file of each bucket of the base; None if there is no base, to write the upserts with tombstones.
        chain: the upserts, older ones first: the path of a file that `SplitTask` wrote, or the files of a delta
            that is laid out in the same buckets.
        schema: the columns of the relation.
        key: the key columns.
        tasks: number of tasks, and of buckets of the base and the chain.
        buckets: number of buckets of the new block, a multiple of the number of tasks.
        target: the directory to write files to.
    """

    files: AbstractFileSystem
    base: Mapping[int, RowFile] | None
    chain: Sequence[str | Mapping[int, RowFile]]
    schema: pa.Schema
    key: Sequence[str]
    tasks: int
    buckets: int
    target: str

    def run(self, number: int) -> list[Written]:
        """Merge the rows of a bucket."""
        parts = (part for each in self.chain for part in self._part(each, number))
        upserts = last_rows([as_upserts(self.schema.empty_table(), self.schema)[0], *parts], self.key)
        written = range(number, self.buckets, self.tasks)
        names = {bucket: file_name(bucket, self.buckets) for bucket in written}
        self.files.makedirs(self.target, exist_ok=True)

        def create(bucket: int) -> AbstractContextManager[IO[bytes]]:
            opened: AbstractContextManager[IO[bytes]] = self.files.open(f"{self.target}/{names[bucket]}", "wb")
            return opened

        if self.base is None:
            write_buckets([upserts], self.key, upserts.schema, written, self.buckets, create)
        else:
            file = self.base.get(number)

            def rows() -> Iterator[pa.Table]:
                if file is not None:
                    with self.files.open(file.path, "rb") as opened:
                        yield from (completed(rows, self.schema) for rows in read_batches(opened, file.names))

            def write(merged: Iterable[pa.Table]) -> None:
                write_buckets(merged, self.key, self.schema, written, self.buckets, create)

            write_merged(rows, upserts, self.key, write)
        return [(bucket, name, *recorded(self.files, f"{self.target}/{name}")) for bucket, name in names.items()]

    def _part(self, part: str | Mapping[int, RowFile], number: int) -> list[pa.Table]:
        """Return the rows of a bucket in one part of the chain."""
        if not isinstance(part, str):
            return _upserts(self.files, [part[number]] if number in part else [], self.schema)
        with self.files.open(part, "rb") as opened, pa.ipc.open_file(opened) as reader:
            return [pa.Table.from_batches([reader.get_batch(number)])]


def _upserts(files: AbstractFileSystem, delta: Iterable[RowFile], schema: pa.Schema) -> list[pa.Table]:
    """Return the rows of a delta, with `_deleted`, in the order in which they apply."""
    stored: list[pa.Table] = []
    for file in delta:
        with files.open(file.path, "rb") as opened:
            stored += read_batches(opened, file.names)
    return as_upserts(pa.concat_tables(stored), schema) if stored else []
