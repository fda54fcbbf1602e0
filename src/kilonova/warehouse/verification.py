"""Verification of blocks when they are read: what is found must be what was written.

Names and sizes are compared by one listing per block, in the driver, before Spark is asked. A process that has found a
block whole believes it for `BELIEVED` seconds: runs that follow each other list what is new, and what they have not
looked at for a while. Contents are read where that is asked for, each block's once per process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from kilonova.errors import BlockDamaged
from kilonova.model.block import Block, BlockName
from kilonova.model.damage import Damage, DamageKind, WrittenBlock, compare, written
from kilonova.warehouse.storage import Storage

BELIEVED = 600.0
"""For how many seconds a process believes a block that it has found whole."""

_AT_ONCE = 8
"""How many blocks are looked at at the same time."""


class Verification:
    """What this process knows of the blocks of a warehouse.

    Args:
        storage: the files.
        checksums: whether the contents of files are read before they are believed, rather than their sizes.
        clock: tells the seconds.
    """

    def __init__(
        self, storage: Storage, *, checksums: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._storage = storage
        self._checksums = checksums
        self._clock = clock
        self._whole: dict[BlockName, float] = {}
        self._read: set[BlockName] = set()

    def check(self, blocks: Iterable[Block], *, checksums: bool = False) -> None:
        """Refuse blocks that are not as they were written.

        Args:
            blocks: the blocks.
            checksums: whether the contents of their files are read, whatever is known of them.

        Raises:
            BlockDamaged: a file is missing, foreign, or not what was written.
            StorageFailed: the warehouse cannot be read.
        """
        until = self._clock() - BELIEVED
        contents = checksums or self._checksums
        asked = [
            block
            for block in {block.name: block for block in blocks}.values()
            if checksums
            or self._whole.get(block.name, float("-inf")) < until
            or (self._checksums and block.name not in self._read)
        ]
        if not asked:
            return

        def look(block: Block) -> tuple[Damage, ...]:
            known = written(block)
            damages = compare(known, self._storage.found(block.name))
            if not damages and contents and (checksums or block.name not in self._read):
                damages = changed_files(self._storage, known)
            return tuple(damage for damage in damages if damage.of_rows)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for block, damages in zip(asked, pool.map(look, asked), strict=True):
                if damages:
                    raise _refused(self._storage, block, damages)
        now = self._clock()
        self._whole |= dict.fromkeys((block.name for block in asked), now)
        if contents:
            self._read.update(block.name for block in asked)

    def forget(self, blocks: Iterable[BlockName]) -> None:
        """Drop what is known of blocks that go."""
        for name in blocks:
            self._whole.pop(name, None)
            self._read.discard(name)


def changed_files(storage: Storage, block: WrittenBlock) -> tuple[Damage, ...]:
    """The files of a block whose contents are not what was written.

    Raises:
        StorageFailed: one cannot be read.
    """
    return tuple(
        Damage(DamageKind.CHANGED, file.name)
        for file in block.files or ()
        if storage.checksum(block.name, file.name) != file.checksum
    )


def _refused(storage: Storage, block: Block, damages: tuple[Damage, ...]) -> BlockDamaged:
    more = f", and {len(damages) - 1} more damages" if len(damages) > 1 else ""
    return BlockDamaged(
        f"the block {block.kind} is damaged: {damages[0]}{more}",
        path=storage.path(block.name),
        hint="Nothing was changed; see what can be mended with: kilonova fsck",
    )
