"""Damage to blocks: differences between the contents of a block's directory and what was written.

Names and sizes are compared here; contents are compared where the files are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kilonova.model.block import Block, BlockName, StoredFile

_MANIFEST = re.compile(r"_block_([0-9a-f]+)\.json")
_DIGITS = 16


def manifest_file(digest: str) -> str:
    """Return the name of a manifest in a block's directory, which records what was written and where it is placed.

    A block has a manifest for each of its placements; the SHA-256 of its content distinguishes them.

    >>> manifest_file("0123456789abcdef0123")
    '_block_0123456789abcdef.json'
    """
    return f"_block_{digest[:_DIGITS]}.json"


def marker_file(manifest: str) -> str | None:
    """Return the name of the marker that a placement was published, from that of its manifest; None if it is not one.

    >>> marker_file(manifest_file("0123456789abcdef0123"))
    '_committed_0123456789abcdef'
    >>> marker_file("part-0.parquet") is None
    True
    """
    match = _MANIFEST.fullmatch(manifest)
    return None if match is None else f"_committed_{match[1]}"


class DamageKind(StrEnum):
    """Kind of difference from what was written."""

    MISSING = "missing"
    FOREIGN = "foreign"
    RESIZED = "of another size"
    CHANGED = "of another content"
    OTHER = "of other files"


@dataclass(frozen=True, slots=True)
class Damage:
    """Part of a block that differs from what was written.

    Attributes:
        kind: the kind of difference.
        file: the file's name in the block's directory; None for the directory as a whole.
    """

    kind: DamageKind
    file: str | None

    @property
    def of_rows(self) -> bool:
        """Return whether rows of the block may have been lost or added; false for its manifest."""
        return self.file is None or marker_file(self.file) is None

    def __str__(self) -> str:
        what = "its directory" if self.file is None else f"the file {self.file}"
        return f"{what} is {self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBlock:
    """Record of how a block was written.

    Attributes:
        name: its name.
        files: its files; None for blocks of older releases, of which only `count` and `bytes` are known.
        count: number of its files.
        bytes: total size of its files in bytes.
        manifest: the digest of the manifest of its placement; None if there is none.
    """

    name: BlockName
    files: tuple[StoredFile, ...] | None
    count: int
    bytes: int
    manifest: str | None


def written_block(block: Block) -> WrittenBlock:
    """Return the record of how a block was written."""
    outside = block.external is not None
    return WrittenBlock(
        name=block.name,
        files=() if outside else block.stored,
        count=0 if outside else block.statistics.files,
        bytes=0 if outside else block.statistics.bytes,
        manifest=block.manifest,
    )


def compare(block: WrittenBlock, found: Mapping[str, int] | None) -> tuple[Damage, ...]:
    """Compare the files in a block's directory with those that were written.

    Args:
        block: the record of how the block was written.
        found: the sizes of the files by name, those of manifests included; None if there is no directory.

    >>> one = StoredFile(name="a", size=3, rows=1, checksum="")
    >>> block = WrittenBlock(name=BlockName(1, "c0"), files=(one,), count=1, bytes=3, manifest=None)
    >>> compare(block, {"a": 3})
    ()
    >>> [str(damage) for damage in compare(block, {"a": 2, "b": 3, "_committed_c0ffee": 0})]
    ['the file a is of another size', 'the file b is foreign']
    >>> [str(damage) for damage in compare(block, None)]
    ['its directory is missing']
    """
    if found is None:
        return (Damage(DamageKind.MISSING, None),) if block.count or block.manifest else ()
    data = {name: size for name, size in found.items() if not name.startswith(("_", "."))}
    damages = []
    if block.files is None:
        if (len(data), sum(data.values())) != (block.count, block.bytes):
            damages.append(Damage(DamageKind.OTHER, None))
    else:
        for file in block.files:
            if file.name not in data:
                damages.append(Damage(DamageKind.MISSING, file.name))
            elif data[file.name] != file.size:
                damages.append(Damage(DamageKind.RESIZED, file.name))
        known = {file.name for file in block.files}
        damages += [Damage(DamageKind.FOREIGN, name) for name in sorted(data) if name not in known]
    if block.manifest is not None and manifest_file(block.manifest) not in found:
        damages.append(Damage(DamageKind.MISSING, manifest_file(block.manifest)))
    return tuple(damages)
