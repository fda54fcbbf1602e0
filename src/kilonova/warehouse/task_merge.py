"""Compaction in Spark's tasks: merging a base with the deltas after it with Arrow, one task per bucket.

Spark distributes the rows of the deltas over the buckets of the base, in the order of their keys. The task of a bucket
reads the file of the base and writes the merged rows without Java, so that only the deltas pass between the two. Spark
sends the functions that do this to its workers: Kilonova need not be installed there, but fsspec with the driver of the
warehouse's file system must be. Files are written to a hidden directory, and moved to the block once all tasks have
ended, so that readers never find what a task that is executed twice leaves behind.
"""

from __future__ import annotations

import logging

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kilonova.model.block import Block, BlockName, StoredFile
from kilonova.model.encoding import DELETED
from kilonova.model.schema import Schema
from kilonova.warehouse import bucket_merge, bucket_task, parquet_rows, spark_hash
from kilonova.warehouse.arrow_types import arrow_schema
from kilonova.warehouse.block_rows import new_names
from kilonova.warehouse.blocks import POSITION, column
from kilonova.warehouse.bucket_task import WRITTEN, BucketTask
from kilonova.warehouse.jobs import fetch
from kilonova.warehouse.local_merge import bucket_of, stored_files
from kilonova.warehouse.spark_errors import is_cancelled, summarize_error
from kilonova.warehouse.storage import Storage

log = logging.getLogger(__name__)

for _module in (bucket_merge, bucket_task, parquet_rows, spark_hash):
    cloudpickle.register_pickle_by_value(_module)


class TaskMerge:
    """Merging of the blocks of one warehouse in Spark's tasks.

    Args:
        storage: the storage of the blocks.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._failed: set[Schema] = set()

    def write(
        self,
        base: Block | None,
        upserts: DataFrame,
        columns: Schema,
        key: tuple[str, ...],
        name: BlockName,
        buckets: int,
    ) -> tuple[StoredFile, ...] | None:
        """Write the files of a block, with one task per bucket of the base, or of the block if there is no base.

        Args:
            base: the base, with buckets, to which the upserts apply; None to write the last upsert of each key,
                tombstones included.
            upserts: rows of deltas with the columns of the relation, `_deleted` and their position in the chain.
            columns: the columns of the relation, of types for which `local_merge.merges_by_arrow` holds.
            key: the key columns.
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
        files, place = self._storage.drafts(name)
        stored, source = stored_files(base), "" if base is None else self._storage.location(base.name)
        task = BucketTask(
            files=files,
            base=None if base is None else {bucket_of(file): f"{source}/{file.name}" for file in stored},
            names={} if base is None else new_names(base, columns),
            upserts=arrow_schema(columns).append(pa.field(DELETED[0], pa.bool_())),
            key=key,
            tasks=buckets if base is None else base.buckets,
            buckets=buckets,
            target=place,
        )
        names = (*columns.names, DELETED[0], POSITION)
        plain = [f"c{place}" for place in range(len(names))]  # PySpark resolves names with dots as fields
        keys = [plain[names.index(each)] for each in key]
        rows = upserts.select(*map(column, names)).toDF(*plain)
        by_bucket = rows.repartition(task.tasks, *keys).sortWithinPartitions(*keys, plain[-1])
        try:
            found = fetch(by_bucket.mapInArrow(lambda batches: task.run(batches), WRITTEN))
        except PySparkException as error:
            if is_cancelled(error):
                raise
            problem = summarize_error(error)
        else:
            written = [StoredFile(name=file, size=size, rows=rows, checksum=sha) for _, file, size, rows, sha in found]
            if sorted(bucket for bucket, *_ in found) == list(range(buckets)):
                return self._storage.adopt(name, written)
            problem = f"{len(found)} files were written for {buckets} buckets"
        log.warning("Spark's Python workers cannot merge the blocks of %s; Java does: %s", self._storage.url, problem)
        self._failed.add(columns)
        self._storage.delete([name])
        return None
