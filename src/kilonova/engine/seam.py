"""What the engine needs of a warehouse: the seam behind which Spark stands.

Rows are opaque to the engine: a *frame* is whatever the warehouse reads, writes and hands to tasks. With Spark it is
a DataFrame; the tests put a warehouse in plain Python here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from typing import Protocol, TypeVar

from kilonova.model.block import Block, BlockName, External, Kind
from kilonova.model.check import Check
from kilonova.model.encoding import Encoding
from kilonova.model.headway import Amount
from kilonova.model.reading import Reading, Snapshot
from kilonova.model.schema import Schema
from kilonova.schedule.layout import Sizes

Frame = TypeVar("Frame")


class Files(Protocol):
    """The files of a warehouse."""

    def delete(self, blocks: Iterable[BlockName]) -> None:
        """Delete the directories of blocks; those that are not there are deleted already."""

    def blocks(self) -> list[BlockName]:
        """The names of the blocks that have a directory."""

    def seal(self, block: BlockName, manifest: str) -> None:
        """Put a manifest beside the files of a block, and have all of them outlast a loss of power."""

    def mark_committed(self, blocks: Iterable[BlockName]) -> None:
        """Put a mark beside the manifests of blocks that a catalog has published."""

    def keep_log(self, run: int, day: date, text: str) -> None:
        """Write the log of a run that began on a day, in place of what is there."""

    def delete_logs(self, before: date) -> None:
        """Delete the logs of the runs that began before a day."""


class Jobs(Protocol):
    """What a thread asks of Spark; other threads ask how that goes, or end it."""

    def amount(self) -> Amount:
        """How much Spark has done by now, of what it is known to have to do."""

    def interrupt(self) -> None:
        """End what Spark is doing now; the thread that waits for it gets an error of Spark's."""


class Warehouse(Files, Protocol[Frame]):
    """The blocks of a catalog, read and written as frames; see `kilonova.warehouse.warehouse.Warehouse`."""

    sizes: Sizes

    def counting(self, name: str) -> AbstractContextManager[Jobs]:
        """Count what this thread asks of the warehouse within a block, under this name."""

    def is_frame(self, item: object) -> bool:
        """Return whether something is a frame of this warehouse."""

    def schema_of(self, frame: Frame) -> Schema:
        """Schema of a frame."""

    def sql(self, text: str, frames: Mapping[str, Frame]) -> Frame:
        """Result of a SQL query over frames, which it names in braces."""

    def evaluated_once(
        self, frames: Sequence[Frame], inputs: Iterable[Frame], name: Callable[[], BlockName]
    ) -> AbstractContextManager[tuple[Frame, ...]]:
        """Frames that agree with each other until the end of the block, whatever code they share."""

    def open(self, reading: Reading) -> Frame:
        """Rows of a reading: those of the relation, or of a delta with its control columns."""

    @property
    def shared(self) -> Callable[[Reading, bool], Frame]:
        """As `open`, for what views read; with weights if so asked."""

    def inserts(self, changes: Frame, schema: Schema) -> Frame:
        """Rows of a strong delta that is known to take none away."""

    def relation(self, delta: Frame, encoding: Encoding, schema: Schema) -> Frame:
        """Relation that a delta makes of nothing: M(∅, Δ)."""

    def write(
        self,
        frame: Frame,
        *,
        name: BlockName,
        kind: Kind,
        schema: Schema,
        encoding: Encoding,
        expected: int | None,
        old: Snapshot | None,
        strong: bool = False,
        derived: bool = False,
        checks: tuple[Check, ...] = (),
    ) -> Block | None:
        """Write a block; None if it changes nothing."""

    def register(
        self,
        external: External,
        *,
        name: BlockName,
        kind: Kind,
        schema: Schema,
        encoding: Encoding,
        old: Snapshot | None,
        checks: tuple[Check, ...] = (),
    ) -> Block | None:
        """Make files that lie outside of the warehouse a block; None if it changes nothing."""

    def copied(self, block: Block, name: BlockName, kind: Kind) -> Block | None:
        """Copy a block; None if it has gone."""

    def compact(self, snapshot: Snapshot, name: BlockName) -> Block:
        """Write a snapshot as a base."""

    def merge_deltas(self, deltas: tuple[Block, ...], name: BlockName) -> Block:
        """Write neighbouring deltas that only add rows, all of the same columns, as one."""


Counting = Callable[[str], AbstractContextManager[Jobs]]
"""Counts what this thread asks of Spark within a block, which goes by this name in Spark's own pages."""


class _NoJobs:
    def amount(self) -> Amount:
        return Amount()

    def interrupt(self) -> None:
        pass


@contextmanager
def uncounted(_name: str) -> Iterator[Jobs]:
    """Count nothing."""
    yield _NoJobs()
