"""Blocks and points that a process has read before, which do not change any more: they need not be read again.

A live block keeps what it is until it goes, and so does a point that is filled or cancelled, unless its channel has
several writers. So a transaction asks the database for the names of what there is, which is one text per channel,
and reads the rows of what is new. Such a name says what no other row has that may once have its number, as after a
transaction that was rolled back or a backup that was restored: a block's suffix, a point's state and run. What a
transaction has read is remembered once it has ended well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kilonova.model.block import Block
from kilonova.model.channel import Point

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Listed(Generic[_Item]):
    """What a channel has, by name, and in the order of its numbers.

    Attributes:
        names: the names as the database tells them: one text, in any order.
        items: what they name.
        ordered: the same, in order.
    """

    names: str = ""
    items: Mapping[str, _Item] = field(default_factory=dict)
    ordered: tuple[_Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Remembered:
    """What channels have, by the channel's number."""

    blocks: dict[int, Listed[Block]] = field(default_factory=dict)
    points: dict[int, Listed[Point]] = field(default_factory=dict)

    def update(self, later: Remembered) -> None:
        """Put what was read later in place of what was known of the same channels."""
        self.blocks.update(later.blocks)
        self.points.update(later.points)
