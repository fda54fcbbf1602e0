"""A reading says which blocks make up what a port is fed, before anybody reads them.

`Snapshot` is M(B, C(Δ…)); `Chain` is C(Δ…); `Diff` is D(old, new); `Strong` turns a chain into a strong
delta with the help of the snapshot before it (Nova, section 2.2; asynchronous scheduling, Figure 2). The
warehouse turns a reading into rows; explaining and pinning look at the same value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kilonova.model.block import Block
from kilonova.model.encoding import Changes, Encoding
from kilonova.model.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
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
    def complete(self) -> Snapshot:
        """With the columns that are stored beside those of the relation."""
        kept = self.base.columns.kept if self.base is not None else Schema(())
        return self if self.schema is None else replace(self, schema=Schema((*self.schema.columns, *kept.columns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
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
class Diff:
    """The change between two snapshots, in an encoding."""

    old: Snapshot
    new: Snapshot
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
class Strong:
    """A chain of weak deltas as a strong delta, by looking up what it replaces in the snapshot before."""

    old: Snapshot
    delta: Chain

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


Reading = Snapshot | Chain | Diff | Strong
