"""Directories and files of the warehouse, on any file system that fsspec and Spark share.

A block is the directory `block_<number>`; the number comes from the catalog, so no name is ever used twice
(Nova, section 3). Nothing here reads more than a few rows. The logs of runs stand beside them, by the day on which the
run began: `_logs/<day>/run_<number>.log`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as parquet
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from kilonova.errors import StorageFailed

_BLOCK = re.compile(r"block_(\d+)$")
_LOGS = "_logs"  # Spark takes no notice of what begins so
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}$")
_PART = re.compile(r"part-(\d+)-")


@dataclass(frozen=True, slots=True)
class Files:
    """What a directory of Parquet files holds, from the files' footers."""

    rows: int
    bytes: int
    count: int


class Storage:
    """The files of one warehouse.

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
            self._fs: fsspec.AbstractFileSystem
            self._fs, self._root = url_to_fs(self.url)
        except (ValueError, ImportError) as error:
            raise StorageFailed(
                f"the warehouse cannot be reached: {error}", path=url, hint="Install fsspec's driver for it"
            ) from None

    def path(self, block: int) -> str:
        """The URL of a block's directory."""
        return f"{self.url}/block_{block}"

    def create(self) -> None:
        """Make the warehouse's directory."""
        try:
            self._fs.makedirs(self._root, exist_ok=True)
        except OSError as error:
            raise StorageFailed(f"the warehouse cannot be made: {error}", path=self.url) from error

    def delete(self, blocks: Iterable[int]) -> None:
        """Delete the directories of blocks; those that are not there are deleted already."""
        for block in blocks:
            place = f"{self._root}/block_{block}"
            try:
                if self._fs.exists(place):
                    self._fs.rm(place, recursive=True)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageFailed(f"the block cannot be deleted: {error}", path=self.path(block)) from error

    def blocks(self) -> list[int]:
        """The numbers of the blocks that have a directory."""
        if not self._fs.exists(self._root):
            return []
        names = (entry.rstrip("/").rsplit("/", 1)[-1] for entry in self._fs.ls(self._root, detail=False))
        return sorted(int(match[1]) for name in names if (match := _BLOCK.match(name)))

    def keep_log(self, run: int, day: date, text: str) -> None:
        """Write the log of a run that began on a day, in place of what is there."""
        place, content = self._log(run, day), text.encode("utf-8", "backslashreplace")
        try:
            try:
                self._replace(place, content)
            except FileNotFoundError:  # the first of its day
                self._fs.makedirs(place.rpartition("/")[0], exist_ok=True)
                self._replace(place, content)
        except OSError as error:
            raise StorageFailed(f"the log cannot be written: {error}", run=run, path=self.url) from error

    def log(self, run: int, day: date) -> str | None:
        """The log of a run that began on a day; None if there is none.

        Raises:
            StorageFailed: it cannot be read.
        """
        try:
            content: bytes = self._fs.cat_file(self._log(run, day))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(f"the log cannot be read: {error}", run=run, path=self.url) from error
        return content.decode()

    def delete_logs(self, before: date) -> None:
        """Delete the logs of the runs that began before a day."""
        place = f"{self._root}/{_LOGS}"
        try:
            if not self._fs.exists(place):
                return
            self._fs.invalidate_cache()
            for folder in self._fs.ls(place, detail=False):
                day = _DAY.search(folder.rstrip("/"))
                if day is not None and date.fromisoformat(day[0]) < before:
                    self._fs.rm(folder, recursive=True)
        except FileNotFoundError:  # somebody else is at it
            return
        except OSError as error:
            raise StorageFailed(f"logs cannot be deleted: {error}", path=self.url) from error

    def _replace(self, place: str, content: bytes) -> None:
        """Write a file, so that what was there is there until all of it is written."""
        if isinstance(self._fs, LocalFileSystem):  # object stores do so anyway
            self._fs.pipe_file(f"{place}.draft", content)
            os.replace(f"{place}.draft", place)
        else:
            self._fs.pipe_file(place, content)

    def _log(self, run: int, day: date) -> str:
        return f"{self._root}/{_LOGS}/{day.isoformat()}/run_{run}.log"

    def files(self, block: int) -> Files:
        """What a block's files hold.

        Raises:
            StorageFailed: a file cannot be read.
        """
        place = f"{self._root}/block_{block}"
        try:
            self._fs.invalidate_cache()
            entries = [
                entry
                for entry in (self._fs.ls(place, detail=True) if self._fs.exists(place) else ())
                if entry["name"].endswith(".parquet")
            ]
            with ThreadPoolExecutor(8) as pool:
                rows = sum(pool.map(self._rows, (entry["name"] for entry in entries)))
        except (OSError, ValueError) as error:
            raise StorageFailed(f"the block cannot be read: {error}", path=self.path(block)) from error
        return Files(rows=rows, bytes=sum(entry["size"] for entry in entries), count=len(entries))

    def copy(self, block: int, to: int) -> None:
        """Give another block the files of a block; those that go meanwhile are left out.

        Raises:
            StorageFailed: a file cannot be copied.
        """
        origin, target = (f"{self._root}/block_{number}" for number in (block, to))
        try:
            self._fs.invalidate_cache()
            self._fs.makedirs(target, exist_ok=True)
            for name in self._fs.ls(origin, detail=False):
                self._fs.cp_file(name, f"{target}/{name.rpartition('/')[2]}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageFailed(f"the block cannot be copied: {error}", path=self.path(to)) from error

    def first_rows(self, block: int, columns: Sequence[str], count: int) -> list[dict[str, Any]]:
        """Some columns of at most `count` rows of a block, those of one file that come first.

        Raises:
            StorageFailed: a file cannot be read.
        """
        place = f"{self._root}/block_{block}"
        try:
            for name in sorted(self._fs.ls(place, detail=False)):
                if name.endswith(".parquet"):
                    with self._fs.open(name, "rb") as file:
                        for batch in parquet.ParquetFile(file).iter_batches(batch_size=count, columns=list(columns)):
                            return list(batch.to_pylist())
        except (OSError, ValueError) as error:
            raise StorageFailed(f"the block cannot be read: {error}", path=self.path(block)) from error
        return []

    def _rows(self, name: str) -> int:
        with self._fs.open(name, "rb") as file:
            return int(parquet.ParquetFile(file).metadata.num_rows)

    def name_buckets(self, block: int) -> None:
        """Give the files of a block, one per partition, the names by which Spark knows them as buckets."""
        place = f"{self._root}/block_{block}"
        self._fs.invalidate_cache()
        for name in self._fs.ls(place, detail=False):
            folder, _, file = name.rpartition("/")
            if file.endswith(".crc"):
                self._fs.rm(name)
            elif match := _PART.match(file):
                stem, dot, rest = file.partition(".")
                bucket = int(match[1])
                self._fs.mv(name, f"{folder}/{stem}_{bucket:05d}{dot}{rest}")
