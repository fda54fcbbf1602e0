"""Cache of immutable blocks and points that a process has read.

A live block does not change until it is deleted, nor does a filled or cancelled point, unless its channel has several
writers or its version is rewritten, which is counted. A transaction therefore reads the names of the existing rows, one
text per channel, and then only the rows that are new. A name includes what distinguishes the row from any other that
may have the same number, as after a rollback or a restored backup: a block's suffix, a point's state, rewrites and run.
If the stamp of a channel is unchanged, not even its names are read. Rows that a transaction has read are cached once it
has succeeded.

Tasks and bindings have one random stamp, which every transaction reads when it begins. What was derived from their
rows under that stamp holds as long as it is unchanged; a transaction that changes it caches nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kilonova.model.block import Block
from kilonova.model.channel import Channel, ChannelState, Point

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class NamedRows(Generic[_Item]):
    """Blocks or points of a channel, by name and in the order of their numbers.

    Attributes:
        names: the names as the database returns them: one text, in any order.
        items: the blocks or points by name.
        ordered: the same, in the order of their numbers.
    """

    names: str = ""
    items: Mapping[str, _Item] = field(default_factory=dict)
    ordered: tuple[_Item, ...] = ()


@dataclass(frozen=True, slots=True)
class ChannelFingerprint:
    """Fingerprint for detecting changes of a channel's state.

    Attributes:
        stamp: a random text that changes whenever points or live blocks do; None if they have not since an upgrade.
        channel: its declaration.
        read: the lowest cursor of any task on it; None if no task has read it.
        origin: the newest point of a dropped channel of the same name.
    """

    stamp: str | None
    channel: Channel
    read: int | None
    origin: int


@dataclass(frozen=True, slots=True)
class CachedChannel:
    """State of a channel, with its points, blocks and derived values, and the fingerprint for which it holds."""

    fingerprint: ChannelFingerprint
    state: ChannelState


@dataclass(frozen=True, slots=True)
class ReadCache:
    """Cached blocks, points and states of channels, by the channel's id; and definitions, by their stamp and kind."""

    blocks: dict[int, NamedRows[Block]] = field(default_factory=dict)
    points: dict[int, NamedRows[Point]] = field(default_factory=dict)
    states: dict[int, CachedChannel] = field(default_factory=dict)
    definitions: dict[str, dict[str, dict[Any, Any]]] = field(default_factory=dict)

    def definitions_of(self, stamp: str) -> dict[str, dict[Any, Any]]:
        """Return what is cached for a stamp of the registered tasks and bindings; all else is forgotten."""
        if (known := self.definitions.get(stamp)) is None:
            self.definitions.clear()
            known = self.definitions.setdefault(stamp, {})
        return known

    def update(self, later: ReadCache) -> None:
        """Replace the cached rows of channels with those that were read later."""
        self.blocks.update(later.blocks)
        self.points.update(later.points)
        self.states.update(later.states)
