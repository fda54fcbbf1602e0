"""Interfaces of the warehouse that the engine uses; Spark is behind them.

Rows are opaque to the engine: a *frame* is the type that the warehouse reads, writes and passes to tasks. With Spark it
is a DataFrame; the tests use a warehouse in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from typing import Protocol, TypeVar

from kilonova.model.block import Block, BlockName, External
from kilonova.model.column_mapping import ColumnMapping
from kilonova.model.encoding import Encoding
from kilonova.model.progress import TaskCount
from kilonova.model.read_plan import KeyLookup, ReadPlan, SnapshotRead
from kilonova.model.schema import Schema
from kilonova.model.write_plan import WritePlan
from kilonova.schedule.layout import LayoutThresholds

Frame = TypeVar("Frame")


class BlockStore(Protocol):
    """The files of a warehouse."""

    def delete(self, blocks: Iterable[BlockName]) -> None:
        """Delete the directories of blocks; missing ones count as deleted."""

    def blocks(self) -> list[BlockName]:
        """Return the names of the blocks that have a directory."""

    def seal(self, block: BlockName, manifest: str) -> None:
        """Write a manifest into the directory of a block, and sync all of its files to disk."""

    def unseal(self, placements: Iterable[tuple[BlockName, str]]) -> None:
        """Delete the manifests and markers of placements that are not, or no longer, published; missing ones count."""

    def mark_committed(self, placements: Iterable[tuple[BlockName, str]]) -> None:
        """Write markers for placements of blocks, by the digests of their manifests, that a catalog has published."""

    def keep_log(self, run: int, day: date, text: str) -> None:
        """Write the log of a run that began on a day, replacing an existing one."""

    def delete_logs(self, before: date) -> None:
        """Delete the logs of the runs that began before a day."""

    def branches(self) -> list[str]:
        """Return the names of the branches that have a directory."""

    def delete_branch(self, name: str) -> None:
        """Delete a branch with its blocks; a missing one counts as deleted."""


class JobHandle(Protocol):
    """Handle on the Spark jobs of a thread, with which other threads query their progress or interrupt them."""

    def amount(self) -> TaskCount:
        """Return the number of Spark tasks done so far, and the number known so far."""

    def interrupt(self) -> None:
        """Interrupt the running Spark jobs; the thread that waits for them gets an error from Spark."""


class WarehouseInterface(BlockStore, Protocol[Frame]):
    """The blocks of a catalog, read and written as frames; see `kilonova.warehouse.warehouse.Warehouse`."""

    sizes: LayoutThresholds

    def counting(self, name: str) -> AbstractContextManager[JobHandle]:
        """Track the jobs of this thread within a `with` block, under this name."""

    def is_frame(self, item: object) -> bool:
        """Return whether something is a frame of this warehouse."""

    def schema_of(self, frame: Frame) -> Schema:
        """Return the schema of a frame."""

    def sql(self, text: str, frames: Mapping[str, Frame]) -> Frame:
        """Return the result of a SQL query over frames, which it names in braces."""

    def evaluated_once(
        self, frames: Sequence[Frame], inputs: Iterable[Frame], name: Callable[[], BlockName]
    ) -> AbstractContextManager[tuple[Frame, ...]]:
        """Return frames that agree with each other until the end of the `with` block, even if they share code."""

    def open(self, reading: ReadPlan) -> Frame:
        """Return the rows of a read plan: those of the relation, or of a delta with its control columns."""

    @property
    def shared(self) -> Callable[[ReadPlan, bool, KeyLookup | None], Frame]:
        """Variant of `open` for the inputs of views; with weights if requested, and only rows that are enough."""

    def inserts(self, changes: Frame, schema: Schema) -> Frame:
        """Return the rows of a strong delta that is known to remove none."""

    def mapped(self, frame: Frame, mapping: ColumnMapping, schema: Schema, others: Sequence[str]) -> Frame:
        """Return ingested rows with the columns of a channel, as a mapping says, and some others."""

    def with_ingest_columns(self, frame: Frame, names: Sequence[str]) -> Frame:
        """Return ingested rows with these ingest columns, filled where they are not given."""

    def newest(self, rows: Frame, key: Sequence[str], order: Sequence[str], size: int | None) -> Frame:
        """Return the last row of each key by the columns `order`; rows that are equal there are an error."""

    def without_older(
        self, rows: Frame, key: Sequence[str], sequence_by: str, old: SnapshotRead, schema: Schema, size: int | None
    ) -> Frame:
        """Return the rows except those of keys whose row in a snapshot has a higher value in a column."""

    def relation(self, delta: Frame, encoding: Encoding, schema: Schema) -> Frame:
        """Return the relation that results from a delta to the empty relation: M(∅, Δ)."""

    def write(self, frame: Frame, plan: WritePlan) -> Block | None:
        """Write a block; return None if it changes nothing."""

    def register(self, external: External, plan: WritePlan) -> Block | None:
        """Register files outside of the warehouse as a block; return None if it changes nothing."""

    def compact(self, snapshot: SnapshotRead, name: BlockName) -> Block:
        """Write a snapshot as a base."""

    def merge_deltas(self, deltas: tuple[Block, ...], base: Block | None, name: BlockName) -> Block:
        """Write neighbouring deltas that are all appends or all upserts, with the same columns, as one delta."""


Counting = Callable[[str], AbstractContextManager[JobHandle]]
"""Tracks the Spark jobs of this thread within a `with` block, under this name in Spark's web UI."""


class _NoJobHandle:
    def amount(self) -> TaskCount:
        return TaskCount()

    def interrupt(self) -> None:
        pass


@contextmanager
def no_tracking(_name: str) -> Iterator[JobHandle]:
    """Track no jobs."""
    yield _NoJobHandle()
