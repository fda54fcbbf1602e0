"""Output of a task or an ingest: rows that become a block at a reserved point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from kilonova.engine.interfaces import Frame, WarehouseInterface
from kilonova.model.block import Base, Block, BlockName, Delta, Kind, Statistics
from kilonova.model.channel import ChannelState
from kilonova.model.encoding import Custom, Encoding, Removal, key_of
from kilonova.model.schema import Schema
from kilonova.model.task import Production
from kilonova.model.write_plan import WritePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Output(Generic[Frame]):
    """Rows that a task or an ingest writes as a block, at a point of a channel that its run has reserved.

    Attributes:
        state: the channel before.
        point: the reserved point.
        name: the block's name.
        strong: whether the channel's changes are read.
        frame: rows of the relation, or a delta in the channel's encoding.
        schema: the relation's schema after.
        production: BASE if `frame` holds the relation, DELTA if it is a delta.
        replaces: whether the result replaces the existing relation.
        expected: estimated size in bytes; None if unknown.
        derived: whether the rows are a delta that is known to have each key once, and no rows without effect.
        encoding: the encoding of a delta; None for the channel's.
        without_rows: whether the rows are known to be none.
    """

    state: ChannelState
    point: int
    name: BlockName
    strong: bool
    frame: Frame
    schema: Schema
    production: Production
    replaces: bool
    expected: int | None
    derived: bool = False
    encoding: Encoding | None = None
    without_rows: bool = False

    @property
    def settled(self) -> bool:
        """Return whether the relation before the point is known."""
        return self.state.latest_readable == self.point - 1

    @property
    def empty(self) -> bool:
        """Return whether the relation before the point is known to be empty."""
        return self.settled and self.state.latest_distinct == 0

    @property
    def kind(self) -> Kind:
        """Return the kind of block to write: a base or a delta."""
        encoding = self.state.channel.encoding
        kept = self.empty and isinstance(encoding, Custom) and self.production is Production.DELTA
        if not kept and (self.replaces or (self.empty and key_of(encoding) and not self.derived)):
            return Base(self.point)
        return Delta(self.point - 1, self.point)


def removal(state: ChannelState, point: int, name: BlockName, condition: str, schema: Schema) -> Block:
    """Return a delta that removes the rows of a relation for which a condition is true, and has no files.

    Args:
        state: the channel before.
        point: the reserved point.
        name: the block's name.
        condition: the condition.
        schema: the columns of the channel after it.
    """
    return Block(
        number=name.number,
        suffix=name.suffix,
        kind=Delta(point - 1, point),
        schema=schema,
        encoding=Removal(state.current.key, condition),
        columns=Schema(()),
        buckets=0,
        statistics=Statistics(rows=0, bytes=0, files=0),
        stored=(),
    )


def write_output(warehouse: WarehouseInterface[Frame], output: Output[Frame]) -> Block | None:
    """Write the output of a task or an ingest at a reserved point.

    A delta to the empty relation is written as the resulting base, so that keyed channels are laid out by key from the
    beginning; except in a custom encoding, because the delta cannot be reconstructed from the base.

    Args:
        warehouse: the blocks.
        output: the rows, and where they are written.

    Returns:
        The block, or None if nothing changes.
    """
    state, frame, kind, expected = output.state, output.frame, output.kind, output.expected
    whole = isinstance(kind, Base)
    if whole and output.production is Production.DELTA:
        frame = warehouse.relation(frame, state.channel.encoding, output.schema)
    largest = max((block.statistics.bytes for block in state.blocks), default=0)
    plan = WritePlan(
        name=output.name,
        kind=kind,
        schema=output.schema,
        encoding=state.channel.encoding if whole else output.encoding or state.channel.encoding,
        old=state.snapshot(state.latest_readable) if output.settled and not whole else None,
        checks=state.channel.checks,
        expected=max(expected or 0, largest) or None if whole else expected,
        strong=output.strong,
        derived=output.derived,
        without_rows=output.without_rows,
    )
    block = warehouse.write(frame, plan)
    declared = state.channel.schema is not None  # else even an empty base records the columns
    if block is not None and whole and output.empty and declared and block.statistics.rows == 0:
        return None
    return block
