"""Verification of a warehouse: every live block against what was written, and what is to be done about damage.

Names and sizes are compared for all blocks; contents, those of manifests included, where that is asked for. It needs no
Spark. Blocks that are collected meanwhile are no damage, nor are those that runs are writing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby

from kilonova.catalog import chains, registry, stored
from kilonova.catalog.database import Catalog
from kilonova.catalog.manifest import digest, manifest_to_text
from kilonova.catalog.observation import observe
from kilonova.catalog.stored import LiveBlock
from kilonova.errors import UnknownName
from kilonova.model.channel import Chronicle
from kilonova.model.damage import MANIFEST, Damage, DamageKind, compare
from kilonova.model.task import Mode, Task
from kilonova.schedule.repair import Remedy, remedies
from kilonova.warehouse.storage import COMMITTED, Storage
from kilonova.warehouse.verification import changed_files

Progress = Callable[[int, int], None]
"""Hears how many blocks have been verified, and how many there are."""

_AT_ONCE = 8
"""How many blocks are read at the same time."""

_BATCH = 2000
"""How many blocks are verified between two words about progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedBlock:
    """A block that is not as it was written.

    Attributes:
        block: the block.
        damages: what differs.
    """

    block: LiveBlock
    damages: tuple[Damage, ...]

    @property
    def is_lost(self) -> bool:
        """Whether some of its rows are lost: not so where files have only been added, or its manifest differs."""
        return any(each.of_rows and each.kind is not DamageKind.FOREIGN for each in self.damages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What verification has found.

    Attributes:
        blocks: how many blocks were verified.
        files: how many files they have.
        bytes: how many bytes these have.
        damaged: the blocks that are not as they were written.
        remedies: how each damaged channel is mended, in the order in which that is to be done.
        unreferenced: directories of blocks that the catalog does not know, or knows to have been deleted.
        unmarked: blocks that lack the mark of having been published.
        mended: the channels that were mended.
    """

    blocks: int
    files: int
    bytes: int
    damaged: tuple[DamagedBlock, ...]
    remedies: tuple[Remedy, ...]
    unreferenced: tuple[str, ...]
    unmarked: tuple[LiveBlock, ...] = field(repr=False)
    mended: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged, or nothing is any more."""
        return {each.block.channel for each in self.damaged} <= set(self.mended)


def verify(
    catalog: Catalog,
    storage: Storage,
    channels: Iterable[str] | None = None,
    *,
    checksums: bool = False,
    progress: Progress = lambda done, total: None,
) -> Verified:
    """Compare the live blocks with what was written.

    Args:
        catalog: the catalog.
        storage: the warehouse's files.
        channels: the channels to verify; None for all.
        checksums: whether contents are compared, besides names and sizes.
        progress: hears how far it is.

    Raises:
        UnknownName: there is no such channel.
        StorageFailed: the warehouse cannot be read.
    """
    present = storage.blocks()
    with catalog.reading() as tx:
        blocks = stored.live_blocks(tx, channels)
        states = chains.block_states(tx, present)
    unreferenced = [name.directory for name in present if states.get(name, chains.GONE) == chains.GONE]

    found = storage.every_found()

    def look(block: LiveBlock) -> tuple[tuple[Damage, ...], bool]:
        files = found(block.written.name)
        damages = _damages(storage, block, files, checksums=checksums)
        return damages, block.written.manifest is not None and files is not None and COMMITTED not in files

    damaged, unmarked = [], []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for first in range(0, len(blocks), _BATCH):
            some = blocks[first : first + _BATCH]
            parts = [some[place::_AT_ONCE] for place in range(_AT_ONCE)]
            for part, results in zip(parts, pool.map(lambda part: list(map(look, part)), parts), strict=True):
                for block, (damages, lacks_mark) in zip(part, results, strict=True):
                    if damages:
                        damaged.append(DamagedBlock(block=block, damages=damages))
                    if lacks_mark:
                        unmarked.append(block)
            progress(first + len(some), len(blocks))
    damaged.sort(key=lambda each: (each.block.channel, each.block.written.name))
    still = _still_live(catalog, damaged)
    return Verified(
        blocks=len(blocks),
        files=sum(block.written.count for block in blocks),
        bytes=sum(block.written.bytes for block in blocks),
        damaged=still,
        remedies=_remedies(catalog, still) if still else (),
        unreferenced=tuple(unreferenced),
        unmarked=tuple(unmarked),
    )


def _damages(
    storage: Storage, block: LiveBlock, found: Mapping[str, int] | None, *, checksums: bool
) -> tuple[Damage, ...]:
    damages = compare(block.written, found)
    if not checksums or found is None:
        return damages
    known = {damage.file for damage in damages}
    changed = [damage for damage in changed_files(storage, block.written) if damage.file not in known]
    if block.written.manifest is not None and MANIFEST not in known:
        text = storage.manifest(block.written.name)
        if text is None or digest(text) != block.written.manifest:
            changed.append(Damage(DamageKind.CHANGED, MANIFEST))
    return (*damages, *changed)


def _still_live(catalog: Catalog, damaged: Sequence[DamagedBlock]) -> tuple[DamagedBlock, ...]:
    """Leave out blocks that were collected while they were verified."""
    with catalog.reading() as tx:
        states = chains.block_states(tx, [each.block.written.name for each in damaged])
    return tuple(each for each in damaged if states.get(each.block.written.name) == chains.LIVE)


def _remedies(catalog: Catalog, damaged: Iterable[DamagedBlock]) -> tuple[Remedy, ...]:
    lost: dict[str, set[int]] = defaultdict(set)
    for each in damaged:
        lost[each.block.channel] |= {each.block.written.name.number} if each.is_lost else set()
    with catalog.reading() as tx:
        workflow, _, chronicles = observe(tx)
    return remedies(lost, chronicles, workflow.order())


def mend(catalog: Catalog, storage: Storage, found: Verified) -> None:
    """Mend what is beside the rows of blocks: foreign files are set aside, manifests and marks written again.

    Args:
        catalog: the catalog.
        storage: the warehouse's files.
        found: what verification has found.

    Raises:
        UnknownName: a block was collected meanwhile.
        StorageFailed: a file cannot be written.
    """
    for each in found.damaged:
        if each.is_lost:
            continue
        name = each.block.written.name
        for damage in each.damages:
            assert damage.file is not None  # or its rows would be lost
            if damage.kind is not DamageKind.MISSING:
                storage.set_aside(name, damage.file)
            if damage.file == MANIFEST:
                with catalog.writing() as tx:
                    text = manifest_to_text(stored.manifest_of(tx, name.number))
                    storage.seal(name, text)
                    stored.set_manifest(tx, name.number, digest(text))
    lost = {each.block.written.name for each in found.damaged if each.is_lost}
    storage.mark_committed(block.written.name for block in found.unmarked if block.written.name not in lost)


def lost_blocks(found: Verified) -> Iterator[tuple[str, list[int]]]:
    """The channels that have lost rows, with the numbers of those blocks."""
    lost = [each.block for each in found.damaged if each.is_lost]  # which are in the order of their channels
    for channel, blocks in groupby(lost, lambda block: block.channel):
        yield channel, [block.written.name.number for block in blocks]


def give_up(catalog: Catalog, lost: Mapping[str, Sequence[int]]) -> None:
    """Take blocks out of channels; tasks that cannot go on from where they have read to begin anew.

    Args:
        catalog: the catalog.
        lost: the numbers of the blocks, by channel.
    """
    with catalog.writing() as tx:
        for numbers in lost.values():
            chains.doom(tx, numbers)
        for channel, chronicle in chains.chronicles(tx, lost).items():
            for name, reader in registry.readers(tx, channel).items():
                if reader.started and not _goes_on(chronicle, reader.cursor(channel), reader.task):
                    registry.move_cursors(tx, name, 0, ())


def _goes_on(chronicle: Chronicle, cursor: int, task: Task) -> bool:
    """Return whether a task can be fed what is new in a channel since it last read it."""
    ports = [port for variant in task.variants for port in variant.ports if port.channel == chronicle.channel.name]
    try:
        chronicle.delta(cursor, chronicle.readable)
        if any(port.mode in _BEFORE for port in ports):
            chronicle.snapshot(cursor)
    except UnknownName:
        return False
    return True


_BEFORE = (Mode.OLD, Mode.CHANGES, Mode.INSERTS)
"""Modes for which a channel is also read as it was when it was last read."""
