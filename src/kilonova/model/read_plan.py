"""Read plans: the blocks that make up the input of a port, determined before anything is read.

`SnapshotRead` is M(B, C(Δ…)); `DeltaRead` is C(Δ…); `DiffRead` is D(old, new); `ChangesRead` turns a chain into a
strong delta by means of the snapshot before it (Nova, section 2.2; asynchronous scheduling, Figure 2). The warehouse
turns a read plan into rows; explaining and pinning use the same value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kilonova.model.block import Block
from kilonova.model.encoding import Changes, Encoding
from kilonova.model.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRead:
    """The relation at point `at`: a base, or the empty relation, and the deltas after it."""

    at: int
    schema: Schema | None
    encoding: Encoding
    base: Block | None
    deltas: tuple[Block, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks read."""
        return (*((self.base,) if self.base else ()), *self.deltas)

    @property
    def complete(self) -> SnapshotRead:
        """This read plan with the state columns in its schema."""
        kept = self.base.columns.state_columns if self.base is not None else Schema(())
        return self if self.schema is None else replace(self, schema=Schema((*self.schema.columns, *kept.columns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaRead:
    """The change from `start` to `end`, from delta blocks; empty where there are none."""

    start: int
    end: int
    schema: Schema | None
    encoding: Encoding
    deltas: tuple[Block, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks read."""
        return self.deltas


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRead:
    """The change between two snapshots, in an encoding."""

    old: SnapshotRead
    new: SnapshotRead
    encoding: Encoding

    @property
    def schema(self) -> Schema | None:
        """The relation's schema after the change."""
        return self.new.schema

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks read."""
        return tuple(dict.fromkeys((*self.old.blocks, *self.new.blocks)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRead:
    """A chain of weak deltas as a strong delta, by looking up the rows it replaces in the snapshot before."""

    old: SnapshotRead
    delta: DeltaRead

    @property
    def schema(self) -> Schema | None:
        """The relation's schema after the change."""
        return self.delta.schema

    @property
    def encoding(self) -> Encoding:
        """The encoding of the result."""
        return Changes()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks read."""
        return tuple(dict.fromkeys((*self.old.blocks, *self.delta.blocks)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLookup:
    """Rows of a snapshot that are enough for a change; a reader may give others as well.

    Attributes:
        column: the first column of the key.
        values: changes, each with a column: rows with other values than these have in it may be left out.
        columns: the columns to read.
    """

    column: str
    values: tuple[tuple[ReadPlan, str], ...]
    columns: tuple[str, ...]


ReadPlan = SnapshotRead | DeltaRead | DiffRead | ChangesRead
