"""Parquet files of rows, read and written with Arrow as Spark would.

Python processes of Spark's workers use it too, which may lack Kilonova (see `task_merge`): nothing of it is imported.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

_CALENDAR = {"org.apache.spark.version": "4.3.0"}
"""Metadata by which Spark knows that dates are of the calendar that it uses since version 3."""

_ROWS_TOGETHER = 1 << 20
"""Number of rows in a row group, at most: to look up a few keys, all of the row groups that may have them are read."""

_MEMORY = 256 << 20
"""Size in memory, in bytes, from which on rows are a row group, even if they are fewer."""

_BATCH = 1 << 18
"""Number of rows that are read at a time."""

_SAMPLE = 1 << 14
"""Number of rows in which repeated values of a column are looked for."""


def completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with exactly the columns of a schema, null where they are absent."""
    arrays = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def read_batches(opened: IO[bytes], names: Mapping[str, str]) -> Iterator[pa.Table]:
    """Return the rows of a file, some at a time.

    Args:
        opened: the file.
        names: the names of the columns to read, each with the name to give to it.
    """
    file = parquet.ParquetFile(opened, coerce_int96_timestamp_unit="us")
    for batch in file.iter_batches(_BATCH, columns=list(names)):
        rows = pa.Table.from_batches([batch])
        yield rows.rename_columns([names[name] for name in rows.column_names])


class RowWriter:
    """Writer of a file, in row groups of up to a million rows; a context manager, at whose end the file is complete.

    Args:
        opened: the file.
        schema: the columns.
    """

    def __init__(self, opened: IO[bytes], schema: pa.Schema) -> None:
        self._opened, self._schema = opened, schema
        self._writer: parquet.ParquetWriter | None = None
        self._rows = schema.empty_table()

    def write(self, rows: pa.Table) -> None:
        """Write rows after those before."""
        self._rows = pa.concat_tables([self._rows, rows.select(self._schema.names)])
        while self._rows.num_rows >= _ROWS_TOGETHER or self._rows.nbytes >= _MEMORY:
            self._flush()

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and (self._rows.num_rows or self._writer is None):
            self._flush()
        if self._writer is not None:
            with nullcontext() if kind is None else suppress(OSError, ValueError):
                self._writer.close()

    def _flush(self) -> None:
        """Write a row group."""
        rows = self._rows.slice(0, _ROWS_TOGETHER)
        self._rows = self._rows.slice(_ROWS_TOGETHER)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(
                self._opened,
                self._schema.with_metadata(_CALENDAR),
                compression="zstd",
                use_dictionary=_repeated(rows),
                store_schema=False,
                store_decimal_as_integer=True,
                write_page_index=True,
            )
        self._writer.write_table(rows.replace_schema_metadata(_CALENDAR), row_group_size=_ROWS_TOGETHER)


def _repeated(rows: pa.Table) -> list[str]:
    """Return the columns whose values repeat: in others, a dictionary saves no space and doubles the time to write."""
    some = rows.slice(0, _SAMPLE)
    return [name for name in rows.column_names if 2 * len(pc.unique(some[name])) <= some.num_rows]


def recorded(files: AbstractFileSystem, path: str) -> tuple[int, int, str]:
    """Return the size in bytes of a file that was just written, its number of rows, and its SHA-256 checksum.

    A local file is flushed to disk.
    """
    with files.open(path, "rb") as file:
        checksum = str(hashlib.file_digest(file, "sha256").hexdigest())
        size = int(file.tell())
        rows = int(parquet.ParquetFile(file).metadata.num_rows)
        if isinstance(files, LocalFileSystem):
            os.fsync(file.fileno())
    return size, rows, checksum
