"""What the engine needs of a warehouse: the seam behind which Spark stands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Files(Protocol):
    """The files of a warehouse."""

    def delete(self, blocks: Iterable[int]) -> None:
        """Delete the directories of blocks; those that are not there are deleted already."""

    def blocks(self) -> list[int]:
        """The numbers of the blocks that have a directory."""
