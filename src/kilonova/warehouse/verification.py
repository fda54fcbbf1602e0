"""Verification of blocks before reading: their files must be those that were written.

Names and sizes are compared by one listing per block, in the driver, before Spark is called. A process that has
verified a block does not verify it again for `BELIEVED` seconds: successive runs list new blocks, and those not
verified recently. Contents are read on request, each block's once per process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from kilonova.errors import BlockDamaged
from kilonova.model.block import Block, BlockName
from kilonova.model.damage import Damage, DamageKind, WrittenBlock, compare, written_block
from kilonova.warehouse.storage import Storage

BELIEVED = 600.0
"""Number of seconds for which a verified block is not verified again."""

_AT_ONCE = 8
"""Number of blocks verified concurrently."""


class Verification:
    """Verifier of a warehouse's blocks, with this process's earlier results.

    Args:
        storage: the files.
        checksums: whether to verify the contents of files rather than their sizes.
        clock: returns the time in seconds.
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
        """Check that blocks are as they were written.

        Args:
            blocks: the blocks.
            checksums: whether to read the contents of their files, regardless of earlier results.

        Raises:
            BlockDamaged: a file is missing, foreign, or not as written.
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
            known = written_block(block)
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
        """Drop the results for deleted blocks."""
        for name in blocks:
            self._whole.pop(name, None)
            self._read.discard(name)


def changed_files(storage: Storage, block: WrittenBlock) -> tuple[Damage, ...]:
    """Return the files of a block whose contents are not as written.

    Raises:
        StorageFailed: a file cannot be read.
    """
    return tuple(
        Damage(DamageKind.CHANGED, file.name)
        for file in block.files or ()
        if storage.checksum(block.name, file.name) != file.checksum
    )


def _refused(storage: Storage, block: Block, damages: tuple[Damage, ...]) -> BlockDamaged:
    more = f", and {len(damages) - 1} more" if len(damages) > 1 else ""
    return BlockDamaged(
        f"the block {block.kind} is damaged: {damages[0]}{more}",
        path=storage.path(block.name),
        hint="Nothing was changed; see what can be repaired with: kilonova fsck",
    )
