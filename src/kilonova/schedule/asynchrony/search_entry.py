"""Entries of the search: blocks with the cheapest plan known for them, and the invocations of these plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kilonova.schedule.asynchrony.data_block import BlockKey, BlockType, DataBlock
from kilonova.schedule.asynchrony.execution_plan import Invocation, Step
from kilonova.schedule.asynchrony.provenance import Newest, Provenance


@dataclass(slots=True, eq=False)
class Entry:
    """A triple (block, plan, cost) of Algorithm 1.

    Attributes:
        channel: the channel of the block.
        kind: its type.
        start: the provenance that it is relative to.
        target: the provenance that it leads to.
        newest: the newest points of the target.
        rows: the number of rows.
        cost: the cost of the plan.
        plan: the numbers of the plan's invocations.
        number: the number of the entry.
        block: the block, if it is stored.
        maker: the number of the invocation that writes it, if it is not.
        optimized: whether the plan is known to be the cheapest.
        usable: whether consumers may read it as it is: it keeps the declared limits of its channel.
        pruned: whether it was removed from the search.
    """

    channel: str
    kind: BlockType
    start: Provenance | None
    target: Provenance
    newest: Newest
    rows: float
    cost: float
    plan: frozenset[int]
    number: int
    block: DataBlock | None = None
    maker: int = -1
    optimized: bool = False
    usable: bool = True
    pruned: bool = False

    @property
    def key(self) -> BlockKey:
        """Key that is equal for blocks that are the same."""
        return (self.channel, self.kind, self.start, self.target)

    def as_block(self) -> DataBlock:
        """Return the block."""
        return self.block or DataBlock(self.channel, self.kind, self.start, self.target, self.rows)


@dataclass(frozen=True, slots=True)
class Draft:
    """An invocation that the search considers.

    Attributes:
        step: what would run.
        reads: the entries that each port would read.
        cost: the cost of this invocation alone.
        rows: the rows that it would write.
    """

    step: Step
    reads: tuple[tuple[Entry, ...], ...]
    cost: float
    rows: float


def invocations_of(plan: frozenset[int], drafts: Sequence[Draft], written: Sequence[Entry]) -> tuple[Invocation, ...]:
    """Return the invocations of a plan, each after those whose blocks it reads.

    Args:
        plan: the numbers of its invocations.
        drafts: all invocations that the search considered, by number.
        written: the entry that each of them writes.
    """
    return tuple(
        Invocation(
            drafts[number].step,
            tuple(tuple(entry.as_block() for entry in port) for port in drafts[number].reads),
            written[number].as_block(),
            drafts[number].cost,
        )
        for number in sorted(plan)
    )
