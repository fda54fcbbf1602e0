"""The optimized blocks of a search, and what ports can read of them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from kilonova.schedule.asynchrony.data_block import BASE, BlockType
from kilonova.schedule.asynchrony.provenance import EMPTY, Provenance
from kilonova.schedule.asynchrony.search_entry import Entry
from kilonova.schedule.asynchrony.search_index import BoundPort
from kilonova.schedule.asynchrony.workflow_model import PortForm

Filling = tuple[Provenance, Provenance, tuple[Entry, ...]]
"""What a port reads: the provenance before and after it, and the blocks."""


@dataclass(slots=True)
class OptimizedBlocks:
    """Blocks whose cheapest plan is known, by channel and type.

    Attributes:
        cursors: what tasks have read by their ports; see `SchedulingState`.
    """

    cursors: Mapping[tuple[str, int], Provenance] = field(default_factory=dict)
    _entries: dict[tuple[str, BlockType], list[Entry]] = field(default_factory=lambda: defaultdict(list))

    def add(self, entry: Entry) -> None:
        """Add a block."""
        self._entries[entry.channel, entry.kind].append(entry)

    def of(self, channel: str, kind: BlockType) -> list[Entry]:
        """Return the optimized blocks of a channel and type."""
        return [entry for entry in self._entries[channel, kind] if not entry.pruned]

    def fillings_with(self, port: BoundPort, entry: Entry) -> list[Filling]:
        """Return what a port can read that contains a block."""
        if entry.kind != BASE and not self._starts_at_cursor(port, entry):
            return []
        if port.form is PortForm.BASE_AND_DELTA:
            if entry.kind == BASE:
                return [
                    (entry.target, delta.target, (entry, delta))
                    for delta in self._deltas(port)
                    if delta.start == entry.target
                ]
            if not entry.usable:
                return []
            bases = self.of(port.channel, BASE)
            return [(base.target, entry.target, (base, entry)) for base in bases if base.target == entry.start]
        if not entry.usable:
            return []
        return [(entry.target if entry.start is None else entry.start, entry.target, (entry,))]

    def fillings(self, port: BoundPort) -> list[Filling]:
        """Return what a port can read of optimized blocks."""
        match port.form:
            case PortForm.NOTHING:
                nothing = (EMPTY,) * port.paths
                return [(nothing, nothing, ())]
            case PortForm.HELD:
                read = self.cursors.get(port.cursor)
                return [] if read is None else [(read, read, ())]
            case PortForm.BASE:
                bases = self.of(port.channel, BASE)
                return [(base.target, base.target, (base,)) for base in bases if base.usable]
            case PortForm.DELTA:
                return [(start_of(delta), delta.target, (delta,)) for delta in self._deltas(port)]
            case PortForm.BASE_AND_DELTA:
                pairs = itertools.product(self.of(port.channel, BASE), self._deltas(port))
                return [
                    (base.target, delta.target, (base, delta)) for base, delta in pairs if delta.start == base.target
                ]
            case _:
                assert_never(port.form)

    def _deltas(self, port: BoundPort) -> list[Entry]:
        """Return the optimized deltas that a port may read."""
        return [
            delta
            for kind in port.deltas
            for delta in self.of(port.channel, kind)
            if delta.usable and self._starts_at_cursor(port, delta)
        ]

    def _starts_at_cursor(self, port: BoundPort, delta: Entry) -> bool:
        """Return whether a delta starts with what a task has read by a port."""
        read = self.cursors.get(port.cursor)
        return read is None or read == delta.start


def start_of(delta: Entry) -> Provenance:
    """Return the provenance that a delta is relative to."""
    assert delta.start is not None
    return delta.start
