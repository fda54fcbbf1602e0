"""A block is immutable data of a channel, made by one task invocation (Nova, section 2.1).

A *base* block B_i holds the whole relation at point i. A *delta* block Δ_{i→j} turns the relation at i into
that at j. A block carries its own schema and encoding, so that a chain may mix them (Nova, section 3.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from kilonova.errors import BrokenInvariant
from kilonova.model.encoding import Encoding
from kilonova.model.file import Fingerprint
from kilonova.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Base:
    """The whole relation at point `at`."""

    at: int

    def __str__(self) -> str:
        return f"B{self.at}"


@dataclass(frozen=True, slots=True)
class Delta:
    """What turns the relation at `start` into that at `end`."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise BrokenInvariant(f"a delta must lead forward, not from {self.start} to {self.end}")

    def __str__(self) -> str:
        return f"Δ{self.start}→{self.end}"


Kind = Base | Delta


@dataclass(frozen=True, slots=True, order=True)
class BlockName:
    """Name of a block, which no other ever has.

    Attributes:
        number: its number in the catalog.
        suffix: random digits that tell it from a block with the same number of another catalog, or of this one before
            it was restored from a backup; empty for blocks of older releases.
    """

    number: int
    suffix: str = ""

    @property
    def directory(self) -> str:
        """The name of its directory in the warehouse.

        >>> BlockName(7, "c0ffee").directory
        'block_7_c0ffee'
        >>> BlockName(7).directory
        'block_7'
        """
        return f"block_{self.number}_{self.suffix}" if self.suffix else f"block_{self.number}"

    @classmethod
    def of(cls, directory: str) -> BlockName | None:
        """Return the name of the block that a directory is of; None if it is of none.

        >>> BlockName.of("block_7_c0ffee")
        BlockName(number=7, suffix='c0ffee')
        >>> BlockName.of("_logs") is None
        True
        """
        match = _DIRECTORY.fullmatch(directory)
        return None if match is None else cls(int(match[1]), match[2] or "")


_DIRECTORY = re.compile(r"block_(\d+)(?:_([0-9a-f]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """File of a block, as it was written.

    Attributes:
        name: its name in the block's directory.
        size: its size in bytes.
        rows: how many rows it has.
        checksum: the SHA-256 of its content, in hexadecimal digits.
    """

    name: str
    size: int
    rows: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What the job that wrote a block saw.

    Attributes:
        rows: rows in the block.
        bytes: size of its files.
        files: number of its files.
        removals: how many rows of the relation a delta replaces or deletes; None where it is not known.
    """

    rows: int
    bytes: int
    files: int
    removals: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files that have the same columns.

    Attributes:
        columns: their columns, in their order.
        files: the URL of each, and its fingerprint when it was registered.
    """

    columns: Schema
    files: tuple[tuple[str, Fingerprint], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """Files outside of the warehouse that are a block: read in their own format, never changed or deleted.

    Attributes:
        format: the format: `parquet`, `orc`, `csv` or `json`.
        options: options for Spark's reader.
        groups: the files, by their columns.
    """

    format: str
    options: tuple[tuple[str, str], ...]
    groups: tuple[FileGroup, ...]

    @property
    def files(self) -> tuple[tuple[str, Fingerprint], ...]:
        """All files."""
        return tuple(file for group in self.groups for file in group.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block: where it lies in its channel's chain, and how its rows read.

    Attributes:
        number: the catalog-wide number.
        kind: base or delta.
        schema: the relation's schema at the block's end.
        encoding: how its rows read, if it is a delta; by what it is laid out, if it is a base.
        columns: the columns stored, control columns included.
        buckets: into how many files, by hash of the key and sorted by it, the rows are laid out; 0 for none.
        statistics: what the job that wrote it saw.
        external: the files that it is, if it was registered in place; None if it lies in the warehouse.
        suffix: what makes the name of its directory unique; empty for blocks of older releases.
        stored: its files as they were written, none if it was registered in place; None where that is not known.
        manifest: the SHA-256 of the manifest beside its files; None if there is none.
    """

    number: int
    kind: Kind
    schema: Schema
    encoding: Encoding
    columns: Schema
    buckets: int
    statistics: Statistics
    external: External | None = None
    suffix: str = ""
    stored: tuple[StoredFile, ...] | None = field(default=None, hash=False)
    manifest: str | None = None

    @property
    def name(self) -> BlockName:
        """Its name."""
        return BlockName(self.number, self.suffix)

    def seen_as(self, schema: Schema) -> Block:
        """Return the block without the columns that only have the names of others in a schema: those are not read."""
        since = {column.name: column.since for column in schema.columns}
        others = [c.name for c in self.columns.columns if since.get(c.name, c.since) != c.since]
        return replace(self, columns=self.columns.without(*others), buckets=0) if others else self

    @property
    def start(self) -> int:
        """The point that the block leads from; 0 for a base."""
        return 0 if isinstance(self.kind, Base) else self.kind.start

    @property
    def end(self) -> int:
        """The point that the block leads to."""
        return self.kind.at if isinstance(self.kind, Base) else self.kind.end

    @property
    def removes(self) -> bool:
        """Whether the block may take rows away; where it is not known, it may."""
        return self.statistics.removals != 0
