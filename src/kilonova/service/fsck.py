"""Verification of a warehouse: every live block is compared with what was written, and remedies are proposed.

Names and sizes are compared for all blocks; contents, those of manifests included, on request. Spark is not needed.
Blocks that are collected meanwhile do not count as damaged, nor do those that runs are writing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta

from kilonova.catalog import channel_store, events, registry, stored_blocks, task_graph
from kilonova.catalog.database import Catalog
from kilonova.catalog.manifest import digest, manifest_to_text
from kilonova.catalog.planner_input import load_planner_input
from kilonova.catalog.stored_blocks import LiveBlock
from kilonova.errors import NotFound
from kilonova.model.block import BlockName
from kilonova.model.channel import ChannelState
from kilonova.model.damage import Damage, DamageKind, compare, manifest_file, marker_file
from kilonova.model.event import EventKind
from kilonova.model.task import Mode, Task
from kilonova.schedule.repair import Remedy, remedies
from kilonova.warehouse.storage import Storage
from kilonova.warehouse.verification import changed_files

Progress = Callable[[int, int], None]
"""Callback for progress: the number of blocks verified, and the number of all."""

_AT_ONCE = 8
"""Number of blocks read concurrently."""

_BATCH = 2000
"""Number of blocks verified between two progress reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedBlock:
    """Block that differs from what was written, and the differences."""

    block: LiveBlock
    damages: tuple[Damage, ...]

    @property
    def is_lost(self) -> bool:
        """Return whether rows of it are lost: not so if files have only been added, or if only its manifest differs."""
        return any(each.of_rows and each.kind is not DamageKind.FOREIGN for each in self.damages)


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckReport:
    """Result of a verification.

    Attributes:
        blocks: how many blocks were verified.
        files: how many files they have.
        bytes: the total size of these files.
        damaged: the blocks that differ from what was written.
        remedies: the remedy for each damaged channel, in the order to apply them.
        unreferenced: directories of blocks that the catalog does not know, or knows to have been deleted.
        unmarked: blocks without the marker of publication.
        mended: the channels that were repaired.
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
        """Return whether no channel is damaged, or all damaged ones were repaired."""
        return {each.block.channel for each in self.damaged} <= set(self.mended)


def verify(
    catalog: Catalog,
    storage: Storage,
    channels: Iterable[str] | None = None,
    *,
    checksums: bool = False,
    progress: Progress = lambda done, total: None,
) -> FsckReport:
    """Compare the live blocks with what was written.

    Args:
        catalog: the catalog.
        storage: the warehouse's files.
        channels: the channels to verify; None for all.
        checksums: whether contents are compared, besides names and sizes.
        progress: called with the progress.

    Raises:
        NotFound: there is no such channel.
        StorageFailed: the warehouse cannot be read.
    """
    present = storage.blocks()
    with catalog.reading() as tx:
        blocks = stored_blocks.live_blocks(tx, channels)
        states = channel_store.block_states(tx, present)
    unreferenced = [name.directory for name in present if states.get(name, channel_store.GONE) == channel_store.GONE]

    found = storage.every_found()

    def look(block: LiveBlock) -> tuple[tuple[Damage, ...], bool]:
        files, manifest = found(block.written.name), block.written.manifest
        lacks_mark = files is not None and manifest is not None and marker_file(manifest_file(manifest)) not in files
        return _damages(storage, block, files, checksums=checksums), lacks_mark

    damaged, unmarked = [], []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for first in range(0, len(blocks), _BATCH):
            some = blocks[first : first + _BATCH]
            parts = [some[place::_AT_ONCE] for place in range(_AT_ONCE)]
            for results in pool.map(lambda part: [(block, *look(block)) for block in part], parts):
                for block, damages, lacks_mark in results:
                    if damages:
                        damaged.append(DamagedBlock(block=block, damages=damages))
                    if lacks_mark:
                        unmarked.append(block)
            progress(first + len(some), len(blocks))
    damaged.sort(key=lambda each: (each.block.channel, each.block.written.name))
    still = _still_live(catalog, damaged)
    written = {block.written.name: block.written for block in blocks}.values()  # a block may be in several channels
    return FsckReport(
        blocks=len(written),
        files=sum(block.count for block in written),
        bytes=sum(block.bytes for block in written),
        damaged=still,
        remedies=_remedies(catalog, still) if still else (),
        unreferenced=tuple(unreferenced),
        unmarked=tuple(unmarked),
    )


def verify_some(catalog: Catalog, storage: Storage, age: timedelta, seconds: float) -> tuple[DamagedBlock, ...]:
    """Verify the contents of blocks for a limited time, least recently verified first, and record damage.

    Args:
        catalog: the catalog.
        storage: the warehouse's files.
        age: how long a block need not be verified after it was written or verified.
        seconds: the time in seconds after which no further block is begun.

    Returns:
        The blocks that differ from what was written.

    Raises:
        StorageFailed: the warehouse cannot be read.
    """
    until = time.monotonic() + seconds
    with catalog.reading() as tx:
        blocks = stored_blocks.unverified(tx, tx.now - age, _BATCH)
    done, damaged = [], []
    for block in blocks:
        if time.monotonic() > until:
            break
        damages = _damages(storage, block, storage.found(block.written.name), checksums=True)
        done.append(block.written.name.number)
        if damages:
            damaged.append(DamagedBlock(block=block, damages=damages))
    still = _still_live(catalog, damaged) if damaged else ()
    if done:
        with catalog.writing() as tx:
            stored_blocks.set_verified(tx, done)
            for each in still:
                problem = f"the block {each.block.kind} is damaged: {each.damages[0]}; see: kilonova fsck"
                events.record(tx, EventKind.DAMAGED, channels=(each.block.channel,), text=problem)
    return still


def _damages(
    storage: Storage, block: LiveBlock, found: Mapping[str, int] | None, *, checksums: bool
) -> tuple[Damage, ...]:
    damages = compare(block.written, found)
    if not checksums or found is None:
        return damages
    missing = {damage.file for damage in damages}
    changed = [damage for damage in changed_files(storage, block.written) if damage.file not in missing]
    if block.written.manifest is not None and (file := manifest_file(block.written.manifest)) not in missing:
        text = storage.manifest(block.written.name, file)
        if text is None or digest(text) != block.written.manifest:
            changed.append(Damage(DamageKind.CHANGED, file))
    return (*damages, *changed)


def _still_live(catalog: Catalog, damaged: Sequence[DamagedBlock]) -> tuple[DamagedBlock, ...]:
    """Return the damaged blocks except those that were collected during verification."""
    with catalog.reading() as tx:
        states = channel_store.block_states(tx, [each.block.written.name for each in damaged])
    return tuple(each for each in damaged if states.get(each.block.written.name) == channel_store.LIVE)


def _remedies(catalog: Catalog, damaged: Iterable[DamagedBlock]) -> tuple[Remedy, ...]:
    with catalog.reading() as tx:
        known = load_planner_input(tx)
    return remedies(lost_blocks(damaged), known.channels, known.workflow.order())


def mend(catalog: Catalog, storage: Storage, found: FsckReport) -> None:
    """Repair everything but the rows of blocks: move foreign files away, and rewrite manifests and markers.

    Args:
        catalog: the catalog.
        storage: the warehouse's files.
        found: the result of verification.

    Raises:
        NotFound: a block was collected meanwhile.
        StorageFailed: a file cannot be written.
    """
    unmarked = {(each.written.name, each.written.manifest or "") for each in found.unmarked}
    moved: set[tuple[BlockName, str]] = set()  # of a block in several channels each file is reported for each
    for each in found.damaged:
        if each.is_lost:
            unmarked.discard((each.block.written.name, each.block.written.manifest or ""))
            continue
        name = each.block.written.name
        for damage in each.damages:
            assert damage.file is not None  # else its rows would be lost
            if damage.kind is not DamageKind.MISSING and (name, damage.file) not in moved:
                storage.set_aside(name, damage.file)
                moved.add((name, damage.file))
            if not damage.of_rows:
                with catalog.writing() as tx:
                    text = manifest_to_text(stored_blocks.manifest_of(tx, each.block.channel, name.number))
                    storage.seal(name, text)
                    stored_blocks.set_manifest(tx, each.block.channel, name.number, digest(text))
                unmarked.discard((name, each.block.written.manifest or ""))
                unmarked.add((name, digest(text)))
    storage.mark_committed(sorted(unmarked))


def lost_blocks(damaged: Iterable[DamagedBlock]) -> dict[str, list[int]]:
    """Return the damaged channels, each with the numbers of its blocks that have lost rows, if there are any."""
    lost: dict[str, list[int]] = defaultdict(list)
    for each in damaged:
        lost[each.block.channel] += [each.block.written.name.number] if each.is_lost else []
    return lost


def drop_blocks(catalog: Catalog, lost: Mapping[str, Sequence[int]]) -> None:
    """Remove blocks from channels; reset tasks that cannot continue from their cursors, to start from scratch.

    Args:
        catalog: the catalog.
        lost: the numbers of the blocks, by channel.
    """
    with catalog.writing() as tx:
        for channel, numbers in lost.items():
            channel_store.remove_blocks(tx, channel, numbers)
        for channel, state in channel_store.channel_states(tx, lost).items():
            for reader in task_graph.readers(tx, channel):
                if reader.started and not _goes_on(state, reader.cursor(channel), reader.task):
                    registry.move_cursors(tx, reader.task.name, reader.logic, ())


def _goes_on(state: ChannelState, cursor: int, task: Task) -> bool:
    """Return whether the new input of a channel since a task's cursor can still be read."""
    ports = [port for variant in task.variants for port in variant.ports if port.channel == state.channel.name]
    try:
        state.delta(cursor, state.latest_readable)
        if any(port.mode in _BEFORE for port in ports):
            state.snapshot(cursor)
    except NotFound:
        return False
    return True


_BEFORE = (Mode.OLD, Mode.CHANGES, Mode.INSERTS)
"""Modes that also read the snapshot at the cursor."""
