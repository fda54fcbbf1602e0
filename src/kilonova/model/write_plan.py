"""Write plans: what block is to be written, determined before any of its rows is computed."""

from __future__ import annotations

from dataclasses import dataclass

from kilonova.model.block import Base, BlockName, Kind
from kilonova.model.check import Check
from kilonova.model.encoding import Changes, Encoding
from kilonova.model.read_plan import SnapshotRead
from kilonova.model.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Plan for writing a block.

    Attributes:
        name: the block's name, which is that of its directory.
        kind: base or delta.
        schema: the relation's schema at the block's end.
        encoding: the encoding of the rows.
        old: the snapshot that a delta applies to; None for a base, or if it is not known yet.
        checks: the checks that the relation's rows must satisfy; those of `old` do.
        expected: the expected size in bytes; None if unknown.
        strong: whether to store a delta with the rows that it replaces, for readers of changes.
        derived: whether a delta is known to have unique keys and no ineffective rows; it may be strong then.
        without_rows: whether the block is known to have no rows, so that they need not be evaluated.
    """

    name: BlockName
    kind: Kind
    schema: Schema
    encoding: Encoding
    old: SnapshotRead | None = None
    checks: tuple[Check, ...] = ()
    expected: int | None = None
    strong: bool = False
    derived: bool = False
    without_rows: bool = False

    @property
    def is_base(self) -> bool:
        """Return whether the block is a base."""
        return isinstance(self.kind, Base)

    @property
    def is_strong_delta(self) -> bool:
        """Return whether the rows are a strong delta."""
        return isinstance(self.encoding, Changes) and not self.is_base
