"""Comparison of an upsert with the snapshot before it: which rows it changes, and whether it changes any at all.

A few keys are looked up first in large snapshots, because most upserts change something. What is small is compared in
this process with Arrow, the rest by Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kilonova.model.block import Block
from kilonova.model.encoding import DELETED, WEIGHT, key_of
from kilonova.model.read_plan import SnapshotRead
from kilonova.schedule.layout import LayoutThresholds, compares_whole
from kilonova.warehouse import algebra, jobs
from kilonova.warehouse.arrow_types import comparable_types
from kilonova.warehouse.block_rows import names_of, with_new_names
from kilonova.warehouse.blocks import POSITION, Blocks, column, conform
from kilonova.warehouse.equality import differ_at_end
from kilonova.warehouse.local_checks import keys_within, upsert_effect

_FEW = 8
"""Number of keys of an upsert into a large channel to look up first; Parquet skips pages in Spark for up to ten."""

_LOOKED_THROUGH = 256 << 20
"""Uncompressed size of the parts of files in which this process looks those keys up: Arrow skips no pages."""

_LOOKED_UP = ("tinyint", "smallint", "int", "bigint", "string", "date", "decimal", "boolean")
"""Key types whose values equal Python values in any time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertComparison:
    """Comparison of an upsert with the snapshot before it.

    Attributes:
        block: the upsert.
        old: the snapshot, whose deltas are upserts too.
        blocks: the reader of the blocks.
        sizes: the thresholds between physical strategies.
    """

    block: Block
    old: SnapshotRead
    blocks: Blocks
    sizes: LayoutThresholds

    def differs_early(self) -> bool:
        """Return whether one of a few keys changes; False where the snapshot is small, or they are hard to look up."""
        block, old, schema = self.block, self.old, self.block.schema
        if compares_whole(old, self.sizes) or block.external is not None:  # looking up a few is no faster
            return False
        key, storage = key_of(block.encoding), self.blocks.storage
        if self._is_local():
            few = storage.first_rows(block.name, (*schema.names, DELETED[0]), _FEW)
            if few is None:
                return False
            near = keys_within(few, key)
            sizes = [storage.size_where(each.name, each.stored or (), near) for each in old.blocks]
            if sum(sizes) <= _LOOKED_THROUGH:
                return self._effect_of(few, [each for each, size in zip(old.blocks, sizes, strict=True) if size]).any
        known = [name for name in key if schema.type_of(name).partition("(")[0] in _LOOKED_UP]
        some = storage.first_rows(block.name, known, _FEW) if known else None
        if some is None:
            return False
        few = self.blocks.where(
            reduce(and_, (column(name).isin([_literal(row[name]) for row in some.to_pylist()]) for name in known))
        )
        rows = conform(few.deltas((*old.deltas, block), schema), schema, ["_deleted", POSITION])
        if old.base is not None:
            base = conform(few.base(old.base, schema), schema)
            rows = rows.unionByName(base.withColumns({"_deleted": F.lit(False), POSITION: F.lit(-1)}))
        found = jobs.fetch(rows.select(F.struct(*map(column, key)), *map(column, rows.columns)))
        return differ_at_end([(row[0], None if row[-2] else row[1:-2], row[-1]) for row in found])

    def local_effect(self) -> jobs.Effect | None:
        """Count the rows that the upsert adds and removes, in this process; None where that is left to Spark."""
        block = self.block
        size = sum(each.statistics.bytes for each in (block, *self.old.blocks))
        if size > min(self.sizes.full_compare_max, self.sizes.local_check_max) or not self._is_local():
            return None
        names = (*block.schema.names, DELETED[0])
        return self._effect_of(self.blocks.storage.table(block.name, block.stored or (), names), self.old.blocks)

    def counted(self, delta: DataFrame) -> DataFrame:
        """Count the rows that the upsert adds and removes, by Spark.

        Args:
            delta: the upsert's rows.
        """
        block, old, schema = self.block, self.old, self.block.schema
        size = block.statistics.bytes
        return algebra.upserted(
            None if old.base is None else conform(self.blocks.base(old.base, schema), schema),
            self.blocks.deltas(old.deltas, schema) if old.deltas else None,
            delta,
            key_of(block.encoding),
            schema,
            broadcast=size <= self.sizes.broadcast_max,
            single=size + sum(other.statistics.bytes for other in old.blocks) <= self.sizes.single_task_max,
        )

    def _is_local(self) -> bool:
        """Return whether this process can compare the upsert with the snapshot, if both are small."""
        schema = self.block.schema
        return (
            self.sizes.local_check_max > 0
            and all(each.external is None and each.stored is not None for each in (self.block, *self.old.blocks))
            and comparable_types(schema, key_of(self.block.encoding), as_key=True)
            and comparable_types(schema, schema.names)
        )

    def _effect_of(self, rows: pa.Table, before: Sequence[Block]) -> jobs.Effect:
        """Count the rows that some rows of the upsert add to the snapshot and remove from it.

        Args:
            rows: the rows.
            before: the blocks of the snapshot that may have their keys, in order.
        """
        key, older = key_of(self.block.encoding), []
        near = keys_within(rows, key)
        for each in before:
            names = [name for name in names_of(each, self.block.schema) if name != WEIGHT[0]]
            found = self.blocks.storage.table(each.name, each.stored or (), names, near)
            older.append(with_new_names(found, each, self.block.schema))
        return upsert_effect(rows, older, key)


def _literal(value: Any) -> Column:
    """Return a value as a literal; PySpark's own literals of dates fail before the year 1000."""
    return F.lit(value.isoformat()).cast("date") if isinstance(value, date) else F.lit(value)
