"""Comparison of an upsert with the snapshot before it: which rows it changes, and whether it changes any at all.

A few keys are looked up first in large snapshots, because most upserts change something. What is small is compared in
this process with Arrow, the rest by Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kilonova.model.block import Block
from kilonova.model.encoding import Changes, Upsert
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.schema import Schema
from kilonova.schedule.layout import LayoutThresholds, compares_whole
from kilonova.warehouse import algebra, jobs
from kilonova.warehouse.arrow_types import comparable_types
from kilonova.warehouse.blocks import POSITION, Blocks, column, conform
from kilonova.warehouse.equality import differ_at_end
from kilonova.warehouse.local_checks import keys_within, upsert_changes
from kilonova.warehouse.local_reads import read_upserts

_FEW = 8
"""Number of keys of an upsert into a large channel to look up first; Parquet skips pages in Spark for up to ten."""

_LOOKED_THROUGH = 256 << 20
"""Uncompressed size of the parts of files in which this process looks those keys up: Arrow skips no pages."""

_LOOKED_UP = ("tinyint", "smallint", "int", "bigint", "string", "date", "decimal", "boolean")
"""Key types whose values equal Python values in any time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertComparison:
    """Comparison of upserts with the snapshot before them.

    Attributes:
        old: the snapshot.
        schema: the relation's schema after the upsert.
        encoding: the encoding of the upsert.
        blocks: the reader of the blocks.
        sizes: the thresholds between physical strategies.
    """

    old: SnapshotRead
    schema: Schema
    encoding: Upsert
    blocks: Blocks
    sizes: LayoutThresholds

    def is_local(self, size: int) -> bool:
        """Return whether this process compares an upsert of a size in bytes, as both it and the snapshot are small."""
        whole = size + sum(each.statistics.bytes for each in self.old.blocks)
        return whole <= min(self.sizes.full_compare_max, self.sizes.local_check_max) and self._reads_locally()

    def changes(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows that an upsert removes from the snapshot and adds to it, compared in this process.

        Args:
            rows: the upsert's rows, with all columns of the relation and `_deleted`; the keys are unique and not null.
        """
        key, storage = self.encoding.key, self.blocks.storage
        near = keys_within(rows, key)
        older = [read_upserts(storage, each, self.schema, where=near) for each in self.old.blocks]
        return upsert_changes(rows, [part for parts in older for part in parts], key)

    def differs_early(self, block: Block) -> bool:
        """Return whether one of a few keys changes; False where the snapshot is small, or they are hard to look up.

        Args:
            block: the upsert.
        """
        if compares_whole(self.old, self.sizes) or block.external is not None:  # looking up a few is no faster
            return False
        old, schema, key, storage = self.old, self.schema, self.encoding.key, self.blocks.storage
        if self._reads_locally():
            (few,) = read_upserts(storage, block, schema, count=_FEW)
            near = keys_within(few, key)
            sizes = (storage.size_where(each.name, each.stored or (), near) for each in old.blocks)
            if sum(sizes) <= _LOOKED_THROUGH:
                return any(part.num_rows for part in self.changes(few))
        known = [name for name in key if schema.type_of(name).partition("(")[0] in _LOOKED_UP]
        some = storage.first_rows(block.name, known, _FEW) if known else []
        if not some:
            return False
        found = self.blocks.where(
            reduce(and_, (column(name).isin([_literal(row[name]) for row in some]) for name in known))
        )
        rows = conform(found.deltas((*old.deltas, block), schema), schema, ["_deleted", POSITION])
        if old.base is not None:
            base = conform(found.base(old.base, schema), schema)
            rows = rows.unionByName(base.withColumns({"_deleted": F.lit(False), POSITION: F.lit(-1)}))
        fetched = jobs.fetch(rows.select(F.struct(*map(column, key)), *map(column, rows.columns)))
        return differ_at_end([(row[0], None if row[-2] else row[1:-2], row[-1]) for row in fetched])

    def effect(self, block: Block, delta: Callable[[], DataFrame]) -> jobs.Effect:
        """Count the rows that an upsert adds to the snapshot and removes from it.

        Args:
            block: the upsert.
            delta: returns its rows, for Spark.
        """
        old, schema, size = self.old, self.schema, block.statistics.bytes
        if block.external is None and self.is_local(size):
            (rows,) = read_upserts(self.blocks.storage, block, schema)
            removed, added = self.changes(rows)
            return jobs.Effect(added=added.num_rows, removed=removed.num_rows)
        return jobs.effect(
            algebra.upserted(
                None if old.base is None else conform(self.blocks.base(old.base, schema), schema),
                self.blocks.deltas(old.deltas, schema) if old.deltas else None,
                delta(),
                self.encoding.key,
                schema,
                broadcast=size <= self.sizes.broadcast_max,
                single=size + sum(other.statistics.bytes for other in old.blocks) <= self.sizes.single_task_max,
            )
        )

    def _reads_locally(self) -> bool:
        """Return whether this process can read and compare the snapshot's rows."""
        key = self.encoding.key
        return (
            self.sizes.local_check_max > 0
            and all(each.encoding in (self.encoding, Changes(key)) for each in self.old.deltas)
            and all(each.external is None and each.stored is not None for each in self.old.blocks)
            and comparable_types(self.schema, key, as_key=True)
            and comparable_types(self.schema, self.schema.names)
        )


def _literal(value: Any) -> Column:
    """Return a value as a literal; PySpark's own literals of dates fail before the year 1000."""
    return F.lit(value.isoformat()).cast("date") if isinstance(value, date) else F.lit(value)
