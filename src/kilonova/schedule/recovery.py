"""Pure decision of which blocks of a warehouse form a channel, from their manifests.

A block counts if it was published, its files exist, and the blocks that it builds on count as well. Where two
histories of a channel conflict, because two catalogs wrote to it, neither is preferred, unless the catalog knows it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise

from kilonova.model.block import Base, Block
from kilonova.model.version import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBlock:
    """Block in a warehouse, with the contents of its manifest.

    Attributes:
        block: the block.
        version: the version of the point to which it leads.
        task: the task that wrote it; None for an ingest.
        run: the run that wrote it.
        merges: whether it was written by a compaction, so that it repeats the content of earlier blocks.
        known: whether the catalog has it.
        problem: the reason why it cannot be used; None if it can be.
    """

    block: Block
    version: Version
    task: str | None
    run: int
    merges: bool
    known: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class RecoveryDoubt:
    """Reason why a block, as its directory, or points were not recovered."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredChannel:
    """Channel as recovered from its blocks.

    Attributes:
        name: its name.
        blocks: the blocks that can be used.
        newest: the newest point that is known to have been reserved.
        doubts: the blocks and points that were not recovered.
    """

    name: str
    blocks: tuple[FoundBlock, ...]
    newest: int
    doubts: tuple[RecoveryDoubt, ...]

    @property
    def rows(self) -> int:
        """Number of rows in the blocks written by tasks and ingests, not by compactions."""
        made = {each.block.end for each in self.blocks if not each.merges}
        counted = (each for each in self.blocks if not each.merges or each.block.end not in made)
        return sum(each.block.statistics.rows for each in counted)

    @property
    def points(self) -> dict[int, Version]:
        """Version of each filled point."""
        ordered = sorted(self.blocks, key=lambda each: each.merges, reverse=True)
        return {each.block.end: each.version for each in ordered}


def recover_channel(name: str, found: Collection[FoundBlock], filled: Iterable[int]) -> RecoveredChannel:
    """Decide which blocks form a channel.

    Args:
        name: the channel.
        found: all blocks that were written to it.
        filled: points that are known to have been filled, from the catalog or from what was derived from them.
    """
    doubts: list[RecoveryDoubt] = []
    ends: dict[int, list[FoundBlock]] = defaultdict(list)
    usable: dict[int, bool] = dict.fromkeys(filled, False)

    def doubt(each: FoundBlock, why: str) -> None:
        doubts.append(RecoveryDoubt(each.block.name.directory, why))

    for each in found:
        usable[each.block.end] = False
        if each.problem is None:
            ends[each.block.end].append(each)
        else:
            doubt(each, each.problem)
    taken: list[FoundBlock] = []
    order = [0, *sorted(usable.keys() - {0})]
    usable[0] = True
    for end in order[1:]:
        before = len(taken)
        at_end, conflicting = _undisputed(ends[end])
        for each in conflicting:
            doubt(each, f"another block also leads to point {end}")
        for each in at_end:
            kind = each.block.kind
            if isinstance(kind, Base) or usable[order[bisect_right(order, kind.start) - 1]]:
                taken.append(each)
            else:
                doubt(each, f"the point that it starts from, {kind.start}, does not exist")
        usable[end] = len(taken) > before
    newest = order[-1]
    if taken and not usable[newest]:
        doubts.append(RecoveryDoubt(f"point {newest}", f"lost; the newest readable point is {taken[-1].block.end}"))
    if absent := _absent(taken):
        why = "no blocks: their runs failed or changed nothing, or their blocks are missing"
        doubts.append(RecoveryDoubt(absent, why))
    return RecoveredChannel(name=name, blocks=tuple(taken), newest=newest, doubts=tuple(doubts))


def _undisputed(blocks: list[FoundBlock]) -> tuple[list[FoundBlock], list[FoundBlock]]:
    """Split blocks that lead to one point into those of one history and those that conflict."""
    if sum(not each.merges for each in blocks) <= 1:
        return blocks, []
    known = [each for each in blocks if each.known]
    return known, [each for each in blocks if not each.known]


def _absent(taken: Iterable[FoundBlock]) -> str:
    """Return the points without a block between those of blocks, as text; empty if there are none."""
    led: dict[int, int] = {}
    for each in taken:  # blocks before a base, and those covered by a delta, may have been collected
        start = each.block.end - 1 if isinstance(each.block.kind, Base) else each.block.start
        led[each.block.end] = min(start, led.get(each.block.end, start))
    ends = sorted(led)
    if not ends:
        return ""
    bases = [each.block.end for each in taken if isinstance(each.block.kind, Base)]
    begin = ends[0] - 1 if ends[0] in bases else 0
    merging = [each.block for each in taken if each.merges]
    gaps = [
        (low + 1, high - 1)
        for low, high in pairwise([begin, *ends])
        if high - low > 1 and not any(block.start <= low and high <= block.end for block in merging)
    ]
    return ", ".join(f"point {low}" if low == high else f"points {low} to {high}" for low, high in gaps)
