"""Recovery of a catalog from the blocks of its warehouse, after it was lost or restored from an older backup.

The manifest of each block describes it. Blocks that were published, and whose files exist, become the points and live
blocks of their channels again; everything else in the warehouse is left unchanged, and reported. All changes are
written in one transaction, and the catalog gets a new identity, so that the old one is rejected if it reappears.
Tasks start from scratch: their cursors are unknown.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from kilonova.catalog import channel_store, recovery
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.manifest import Manifest, manifest_from_text
from kilonova.errors import CatalogError
from kilonova.model.block import BlockName
from kilonova.model.damage import DamageKind, compare, marker_file, written_block
from kilonova.model.version import END, Version
from kilonova.schedule.recovery import FoundBlock, RecoveredChannel, RecoveryDoubt, recover_channel
from kilonova.service.ownership import WarehouseOwner, owner_of, owner_to_text
from kilonova.warehouse.storage import Storage

_AT_ONCE = 16
"""Number of manifests read concurrently."""

_BATCH = 1000
"""Number of manifests read between two progress reports."""

_COMPACTION = "compaction"
"""Name of the writer in the manifests of a compaction's blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Result of a recovery.

    Attributes:
        run: the run that records it; None if the catalog already knew everything.
        blocks: how many blocks the warehouse has.
        added: how many of them the catalog did not know.
        lost: how many blocks of the catalog have lost their files.
        channels: the recovered channels.
        doubts: blocks whose channel is unknown.
    """

    run: int | None
    blocks: int
    added: int
    lost: int
    channels: tuple[RecoveredChannel, ...]
    doubts: tuple[RecoveryDoubt, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    """Placement found in the warehouse: its manifest, if readable, its problem, if any, and whether it is published."""

    name: BlockName
    manifest: Manifest | None
    problem: str | None
    is_published: bool = False


def recover(
    catalog: Catalog, storage: Storage, progress: Callable[[int, int], None] = lambda done, total: None
) -> Recovery:
    """Recover a catalog from all usable blocks of its warehouse.

    Args:
        catalog: the catalog, which may be empty.
        storage: the warehouse.
        progress: called with the number of manifests read, and the number of all.

    Raises:
        Conflict: a run is in progress.
        CatalogError: the catalog has blocks of another warehouse, or the owner of the blocks is ambiguous.
        StorageFailed: the warehouse cannot be read, or written.
    """
    owner = owner_of(storage)
    names = storage.blocks()
    read = _read(storage, names, progress)
    with catalog.writing() as tx:
        recovery.check_nothing_runs(tx)
        identity = tx.identity()
        known = recovery.known_blocks(tx)
        accepted = _accepted(storage, owner, identity, known, read)
        found, doubts = _found(read, accepted, _Records.read(tx))
        lost = _lost(storage, known)
        added = len({each.block.number for blocks in found.values() for each in blocks if each.problem is None})
        for channel, blocks in known.items():
            found[channel] += [each for each in blocks if each.block.number not in lost]
        filled = _filled(tx, found)
        channels = tuple(recover_channel(name, found[name], filled.get(name, ())) for name in sorted(found))
        done = Recovery(run=None, blocks=len(names), added=added, lost=len(lost), channels=channels, doubts=doubts)
        if not added and not lost and owner is not None and owner.catalog == identity:
            return done
        manifests = [each.manifest for each in read if each.manifest is not None]
        new = uuid.uuid4().hex[:8]
        run = recovery.put_recovered(
            tx,
            channels,
            identity=new,
            lost=lost,
            names=names,
            run=max((each.run for each in manifests), default=0),
            logics=_logics(manifests),
            owner=f"{socket.gethostname()}:{os.getpid()}",
        )
        storage.hand_over(owner_to_text(WarehouseOwner(catalog=new, earlier=tuple(sorted(accepted)))))
    return replace(done, run=run)


def _read(storage: Storage, names: list[BlockName], progress: Callable[[int, int], None]) -> list[_Read]:
    """Read the manifests of blocks, and compare their files with them."""
    files_of = storage.every_found()

    def look(name: BlockName) -> list[_Read]:
        files = files_of(name) or {}
        manifests = {file: marker for file in sorted(files) if (marker := marker_file(file)) is not None}
        if not manifests:
            return [_Read(name, None, "it has no manifest")]
        return [one(name, files, file, marker) for file, marker in manifests.items()]

    def one(name: BlockName, files: Mapping[str, int], file: str, marker: str) -> _Read:
        text = storage.manifest(name, file)
        try:
            manifest = manifest_from_text(text or "")
        except CatalogError as error:
            return _Read(name, None, error.problem)
        if manifest.block.name != name:
            return _Read(name, None, f"its manifest is that of {manifest.block.name.directory}")
        written = replace(written_block(manifest.block), manifest=None)  # which may have been changed by hand
        damages = [each for each in compare(written, files) if each.kind is not DamageKind.FOREIGN]
        return _Read(name, manifest, "; ".join(map(str, damages)) or None, marker in files)

    read: list[_Read] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for first in range(0, len(names), _BATCH):
            some = names[first : first + _BATCH]
            for found in pool.map(look, some):
                read += found
            progress(first + len(some), len(names))
    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class _Records:
    """Records of a catalog about blocks: their names and states by number, their placements, and dropped channels."""

    states: Mapping[int, tuple[BlockName, str]]
    placements: Collection[tuple[str, int]]
    dropped: Mapping[str, int]

    @classmethod
    def read(cls, tx: Transaction) -> _Records:
        return cls(
            states={name.number: (name, state) for name, state in channel_store.block_states(tx).items()},
            placements=recovery.placements(tx),
            dropped=recovery.dropped_channels(tx),
        )

    def has(self, name: BlockName, manifest: Manifest | None) -> bool:
        """Return whether the catalog knows what became of a block where its manifest places it."""
        other, state = self.states.get(name.number, (None, None))
        if other != name or state == channel_store.WRITING:
            return False
        if manifest is None or state != channel_store.LIVE:
            return True
        dropped = manifest.point <= self.dropped.get(manifest.channel, 0)
        return dropped or (manifest.channel, name.number) in self.placements


def _accepted(
    storage: Storage,
    owner: WarehouseOwner | None,
    identity: str,
    known: Mapping[str, list[FoundBlock]],
    read: Iterable[_Read],
) -> set[str]:
    """Return the identities of the catalogs whose blocks are to be recovered, if that is not ambiguous."""
    has_blocks = any(known.values())
    if owner is not None:
        accepted = {owner.catalog, *owner.earlier}
        if has_blocks and identity not in accepted:
            raise CatalogError(
                f"the catalog {identity} has blocks of another warehouse; this one belongs to {owner.catalog}",
                path=storage.url,
                hint="Recover into a new catalog",
            )
        return accepted
    if has_blocks:
        return {identity}
    named = {each.manifest.catalog for each in read if each.manifest is not None}
    if len(named) > 1:
        raise CatalogError(
            f"the warehouse has blocks of several catalogs, {', '.join(sorted(named))}, and names none of them",
            path=storage.url,
            hint="Move the blocks of others away",
        )
    return named


def _found(
    read: Iterable[_Read], accepted: set[str], records: _Records
) -> tuple[dict[str, list[FoundBlock]], tuple[RecoveryDoubt, ...]]:
    """Return the blocks that the catalog does not have, by channel, and those that cannot be assigned to a channel."""
    found: dict[str, list[FoundBlock]] = defaultdict(list)
    doubts: list[RecoveryDoubt] = []
    proven = _reflected(each.manifest.version for each in read if each.manifest is not None and each.is_published)
    for each in read:
        if records.has(each.name, each.manifest):
            continue
        if each.manifest is None:
            doubts.append(RecoveryDoubt(each.name.directory, each.problem or ""))
            continue
        if each.manifest.catalog not in accepted:
            doubts.append(RecoveryDoubt(each.name.directory, f"it is of another catalog, {each.manifest.catalog}"))
            continue
        channel, block, problem = each.manifest.channel, each.manifest.block, each.problem
        other, _ = records.states.get(each.name.number, (None, None))
        if problem is None and other not in (None, each.name):
            problem = "the catalog has another block of that number"
        if problem is None and not each.is_published and block.end not in proven[channel]:
            problem = "it is not marked as published"
        found[channel].append(
            FoundBlock(
                block=block,
                version=each.manifest.version,
                task=each.manifest.task,
                run=each.manifest.run,
                merges=each.manifest.task == _COMPACTION,
                problem=problem,
            )
        )
    return found, tuple(doubts)


def _reflected(versions: Iterable[Version]) -> dict[str, set[int]]:
    """Return the points of channels that other points reflect, which must have been filled."""
    points: dict[str, set[int]] = defaultdict(set)
    for version in versions:
        for path, entry in version.entries:
            if len(path) > 1:
                points[path[0]] |= {each.last for each in entry if each.last > 0 and not each.is_structural}
    return points


def _lost(storage: Storage, known: Mapping[str, list[FoundBlock]]) -> set[int]:
    """Return the numbers of the blocks of a catalog whose directories are missing."""
    files_of = storage.every_found()
    return {
        each.block.number
        for blocks in known.values()
        for each in blocks
        if any(
            damage.file is None and damage.kind is DamageKind.MISSING
            for damage in compare(written_block(each.block), files_of(each.block.name))
        )
    }


def _filled(tx: Transaction, found: Mapping[str, list[FoundBlock]]) -> dict[str, set[int]]:
    """Return the points that must have been filled, with or without blocks, by channel."""
    filled = recovery.filled_points(tx)
    usable = (each for blocks in found.values() for each in blocks if each.problem is None)
    for channel, points in _reflected(each.version for each in usable).items():
        filled.setdefault(channel, set()).update(points)
    return filled


def _logics(manifests: Iterable[Manifest]) -> dict[str, int]:
    """Return the newest logic version of each task that manifests record."""
    logics: dict[str, int] = {}
    for manifest in manifests:
        for path, entry in manifest.version.entries:
            for each in entry:
                for task, logic in zip(path[1:], each.logic, strict=True):
                    if logic != END:
                        logics[task] = max(logics.get(task, 0), logic)
    return logics
