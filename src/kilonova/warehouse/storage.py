"""Directories and files of the warehouse, on any file system that fsspec and Spark share.

A block is the directory `block_<number>_<suffix>`; the catalog assigns both parts, and the suffix is random, so that no
name is ever reused (Nova, section 3). Next to its files, for each of its placements in channels, a manifest
`_block_<digest>.json` records what was written and where it is placed, and `_committed_<digest>` marks placements that
a catalog has published. Nothing here reads more than a few rows. Run logs are next to the blocks, by the day on which
the run began: `_logs/<day>/run_<number>.log`; `_catalog.json` names the catalog that owns the blocks.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as dataset
import pyarrow.parquet as parquet
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from kilonova.errors import StorageFailed
from kilonova.model.block import BlockName, StoredFile
from kilonova.model.damage import manifest_file, marker_file
from kilonova.warehouse.parquet_rows import RowWriter, read_batches, recorded

OWNER = "_catalog.json"
_LOGS = "_logs"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}$")
_PART = re.compile(r"part-(\d+)-")
_CHECKSUM = "sha256"
_PARQUET = dataset.ParquetFileFormat(read_options=dataset.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
_DECODED = 64 << 20
"""Size of the rows in memory, in bytes, that `Storage.small_table` reads at a time, if they were as large as can be."""

BRANCHES = "_branches"
"""Directory of a warehouse in which branches keep their own blocks."""

_DRAFTS = ".drafts"
"""Directory of a block for files that do not belong to it yet."""

_AT_ONCE = 8
"""Number of files read, or moved, concurrently."""


class Storage:
    """Files of one warehouse.

    Args:
        url: a directory or a URL that both Spark and fsspec understand.

    Raises:
        StorageFailed: fsspec has no driver for the URL.
    """

    def __init__(self, url: str) -> None:
        if "://" not in url:
            url = Path(url).absolute().as_uri()
        self.url = url.rstrip("/")
        try:
            self._fs: AbstractFileSystem
            self._fs, self._root = url_to_fs(self.url)
        except (ValueError, ImportError) as error:
            raise StorageFailed(
                f"the warehouse cannot be reached: {error}", path=url, hint="Install fsspec's driver for it"
            ) from None

    def path(self, block: BlockName) -> str:
        """Return the URL of a block's directory."""
        return f"{self.url}/{block.directory}"

    def create(self) -> None:
        """Create the warehouse's directory."""
        try:
            self._fs.makedirs(self._root, exist_ok=True)
        except OSError as error:
            raise StorageFailed(f"the warehouse cannot be created: {error}", path=self.url) from error

    def owner(self) -> str | None:
        """Return the content of the file that names the warehouse's catalog; None if there is none.

        Raises:
            StorageFailed: the file cannot be read.
        """
        try:
            content: bytes = self._fs.cat_file(f"{self._root}/{OWNER}")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(f"the warehouse cannot be read: {error}", path=self.url) from error
        return content.decode("utf-8", "replace")

    def claim(self, owner: str) -> None:
        """Write the file that names the warehouse's catalog, unless it exists.

        If several processes do so concurrently, one of the files is kept, complete. An object store without conditional
        creation keeps the last one.

        Raises:
            StorageFailed: the file cannot be written.
        """
        place, content = f"{self._root}/{OWNER}", owner.encode()
        try:
            if isinstance(self._fs, LocalFileSystem):
                draft = Path(f"{place}.{secrets.token_hex(6)}")
                draft.write_bytes(content)
                try:
                    os.link(draft, place)
                finally:
                    draft.unlink()
                _flush_directory(self._root)
            elif not self._fs.exists(place):
                try:
                    self._fs.pipe_file(place, content, mode="create")
                except (NotImplementedError, TypeError, ValueError):
                    self._fs.pipe_file(place, content)
        except FileExistsError:
            return
        except OSError as error:
            raise StorageFailed(f"the warehouse cannot be written: {error}", path=self.url) from error

    def hand_over(self, owner: str) -> None:
        """Replace the file that names the warehouse's catalog.

        Raises:
            StorageFailed: the file cannot be written.
        """
        try:
            self._replace(f"{self._root}/{OWNER}", owner.encode())
        except OSError as error:
            raise StorageFailed(f"the warehouse cannot be written: {error}", path=self.url) from error

    def delete(self, blocks: Iterable[BlockName]) -> None:
        """Delete the directories of blocks; missing ones are ignored."""
        for block in blocks:
            place = self._place(block)
            try:
                if self._fs.exists(place):
                    self._fs.rm(place, recursive=True)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageFailed(f"the block cannot be deleted: {error}", path=self.path(block)) from error

    def blocks(self) -> list[BlockName]:
        """Return the names of the blocks that have a directory."""
        if not self._fs.exists(self._root):
            return []
        names = (entry.rstrip("/").rsplit("/", 1)[-1] for entry in self._fs.ls(self._root, detail=False))
        return sorted(block for name in names if (block := BlockName.of(name)) is not None)

    def seal(self, block: BlockName, manifest: str) -> None:
        """Write a manifest of a block next to its files and flush all of them to disk.

        Raises:
            StorageFailed: the manifest cannot be written, or exists already.
        """
        place, content = self._place(block), manifest.encode()
        name = manifest_file(hashlib.sha256(content).hexdigest())
        try:
            if isinstance(self._fs, LocalFileSystem):
                self._fs.makedirs(place, exist_ok=True)
                with Path(place, name).open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                _flush_directory(place)
                _flush_directory(self._root)
            else:
                self._fs.pipe_file(f"{place}/{name}", content)
        except OSError as error:
            raise StorageFailed(f"the block's manifest cannot be written: {error}", path=self.path(block)) from error

    def unseal(self, placements: Iterable[tuple[BlockName, str]]) -> None:
        """Delete manifests of blocks, by their digests, and their markers; missing ones count as deleted.

        Raises:
            StorageFailed: a file cannot be deleted.
        """
        for block, digest in placements:
            for name in (marker_file(manifest_file(digest)), manifest_file(digest)):
                try:
                    self._fs.rm_file(f"{self._place(block)}/{name}")
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise StorageFailed(f"the manifest cannot be deleted: {error}", path=self.path(block)) from error

    def manifest(self, block: BlockName, file: str) -> str | None:
        """Return a manifest of a block, by the name of its file; None if there is none.

        Raises:
            StorageFailed: the manifest cannot be read.
        """
        try:
            content: bytes = self._fs.cat_file(f"{self._place(block)}/{file}")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(f"the block's manifest cannot be read: {error}", path=self.path(block)) from error
        return content.decode("utf-8", "replace")

    def mark_committed(self, placements: Iterable[tuple[BlockName, str]]) -> None:
        """Mark placements of blocks, by the digests of their manifests, as published by a catalog.

        Raises:
            StorageFailed: the mark cannot be written.
        """
        for block, digest in placements:
            try:
                self._fs.pipe_file(f"{self._place(block)}/{marker_file(manifest_file(digest))}", b"")
            except OSError as error:
                raise StorageFailed(f"the block cannot be marked: {error}", path=self.path(block)) from error

    def keep_log(self, run: int, day: date, text: str) -> None:
        """Write the log of a run that began on the given day, replacing any earlier one."""
        place, content = self._log(run, day), text.encode("utf-8", "backslashreplace")
        try:
            try:
                self._replace(place, content)
            except FileNotFoundError:  # first log of this day
                self._fs.makedirs(place.rpartition("/")[0], exist_ok=True)
                self._replace(place, content)
        except OSError as error:
            raise StorageFailed(f"the log cannot be written: {error}", run=run, path=self.url) from error

    def log(self, run: int, day: date) -> str | None:
        """Return the log of a run that began on the given day; None if there is none.

        Raises:
            StorageFailed: the log cannot be read.
        """
        try:
            content: bytes = self._fs.cat_file(self._log(run, day))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(f"the log cannot be read: {error}", run=run, path=self.url) from error
        return content.decode()

    def delete_logs(self, before: date) -> None:
        """Delete the logs of runs that began before the given day."""
        place = f"{self._root}/{_LOGS}"
        try:
            if not self._fs.exists(place):
                return
            self._fs.invalidate_cache()
            for folder in self._fs.ls(place, detail=False):
                day = _DAY.search(folder.rstrip("/"))
                if day is not None and date.fromisoformat(day[0]) < before:
                    self._fs.rm(folder, recursive=True)
        except FileNotFoundError:  # another process is deleting them
            return
        except OSError as error:
            raise StorageFailed(f"logs cannot be deleted: {error}", path=self.url) from error

    def branches(self) -> list[str]:
        """Return the names of the branches that have a directory."""
        place = f"{self._root}/{BRANCHES}"
        self._fs.invalidate_cache(place)
        try:
            return [entry.rstrip("/").rpartition("/")[2] for entry in self._fs.ls(place, detail=False)]
        except FileNotFoundError:
            return []

    def delete_branch(self, name: str) -> None:
        """Delete a branch with its blocks; a missing one counts as deleted.

        Raises:
            StorageFailed: it cannot be deleted.
        """
        place = f"{self._root}/{BRANCHES}/{name}"
        try:
            self._fs.rm(place, recursive=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageFailed(f"the branch cannot be deleted: {error}", path=place) from error

    def _replace(self, place: str, content: bytes) -> None:
        """Replace a file atomically: the old content stays until the new one is complete."""
        if isinstance(self._fs, LocalFileSystem):  # object stores replace atomically
            self._fs.pipe_file(f"{place}.draft", content)
            os.replace(f"{place}.draft", place)
        else:
            self._fs.pipe_file(place, content)

    def _log(self, run: int, day: date) -> str:
        return f"{self._root}/{_LOGS}/{day.isoformat()}/run_{run}.log"

    def found(self, block: BlockName) -> dict[str, int] | None:
        """Return the sizes of the files in a block's directory by name, without hidden ones; None if it does not exist.

        Raises:
            StorageFailed: the directory cannot be read.
        """
        place = self._place(block)
        try:
            if isinstance(self._fs, LocalFileSystem):
                with os.scandir(place) as entries:
                    return {each.name: each.stat().st_size for each in entries if not each.name.startswith(".")}
            self._fs.invalidate_cache(place)
            sizes = {each["name"].rpartition("/")[2]: int(each["size"]) for each in self._fs.ls(place, detail=True)}
            return {name: size for name, size in sizes.items() if not name.startswith(".")}
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(f"the block cannot be read: {error}", path=self.path(block)) from error

    def every_found(self) -> Callable[[BlockName], dict[str, int] | None]:
        """Return a function equivalent to `found` for many blocks; an object store is listed only once.

        Raises:
            StorageFailed: the warehouse cannot be read.
        """
        if isinstance(self._fs, LocalFileSystem):
            return self.found
        blocks: dict[str, dict[str, int]] = {}
        try:
            self._fs.invalidate_cache()
            for path, entry in self._fs.find(self._root, detail=True).items():
                directory, _, name = path.removeprefix(f"{self._root}/").partition("/")
                if not name.startswith("."):
                    blocks.setdefault(directory, {})[name] = int(entry["size"])
        except OSError as error:
            raise StorageFailed(f"the warehouse cannot be read: {error}", path=self.url) from error
        return lambda block: blocks.get(block.directory)

    def checksum(self, block: BlockName, file: str) -> str | None:
        """Return the checksum of a block's file, as in `StoredFile`; None if there is no such file.

        Raises:
            StorageFailed: the warehouse cannot be reached.
        """
        try:
            with self._fs.open(f"{self._place(block)}/{file}", "rb") as opened:
                return str(hashlib.file_digest(opened, _CHECKSUM).hexdigest())
        except (FileNotFoundError, IsADirectoryError):
            return None
        except OSError as error:
            raise StorageFailed(f"a file of the block cannot be read: {error}", path=self.path(block)) from error

    def set_aside(self, block: BlockName, file: str) -> None:
        """Quarantine a file in a block's directory: prefix its name with `_foreign_`, so that Spark ignores it.

        Raises:
            StorageFailed: the file cannot be renamed.
        """
        place = self._place(block)
        try:
            self._fs.mv(f"{place}/{file}", f"{place}/_foreign_{file}", recursive=True)
        except OSError as error:
            raise StorageFailed(f"a file cannot be moved aside: {error}", path=self.path(block)) from error

    def recorded(self, block: BlockName) -> tuple[StoredFile, ...]:
        """Return the files of a block that was just written, by name; local ones are flushed to disk.

        Raises:
            StorageFailed: a file cannot be read.
        """
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                return tuple(pool.map(self._recorded, (path for path, _ in self._listed(block))))
        except (OSError, ValueError) as error:
            raise StorageFailed(f"the block cannot be read: {error}", path=self.path(block)) from error

    def table(
        self,
        block: BlockName,
        files: Iterable[StoredFile],
        columns: Sequence[str],
        where: pc.Expression | None = None,
    ) -> pa.Table:
        """Return rows of a block, in the order of its files.

        Args:
            block: the block.
            files: its files.
            columns: the columns to return.
            where: the condition that the rows satisfy; parts of files that cannot satisfy it are not read.

        Raises:
            StorageFailed: a file cannot be read.
        """
        with self._reading(block):
            return self._dataset(block, files).to_table(columns=list(columns), filter=where)

    def small_table(
        self, block: BlockName, files: Iterable[StoredFile], columns: Sequence[str], most: int
    ) -> pa.Table | None:
        """Return rows of a block, in the order of its files; None if they take more memory than `most`, in bytes.

        Rows may take far more memory than their files, in which equal values are stored once: a few are read at a time.

        Args:
            block: the block.
            files: its files.
            columns: the columns to return, at least one.
            most: size of the rows in memory, in bytes, at most.

        Raises:
            StorageFailed: a file cannot be read.
        """
        parts, size = [], 0
        with self._reading(block):
            for file in files:
                with self._fs.open(f"{self._place(block)}/{file.name}", "rb") as opened:
                    found = parquet.ParquetFile(opened, coerce_int96_timestamp_unit="us")
                    groups = (found.metadata.row_group(place) for place in range(found.num_row_groups))
                    largest = max((group.total_byte_size for group in groups), default=0)  # no row is larger
                    together = max(16, _DECODED // max(1, largest))
                    parts.append(found.schema_arrow.empty_table().select(columns))
                    for batch in found.iter_batches(together, columns=list(columns)):
                        size += batch.nbytes
                        if size > most:
                            return None
                        parts.append(pa.Table.from_batches([batch]).select(columns))
            return pa.concat_tables(parts)

    @contextmanager
    def opened(self, block: BlockName, file: StoredFile) -> Iterator[parquet.ParquetFile]:
        """Open a file of a block, to read some row groups of it.

        Raises:
            StorageFailed: the file cannot be read.
        """
        with self._reading(block), self._fs.open(f"{self._place(block)}/{file.name}", "rb") as opened:
            yield parquet.ParquetFile(opened, coerce_int96_timestamp_unit="us")

    def size_where(self, block: BlockName, files: Iterable[StoredFile], where: pc.Expression) -> int:
        """Return the uncompressed size in bytes of the parts of a block's files that may have rows with a condition.

        Raises:
            StorageFailed: a file cannot be read.
        """
        with self._reading(block):
            parts = (part.subset(where) for part in self._dataset(block, files).get_fragments(filter=where))
            return sum(group.total_byte_size for part in parts for group in part.row_groups)

    def uncompressed_size(self, block: BlockName, files: Iterable[StoredFile]) -> int:
        """Return the uncompressed size in bytes of files of a block.

        Raises:
            StorageFailed: a file cannot be read.
        """
        return self.size_where(block, files, pc.scalar(True))

    def batches(self, block: BlockName, file: StoredFile, names: Mapping[str, str]) -> Iterator[pa.Table]:
        """Return the rows of a file of a block, some at a time.

        Args:
            block: the block.
            file: the file.
            names: the names of the columns to read, each with the name to give to it.

        Raises:
            StorageFailed: the file cannot be read.
        """
        with self._reading(block), self._fs.open(f"{self._place(block)}/{file.name}", "rb") as opened:
            yield from read_batches(opened, names)

    @contextmanager
    def created(self, block: BlockName, file: str) -> Iterator[IO[bytes]]:
        """Create a file of a block, or replace it, within a `with` block.

        Raises:
            StorageFailed: the file cannot be written.
        """
        place = self._place(block)
        try:
            self._fs.makedirs(place, exist_ok=True)
            with self._fs.open(f"{place}/{file}", "wb") as opened:
                yield opened
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise disk_full(self.path(block)) from error
            raise StorageFailed(f"the block cannot be written: {error}", path=self.path(block)) from error

    def write_rows(self, block: BlockName, file: str, rows: pa.Table) -> StoredFile:
        """Write rows to a new file of a block, as Spark would, and return it; a local one is flushed to disk.

        Raises:
            StorageFailed: the file cannot be written.
        """
        with self.created(block, file) as opened, RowWriter(opened, rows.schema) as writer:
            writer.write(rows)
        with self._reading(block):
            return self._recorded(f"{self._place(block)}/{file}")

    def _dataset(self, block: BlockName, files: Iterable[StoredFile]) -> dataset.Dataset:
        paths = [f"{self._place(block)}/{file.name}" for file in files]
        return dataset.dataset(paths, filesystem=self._fs, format=_PARQUET)

    @contextmanager
    def _reading(self, block: BlockName) -> Iterator[None]:
        """Translate the errors of reading a block's files."""
        try:
            yield
        except (OSError, ValueError, KeyError) as error:
            raise StorageFailed(f"the block cannot be read: {error}", path=self.path(block)) from error

    def first_rows(self, block: BlockName, columns: Sequence[str], count: int) -> pa.Table | None:
        """Return some columns of at most `count` rows of a block, the first ones of one file; None if it has none.

        Raises:
            StorageFailed: a file cannot be read.
        """
        try:
            for path, _ in self._listed(block):
                with self._fs.open(path, "rb") as file:
                    for batch in parquet.ParquetFile(file).iter_batches(batch_size=count, columns=list(columns)):
                        return pa.Table.from_batches([batch])
        except (OSError, ValueError) as error:
            raise StorageFailed(f"the block cannot be read: {error}", path=self.path(block)) from error
        return None

    def _recorded(self, path: str) -> StoredFile:
        size, rows, checksum = recorded(self._fs, path)
        return StoredFile(name=path.rpartition("/")[2], size=size, rows=rows, checksum=checksum)

    def location(self, block: BlockName) -> str:
        """Return the path of a block's directory on the file system of the warehouse."""
        return self._place(block)

    def drafts(self, block: BlockName) -> tuple[AbstractFileSystem, str]:
        """Return the file system of the warehouse, and the path on it of a hidden directory for files of a block."""
        return self._fs, f"{self._place(block)}/{_DRAFTS}"

    def adopt(self, block: BlockName, files: Iterable[StoredFile]) -> tuple[StoredFile, ...]:
        """Move files from the hidden directory of a block to the block, and delete the others there.

        Returns:
            The files, by name.

        Raises:
            StorageFailed: a file cannot be moved.
        """
        place, moved = self._place(block), sorted(files, key=lambda file: file.name)

        def move(file: StoredFile) -> None:
            self._fs.mv(f"{place}/{_DRAFTS}/{file.name}", f"{place}/{file.name}")

        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(move, moved))
            if self._fs.exists(f"{place}/{_DRAFTS}"):
                self._fs.rm(f"{place}/{_DRAFTS}", recursive=True)
        except OSError as error:
            raise StorageFailed(f"the block cannot be written: {error}", path=self.path(block)) from error
        return tuple(moved)

    def name_buckets(self, block: BlockName, files: Iterable[StoredFile]) -> tuple[StoredFile, ...]:
        """Rename the files of a block, one per partition, to the names by which Spark recognizes buckets.

        Returns:
            The files, with their new names.
        """
        place, renamed = self._place(block), []
        for file in files:
            match = _PART.match(file.name)
            assert match is not None  # written by Spark
            stem, dot, rest = file.name.partition(".")
            name = f"{stem}_{int(match[1]):05d}{dot}{rest}"
            self._fs.mv(f"{place}/{file.name}", f"{place}/{name}")
            if self._fs.exists(hidden := f"{place}/.{file.name}.crc"):
                self._fs.rm(hidden)
            renamed.append(replace(file, name=name))
        return tuple(renamed)

    def _place(self, block: BlockName) -> str:
        return f"{self._root}/{block.directory}"

    def _listed(self, block: BlockName) -> list[tuple[str, int]]:
        """Return the paths of a block's files that Spark reads, and their sizes, in order."""
        place = self._place(block)
        self._fs.invalidate_cache(place)
        try:
            entries = self._fs.ls(place, detail=True)
        except FileNotFoundError:
            return []
        found = ((entry["name"], entry["size"]) for entry in entries)
        return sorted((path, size) for path, size in found if not path.rpartition("/")[2].startswith(("_", ".")))


class BranchStorage(Storage):
    """Files of a branch of a warehouse: its own blocks, and by reference those that the warehouse had before.

    Args:
        origin: the warehouse's storage.
        name: the name of the branch.
        until: the largest number of a block of the warehouse; larger ones are the branch's own.
    """

    def __init__(self, origin: Storage, name: str, until: int) -> None:
        super().__init__(f"{origin.url}/{BRANCHES}/{name}")
        self._origin = origin
        self._name = name
        self._until = until

    def path(self, block: BlockName) -> str:
        """Return the URL of a block's directory."""
        return self._origin.path(block) if block.number <= self._until else super().path(block)

    def _place(self, block: BlockName) -> str:
        return self._origin._place(block) if block.number <= self._until else super()._place(block)

    def seal(self, block: BlockName, manifest: str) -> None:
        """Write a manifest of a block of the branch; blocks of the warehouse get no manifests of placements in it."""
        if block.number > self._until:
            super().seal(block, manifest)

    def unseal(self, placements: Iterable[tuple[BlockName, str]]) -> None:
        """Delete manifests of blocks of the branch."""
        super().unseal(each for each in placements if each[0].number > self._until)

    def mark_committed(self, placements: Iterable[tuple[BlockName, str]]) -> None:
        """Mark placements of blocks of the branch."""
        super().mark_committed(each for each in placements if each[0].number > self._until)

    def delete(self, blocks: Iterable[BlockName]) -> None:
        """Delete the directories of blocks of the branch; those of the warehouse are ignored, as missing ones are."""
        super().delete(block for block in blocks if block.number > self._until)

    def remove(self) -> None:
        """Delete the branch with its blocks.

        Raises:
            StorageFailed: it cannot be deleted.
        """
        self._origin.delete_branch(self._name)


def disk_full(path: str | None) -> StorageFailed:
    """Return the error for a block that cannot be written, as there is no space."""
    return StorageFailed("the disk is full", path=path, hint="Free some space; nothing was changed")


def _flush_directory(path: str) -> None:
    """Flush a directory's entries to disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
