"""A data block is the unit in which data stand on a channel: a base, or a delta of one of several types.

- A *base* B(T) holds the whole relation of provenance T.
- A *strong* delta Δ(T₁ ▷ T₂) holds the rows to add and to delete; a *monotone* one, Δ⁺, only rows to add.
- A *weak* delta δ(T₁ ▷ T₂) turns B(T₁) into B(T₂) too, in a representation of its own, such as increments by key.

The *target* τ of a block is T or T₂ (asynchronous scheduling, 2.2 and 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from kilonova.schedule.asynchrony.provenance import Provenance, converted, newest, precedes

BlockType = NewType("BlockType", str)

BASE = BlockType("base")
STRONG = BlockType("strong delta")
MONOTONE = BlockType("monotone delta")


def weak(representation: str) -> BlockType:
    """Return the type of the weak deltas of a representation.

    >>> weak("increments")
    'weak delta (increments)'
    """
    return BlockType(f"weak delta ({representation})")


def is_weak(kind: BlockType) -> bool:
    """Return whether a type is one of weak deltas."""
    return kind.startswith("weak")


def accepted_types(wanted: BlockType) -> tuple[BlockType, ...]:
    """Return the types that can be read where one is wanted: a monotone delta is a strong delta."""
    return (STRONG, MONOTONE) if wanted == STRONG else (wanted,)


@dataclass(frozen=True, slots=True)
class DataBlock:
    """A block that is stored or could be.

    Attributes:
        channel: its channel.
        kind: its type.
        start: T₁, the provenance that a delta is relative to; None for a base.
        target: τ, the provenance that it leads to.
        rows: number of rows, estimated if it is not stored.
        points: the points from and to which it leads, where it is stored; twice the same for a base.
    """

    channel: str
    kind: BlockType
    start: Provenance | None
    target: Provenance
    rows: float
    points: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        assert (self.start is None) == (self.kind == BASE), "a base has no start, a delta has one"
        assert self.start is None or precedes(newest(self.start), newest(self.target)), "a delta leads forward"


BlockKey = tuple[str, BlockType, Provenance | None, Provenance]


def key_of(block: DataBlock) -> BlockKey:
    """Return what makes two blocks the same: channel, type and provenance."""
    return (block.channel, block.kind, block.start, block.target)


def applied(head: Provenance, start: Provenance | None, target: Provenance) -> Provenance | None:
    """Return the provenance of a relation after a block; None for a delta that cannot be applied to it.

    Args:
        head: the provenance of the relation before it.
        start: the provenance that the block is relative to; None for a base, which replaces the relation.
        target: the provenance that the block leads to.
    """
    return target if start is None else converted(head, start, target)
