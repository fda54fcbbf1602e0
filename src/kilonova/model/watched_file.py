"""A file of a watched directory, from its discovery until a run has ingested it.

::

    SETTLING ── settles ──▶ READY ── a run ingests it ──▶ INGESTED
       ▲                     │ ▲
       │             cannot be read
       │                     ▼ └── retried by a person
       └──── changes ── QUARANTINED

A SETTLING file may still be being written. A READY file that has changed since it was scanned is SETTLING again. A file
that is removed before it is ingested is forgotten. INGESTED is terminal.

Files are ordered by their modification times, and by their paths where those are equal. A file that was quarantined
keeps its place in that order when it is corrected.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from datetime import datetime


class FileState(enum.Enum):
    """State of a file of a watched directory."""

    SETTLING = "settling"
    READY = "ready"
    INGESTED = "ingested"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Fingerprint for detecting changed files: size, modification time, ETag.

    Attributes:
        size: its size in bytes.
        modified: modification time; None if the file system does not provide it.
        tag: content-dependent tag of the file system, such as an ETag; empty if there is none.
    """

    size: int
    modified: datetime | None
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFile:
    """A file as recorded in the catalog.

    Attributes:
        path: its path; see `kilonova.model.watched_directory`.
        state: its state.
        fingerprint: its fingerprint when last seen, or when ingested.
        since: time since which it has been in this state.
        run: the run that ingested it, or tried last.
        error: the reason why it is quarantined.
        changed: time at which a change after its ingest was detected; None if there was none.
    """

    path: str
    state: FileState
    fingerprint: Fingerprint
    since: datetime
    run: int | None
    error: str | None
    changed: datetime | None


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """Outcome of a run for a file that it claimed.

    Attributes:
        path: the file's path.
        state: INGESTED, QUARANTINED, or SETTLING because it has changed since it was scanned.
        error: the reason why it is quarantined.
    """

    path: str
    state: FileState
    error: str | None = None


def key_of(path: str) -> str:
    """Return a short name for a path of any length.

    >>> key_of("inbox/a.csv")
    '0dc228fdffa82ec0a0a127c8d9768d3f'
    """
    return hashlib.blake2b(path.encode(), digest_size=16).hexdigest()
