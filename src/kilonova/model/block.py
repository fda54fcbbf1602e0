"""A block is immutable data, made by one task invocation and placed in channels (Nova, section 2.1).

A *base* block B_i holds the whole relation at point i. A *delta* block Δ_{i→j} turns the relation at i into
that at j. The points are those of its *placement* in a channel; other channels may have the same block at points of
their own. A block carries its own schema and encoding, so that a chain may mix them (Nova, section 3.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from kilonova.errors import BrokenInvariant
from kilonova.model.encoding import DELETED, WEIGHT, BlockEncoding, Encoding, Removal, key_of
from kilonova.model.schema import Schema
from kilonova.model.watched_file import Fingerprint


@dataclass(frozen=True, slots=True)
class Base:
    """The whole relation at point `at`."""

    at: int

    def __str__(self) -> str:
        return f"B{self.at}"


@dataclass(frozen=True, slots=True)
class Delta:
    """The change that turns the relation at `start` into that at `end`."""

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
    """Unique name of a block; never reused.

    Attributes:
        number: its number in the catalog.
        suffix: random digits that distinguish it from a block with the same number in another catalog, or in this one
            before it was restored from a backup; empty for blocks of older releases.
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
        """Return the name of the block that a directory belongs to; None if it belongs to none.

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
        rows: its number of rows.
        checksum: the SHA-256 of its content, in hexadecimal digits.
    """

    name: str
    size: int
    rows: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Statistics collected by the job that wrote a block.

    Attributes:
        rows: rows in the block.
        bytes: size of its files.
        files: number of its files.
        removals: number of rows of the relation that a delta replaces or deletes; None if unknown.
        net_rows: number of rows that a delta adds to the relation, less those that it removes; None if unknown, and
            for bases.
    """

    rows: int
    bytes: int
    files: int
    removals: int | None = None
    net_rows: int | None = None


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
    """External files registered as a block: read in their own format, never changed or deleted.

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
    """One block as placed in a channel: its content, how its rows are interpreted, and its points.

    The catalog records content and placements separately. `kind` and `manifest` are those of the placement; everything
    else is the same wherever the block is placed.

    Attributes:
        number: the catalog-wide number.
        kind: base or delta, with its points in the channel that it was read from or is written to.
        schema: the relation's schema at the block's end.
        encoding: for a delta, the encoding of its rows; for a base, the encoding whose key determines its layout.
        columns: the columns stored, control columns included.
        buckets: number of files into which the rows are laid out by hash of the key, sorted by it; 0 for none.
        statistics: statistics collected by the job that wrote it.
        external: its files, if it was registered in place; None if it is in the warehouse.
        suffix: the suffix that makes its directory's name unique; empty for blocks of older releases.
        stored: its files as they were written, none if it was registered in place; None if unknown.
        manifest: the SHA-256 of the placement's manifest beside its files; None if there is none.
    """

    number: int
    kind: Kind
    schema: Schema
    encoding: BlockEncoding
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

    @property
    def row_encoding(self) -> Encoding:
        """The encoding of its rows.

        Raises:
            BrokenInvariant: it has none, because it removes rows by a condition.
        """
        if isinstance(self.encoding, Removal):
            raise BrokenInvariant("a delta that removes rows by a condition was read as one with rows")
        return self.encoding

    def has_key_of(self, schema: Schema) -> bool:
        """Return whether the columns of its key have the same names in a schema, so that it can be merged there."""
        key = key_of(self.encoding)
        return {*key} <= {*schema.names} and {*key}.isdisjoint(self.schema.new_names(schema)) if key else True

    def seen_as(self, schema: Schema) -> Block:
        """Return the block without the columns that share only their name with a column of a schema; not to be read.

        The others have the names with which they are stored.
        """
        others = self.columns.replaced_in(schema)
        return replace(self, columns=self.columns.without(*others), buckets=0) if others else self

    def is_effective(self, schema: Schema) -> bool:
        """Return whether a strong delta changes each row of a schema's columns once at most, without adding it up.

        Rows that differ only in state columns, or in columns that were dropped, are the same without them.
        """
        stored = self.columns.without(DELETED[0], WEIGHT[0])
        return not stored.state_columns.columns and stored.identities <= schema.identities

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
        """Return whether the block may remove rows; true if that is unknown."""
        return self.statistics.removals != 0
