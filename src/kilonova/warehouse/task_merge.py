"""Compaction in Spark's tasks: merging a base with the deltas after it with Arrow, one task per bucket.

Tasks split the deltas by bucket first, unless they are laid out like the base. Then the task of a bucket reads the file
of the base and its part of the deltas, and writes the merged rows. Rows never pass through Java, which takes longer
than all of this. Spark sends the functions to its workers: Kilonova need not be installed there, but fsspec with the
driver of the warehouse's file system must be. Files are written to a hidden directory, and moved to the block once all
tasks have ended, so that readers never find what a task that is executed twice leaves behind.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kilonova.model.block import Block, BlockName, StoredFile
from kilonova.model.encoding import Changes, key_of
from kilonova.model.schema import Schema
from kilonova.warehouse import bucket_merge, bucket_task, parquet_rows, spark_hash
from kilonova.warehouse.arrow_types import arrow_schema
from kilonova.warehouse.block_rows import new_names
from kilonova.warehouse.bucket_task import WRITTEN, MergeTask, NumberedTask, RowFile, SplitTask, Written, run_tasks
from kilonova.warehouse.jobs import fetch
from kilonova.warehouse.local_merge import bucket_of, stored_files
from kilonova.warehouse.spark_errors import is_cancelled, summarize_error
from kilonova.warehouse.storage import Storage

log = logging.getLogger(__name__)

for _module in (bucket_merge, bucket_task, parquet_rows, spark_hash):
    cloudpickle.register_pickle_by_value(_module)

_SPLIT = 16 << 20
"""Size in bytes of the deltas that one task splits by bucket, unless one of them is larger."""


class TaskMerge:
    """Merging of the blocks of one warehouse in Spark's tasks.

    Args:
        spark: the session.
        storage: the storage of the blocks.
    """

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self._spark, self._storage = spark, storage
        self._failed: set[Schema] = set()

    def write(
        self, base: Block | None, deltas: Sequence[Block], columns: Schema, name: BlockName, buckets: int
    ) -> tuple[StoredFile, ...] | None:
        """Write the files of a block, with one task per bucket of the base, or of the block if there is no base.

        Args:
            base: the base, with buckets, to which the deltas apply; None to write the last upsert of each key,
                tombstones included.
            deltas: the deltas, at least one, in order; `local_merge.merges_by_arrow` holds for a snapshot of them.
            columns: the columns of the relation.
            name: the name of the new block.
            buckets: number of its buckets, a multiple of the number of those of the base.

        Returns:
            The files; None where Spark's Python workers fail, because they cannot read the warehouse or have too
            little memory. Nothing is left of them then, and they are not tried again for these columns.

        Raises:
            KilonovaError: Spark has stopped, or the disk is full.
            PySparkException: the job was cancelled.
        """
        if columns in self._failed:
            return None
        try:
            found = self._merged(base, deltas, columns, name, buckets)
        except PySparkException as error:
            if is_cancelled(error):
                raise
            log.warning("Spark merges blocks of %s without Python: %s", self._storage.url, summarize_error(error))
            self._failed.add(columns)
            self._storage.delete([name])
            return None
        return self._storage.adopt(
            name, (StoredFile(name=file, size=size, rows=rows, checksum=sha) for _, file, size, rows, sha in found)
        )

    def _merged(
        self, base: Block | None, deltas: Sequence[Block], columns: Schema, name: BlockName, buckets: int
    ) -> list[Written]:
        """Execute the tasks, and return the files that they have written to the hidden directory of the new block."""
        schema, key = arrow_schema(columns), key_of(deltas[0].encoding)
        tasks = buckets if base is None else base.buckets
        files, place = self._storage.drafts(name)
        chain: list[int | Mapping[int, RowFile]] = []
        parts: list[list[list[RowFile]]] = []
        for aligned, group in groupby(deltas, lambda block: block.buckets == tasks):
            if aligned:
                chain += (self._by_bucket(block, columns) for block in group)
                continue
            found = _parts(piece for block in group for piece in self._pieces(block, columns))
            chain += range(len(parts), len(parts) + len(found))
            parts += found
        split = SplitTask(files=files, deltas=parts, schema=schema, key=key, buckets=tasks, target=place)
        paths = {number: f"{place}/{file}" for number, file, *_ in self._run(split, len(parts))}
        merge = MergeTask(
            files=files,
            base=None if base is None else self._by_bucket(base, columns),
            chain=[paths[each] if isinstance(each, int) else each for each in chain],
            schema=schema,
            key=key,
            tasks=tasks,
            buckets=buckets,
            target=place,
        )
        return self._run(merge, tasks)

    def _run(self, task: NumberedTask, count: int) -> list[Written]:
        """Execute a number of tasks, and return the files that they have written."""
        if not count:
            return []
        numbers = self._spark.range(0, count, 1, count)
        rows = fetch(numbers.mapInArrow(lambda batches: run_tasks(task, batches), WRITTEN))
        return [(bucket, file, size, rows, checksum) for bucket, file, size, rows, checksum in rows]

    def _files(self, block: Block, columns: Schema) -> list[RowFile]:
        """Return the files of a block."""
        place, names = self._storage.location(block.name), new_names(block, columns)
        return [RowFile(path=f"{place}/{file.name}", names=names) for file in stored_files(block)]

    def _by_bucket(self, block: Block, columns: Schema) -> dict[int, RowFile]:
        """Return the files of a block that is laid out in buckets by their bucket."""
        return dict(zip(map(bucket_of, stored_files(block)), self._files(block, columns), strict=True))

    def _pieces(self, block: Block, columns: Schema) -> list[tuple[int, list[RowFile]]]:
        """Return the files of a delta that one task has to read, with their size in bytes.

        A strong delta is one piece: it may remove a row and add another with the same key.
        """
        files = self._files(block, columns)
        if isinstance(block.encoding, Changes):
            return [(block.statistics.bytes, files)]
        return [(stored.size, [file]) for stored, file in zip(stored_files(block), files, strict=True)]


def _parts(pieces: Iterable[tuple[int, list[RowFile]]]) -> list[list[list[RowFile]]]:
    """Return parts of a chain of deltas, given its pieces and their sizes: each is small enough for a task."""
    parts: list[list[list[RowFile]]] = []
    together = 0
    for size, files in pieces:
        if not parts or together + size > _SPLIT:
            parts.append([])
            together = 0
        parts[-1].append(files)
        together += size
    return parts
