"""Looking at watched directories: what is in them is compared with what is known, and what follows is written down.

No Spark is needed for it. Several may look at one directory at the same time: what follows is decided again in the
transaction that writes it down.
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
from kilonova.catalog.files import BATCH, Looked, Ready
from kilonova.errors import StorageFailed
from kilonova.model.directory import Directory
from kilonova.model.file import Fingerprint, key_of
from kilonova.schedule.gathering import Verdict, hidden, judge
from kilonova.warehouse.fingerprints import fingerprint_of


def look(catalog: Catalog, base: Path, channel: str, lease: timedelta, *, early: bool = False) -> Looked | None:
    """Look at the directory of a channel.

    Args:
        catalog: the catalog.
        base: what the places of directories are relative to.
        channel: the channel.
        lease: for how long others leave it alone without a sign of life.
        early: whether to look although it is not time yet, or somebody else is looking.

    Returns:
        How things stand; None if it is not time yet.

    Raises:
        UnknownName: there is no such channel.
    """
    with catalog.writing() as tx:
        began = tx.now
        directory = files.begin_look(tx, channel, lease, early=early)
    if directory is None:
        return None
    with catalog.reading() as tx:
        missing = files.untaken(tx, channel)
    settle = timedelta(seconds=directory.settle)
    renewed = began
    listing = Listing(directory, base)
    for some in listing.batches():
        seen = {directory.path(name): fingerprint for name, fingerprint in some.items()}
        missing.difference_update(map(key_of, seen))
        with catalog.reading() as tx:
            verdicts = _verdicts(tx, channel, seen, settle)
        if verdicts or tx.now > renewed + lease / 3:
            with catalog.writing() as tx:
                renewed = tx.now
                files.prolong_look(tx, channel, lease)
                files.record(tx, channel, _verdicts(tx, channel, {path: seen[path] for path in verdicts}, settle))
    if not listing.problems:
        with catalog.writing() as tx:
            files.forget(tx, channel, missing)
    with catalog.writing() as tx:
        return files.end_look(tx, channel, directory, began, "; ".join(listing.problems) or None)


def _verdicts(
    tx: Transaction, channel: str, seen: dict[str, Fingerprint], settle: timedelta
) -> dict[str, tuple[Fingerprint, Verdict]]:
    known = files.known(tx, channel, seen)
    found = {path: (mark, judge(mark, known.get(path), tx.now, settle)) for path, mark in seen.items()}
    return {path: (mark, verdict) for path, (mark, verdict) in found.items() if verdict is not None}


@dataclass(slots=True)
class Listing:
    """What is in a directory, read bit by bit.

    Attributes:
        directory: the directory.
        base: what its place is relative to.
        problems: why not everything could be read, once all that could be has been.
    """

    directory: Directory
    base: Path
    problems: list[str] = field(default_factory=list)

    def batches(self) -> Iterator[dict[str, Fingerprint]]:
        """The files that are meant, by their names within the directory, a few hundred at a time."""
        found = self._files()
        while some := dict(islice(found, BATCH)):
            yield some

    def _files(self) -> Iterator[tuple[str, Fingerprint]]:
        try:
            fs, root = url_to_fs(url_of(self.directory.place, self.base))
            fs.invalidate_cache()
        except Exception as error:  # drivers raise whatever they like
            self.problems.append(f"{self.directory.place} cannot be reached: {_said(error)}")
            return
        pattern = self.directory.pattern
        depth = None if "**" in pattern.split("/") else pattern.count("/")
        meant = re.compile(glob_translate(pattern))
        for name, fingerprint in self._below(fs, root.rstrip("/") or "/", "", depth):
            if not meant.match(name) or hidden(name):
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
                    if not hidden(name + "/") and (depth is None or depth > 0):
                        directories.append(name)
                else:
                    yield prefix + name, fingerprint_of(entry)
        except FileNotFoundError:
            if isinstance(fs, LocalFileSystem) and not prefix:  # elsewhere an empty directory is none
                self.problems.append(f"there is no directory {self.directory.place}")
        except Exception as error:
            self.problems.append(f"{self.directory.path(prefix)} cannot be read: {_said(error)}")
        for name in directories:
            yield from self._below(
                fs, f"{place.rstrip('/')}/{name}", f"{prefix}{name}/", None if depth is None else depth - 1
            )


def _entries(fs: AbstractFileSystem, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is directly in a directory, by name; of links to files that to which they lead, and none to directories."""
    if isinstance(fs, LocalFileSystem):  # one after the other: there may be millions
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
    """A path as fsspec takes it: a URL, or an absolute path."""
    return path if "://" in path else str((base / path).absolute())


def moved(found: list[Ready], base: Path) -> list[Ready]:
    """Those of some files of one directory that are not as they were.

    Raises:
        StorageFailed: that cannot be told now.
    """

    def differs(one: Ready) -> bool:
        _, name = url_to_fs(url_of(one.path, base))
        try:
            return fingerprint_of(fs.info(name)) != one.fingerprint
        except FileNotFoundError:
            return True
        except Exception as error:
            raise StorageFailed(f"the file cannot be reached: {_said(error)}", path=one.path) from error

    fs, _ = url_to_fs(url_of(found[0].path, base))
    fs.invalidate_cache()
    with ThreadPoolExecutor(16) as pool:
        return [one for one, changed in zip(found, pool.map(differs, found), strict=True) if changed]


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
