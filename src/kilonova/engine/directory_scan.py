"""Scans of watched directories: their contents are compared with the known files, and the resulting decisions recorded.

Scans need no Spark. Several processes may scan one directory at the same time: decisions are made again in the
transaction that records them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import glob_translate

from kilonova.catalog import files
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.files import BATCH, ReadyFile, ScanResult
from kilonova.errors import StorageFailed
from kilonova.model.watched_directory import WatchedDirectory
from kilonova.model.watched_file import Fingerprint, key_of
from kilonova.schedule.file_selection import FileDecision, classify, is_hidden
from kilonova.warehouse.file_fingerprints import fingerprint_of


def scan_directory(
    catalog: Catalog, base: Path, channel: str, lease: timedelta, *, early: bool = False
) -> ScanResult | None:
    """Scan the watched directory of a channel.

    Args:
        catalog: the catalog.
        base: the directory that the locations of watched directories are relative to.
        channel: the channel.
        lease: time after which other processes may scan it if this one does not renew its claim.
        early: whether to scan although the scan is not due yet, or another process is scanning.

    Returns:
        The result of the scan; None if it is not due yet.

    Raises:
        NotFound: there is no such channel.
    """
    with catalog.writing() as tx:
        began = tx.now
        directory = files.begin_scan(tx, channel, lease, early=early)
    if directory is None:
        return None
    with catalog.reading() as tx:
        missing = files.uningested(tx, channel)
    settle = timedelta(seconds=directory.settle_time)
    renewed = began
    listing = DirectoryListing(directory, base)
    for some in listing.batches():
        seen = {directory.path(name): fingerprint for name, fingerprint in some.items()}
        missing.difference_update(map(key_of, seen))
        with catalog.reading() as tx:
            verdicts = _decisions(tx, channel, seen, settle)
        if verdicts or tx.now > renewed + lease / 3:
            with catalog.writing() as tx:
                renewed = tx.now
                files.extend_scan(tx, channel, lease)
                files.record(tx, channel, _decisions(tx, channel, {path: seen[path] for path in verdicts}, settle))
    if not listing.problems:
        with catalog.writing() as tx:
            files.forget(tx, channel, missing)
    with catalog.writing() as tx:
        return files.end_scan(tx, channel, directory, began, "; ".join(listing.problems) or None)


def _decisions(
    tx: Transaction, channel: str, seen: dict[str, Fingerprint], settle: timedelta
) -> dict[str, tuple[Fingerprint, FileDecision]]:
    known = files.known(tx, channel, seen)
    found = {path: (mark, classify(mark, known.get(path), tx.now, settle)) for path, mark in seen.items()}
    return {path: (mark, verdict) for path, (mark, verdict) in found.items() if verdict is not None}


@dataclass(slots=True)
class DirectoryListing:
    """Contents of a directory, read incrementally.

    Attributes:
        directory: the directory.
        base: the directory that its location is relative to.
        problems: the reasons why not everything could be read; complete once everything else has been read.
    """

    directory: WatchedDirectory
    base: Path
    problems: list[str] = field(default_factory=list)

    def batches(self) -> Iterator[dict[str, Fingerprint]]:
        """Yield the fingerprints of matching files, by name within the directory, a few hundred at a time."""
        found = self._files()
        while some := dict(islice(found, BATCH)):
            yield some

    def _files(self) -> Iterator[tuple[str, Fingerprint]]:
        try:
            fs, root = url_to_fs(url_of(self.directory.location, self.base))
            fs.invalidate_cache()
        except Exception as error:  # drivers raise arbitrary exceptions
            self.problems.append(f"{self.directory.location} cannot be reached: {_message(error)}")
            return
        pattern = self.directory.pattern
        depth = None if "**" in pattern.split("/") else pattern.count("/")
        meant = re.compile(glob_translate(pattern))
        for name, fingerprint in self._below(fs, root.rstrip("/") or "/", "", depth):
            if not meant.match(name) or is_hidden(name):
                continue
            if "::" in name or name != name.encode("utf-8", "replace").decode():
                self.problems.append(f"{self.directory.path(ascii(name))} has a name that cannot be used; rename it")
                continue
            yield name, fingerprint

    def _below(
        self, fs: AbstractFileSystem, place: str, prefix: str, depth: int | None
    ) -> Iterator[tuple[str, Fingerprint]]:
        directories = []
        try:
            for name, entry in _entries(fs, place):
                if entry["type"] == "directory":
                    if not is_hidden(name + "/") and (depth is None or depth > 0):
                        directories.append(name)
                else:
                    yield prefix + name, fingerprint_of(entry)
        except FileNotFoundError:
            if isinstance(fs, LocalFileSystem) and not prefix:  # other file systems have no empty directories
                self.problems.append(f"there is no directory {self.directory.location}")
        except Exception as error:
            self.problems.append(f"{self.directory.path(prefix)} cannot be read: {_message(error)}")
        for name in directories:
            yield from self._below(
                fs, f"{place.rstrip('/')}/{name}", f"{prefix}{name}/", None if depth is None else depth - 1
            )


def _entries(fs: AbstractFileSystem, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the direct entries of a directory, by name; links to files are followed, links to directories left out."""
    if isinstance(fs, LocalFileSystem):  # as an iterator: there may be millions
        with os.scandir(place) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    yield entry.name, {"type": "directory"}
                elif entry.is_file():
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue
                    yield entry.name, {"type": "file", "size": status.st_size, "mtime": status.st_mtime}
        return
    for item in fs.ls(place, detail=True):
        name = item["name"].rstrip("/").rsplit("/", 1)[-1]
        if name and item["name"].rstrip("/") != place:
            yield name, item


def url_of(path: str, base: Path) -> str:
    """Return a path in the form that fsspec takes: a URL, or an absolute path."""
    return path if "://" in path else str((base / path).absolute())


def changed_files(found: list[ReadyFile], base: Path) -> list[ReadyFile]:
    """Return those of some files of one directory that have changed.

    Raises:
        StorageFailed: the file system cannot be reached.
    """

    def differs(one: ReadyFile) -> bool:
        _, name = url_to_fs(url_of(one.path, base))
        try:
            return fingerprint_of(fs.info(name)) != one.fingerprint
        except FileNotFoundError:
            return True
        except Exception as error:
            raise StorageFailed(f"the file cannot be reached: {_message(error)}", path=one.path) from error

    fs, _ = url_to_fs(url_of(found[0].path, base))
    fs.invalidate_cache()
    with ThreadPoolExecutor(16) as pool:
        return [one for one, changed in zip(found, pool.map(differs, found), strict=True) if changed]


def _message(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
