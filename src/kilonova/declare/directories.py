"""Declaration of watched directories: see `kilonova.model.watched_directory`."""

from __future__ import annotations

from collections.abc import Mapping

from fsspec.utils import glob_translate

from kilonova.declare.schedules import seconds_of
from kilonova.errors import DeclarationError
from kilonova.model.watched_directory import WatchedDirectory


def directory(
    place: str,
    pattern: str = "*",
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    every: str = "30 seconds",
    settle: str = "5 seconds",
) -> WatchedDirectory:
    """Declare a directory whose files are ingested into a channel, each once.

    Files whose names begin with `.` or `_`, or end with the suffix of an incomplete file (`.tmp`, `.part`), are
    ignored.

    Args:
        place: a path, relative to the project's directory unless it is absolute, or a URL such as `s3://bucket/inbox`.
        pattern: pattern of the files to ingest: `*.csv`, or `**/*.csv` to include subdirectories.
        format: `parquet`, `csv`, `json` or any format that Spark reads; inferred from the names by default.
        options: options for Spark's reader.
        every: interval between scans.
        settle: time for which a file must have been unchanged to count as complete.

    Raises:
        DeclarationError: the place is missing, the pattern is invalid, or a time cannot be parsed.
    """
    try:
        glob_translate(pattern)
    except ValueError as error:
        raise DeclarationError(f"the pattern {pattern!r} is none: {error}", hint="Write it as **/*.csv") from None
    return WatchedDirectory(
        place=place,
        pattern=pattern,
        format=format,
        options=tuple(sorted((options or {}).items())),
        every=seconds_of(every),
        settle=seconds_of(settle),
    )
