"""Fingerprints of files on any file system of fsspec."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kilonova.model.watched_file import Fingerprint

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modificationTime", "created")
_TAGS = ("ETag", "etag", "content_md5", "md5Hash", "generation")


def fingerprint_of(entry: dict[str, Any]) -> Fingerprint:
    """Return a file's fingerprint, from its fsspec directory entry.

    >>> str(fingerprint_of({"size": 3, "mtime": 0.5}).modified)
    '1970-01-01 00:00:00.500000+00:00'
    """
    time = next((entry[name] for name in _TIMES if entry.get(name) is not None), None)
    tag = next((str(entry[name]) for name in _TAGS if entry.get(name) is not None), "")
    modified = None
    try:
        if isinstance(time, datetime):
            modified = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        elif isinstance(time, int | float):
            modified = datetime.fromtimestamp(time, UTC)
        elif time is not None:
            tag += str(time)
    except (OverflowError, ValueError, OSError):  # time out of range
        tag += str(time)
    return Fingerprint(int(entry.get("size") or 0), modified, tag)
