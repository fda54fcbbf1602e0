"""A file of a watched directory, from when it is seen until a run has taken it.

::

    WAITING ── settles ──▶ READY ── a run takes it ──▶ TAKEN
       ▲                    │ ▲
       │            cannot be read
       │                    ▼ └── a person asks
       └──── changes ──── ASIDE

A WAITING file may still be being written. One that goes before it is taken is forgotten. TAKEN is for ever.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from datetime import datetime


class FileState(enum.Enum):
    """Where a file stands."""

    WAITING = "waiting"
    READY = "ready"
    TAKEN = "taken"
    ASIDE = "set aside"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """By what it is seen that a file has changed.

    Attributes:
        size: its size in bytes.
        modified: when it was modified; None where the file system does not tell.
        tag: what else the file system tells that another content would change; empty if nothing.
    """

    size: int
    modified: datetime | None
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file as the catalog keeps it.

    Attributes:
        path: its path; see `kilonova.model.directory`.
        state: where it stands.
        fingerprint: of what was seen last, or taken.
        since: since when it is as it is.
        run: the run that took it, or tried last.
        error: why it is set aside.
        changed: when it was seen that it has changed since it was taken; None if it has not.
    """

    path: str
    state: FileState
    fingerprint: Fingerprint
    since: datetime
    run: int | None
    error: str | None
    changed: datetime | None


@dataclass(frozen=True, slots=True)
class Fate:
    """What a run makes of a file that it had before it.

    Attributes:
        path: the file's path.
        state: TAKEN or ASIDE; None forgets it, because it is not any more what was seen.
        error: why it is set aside.
    """

    path: str
    state: FileState | None
    error: str | None = None


def key_of(path: str) -> str:
    """A short name for a path, however long that is.

    >>> key_of("inbox/a.csv")
    '0dc228fdffa82ec0a0a127c8d9768d3f'
    """
    return hashlib.blake2b(path.encode(), digest_size=16).hexdigest()
