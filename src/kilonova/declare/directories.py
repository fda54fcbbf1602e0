"""Watched directories as users write them: see `kilonova.model.directory`."""

from __future__ import annotations

from collections.abc import Mapping

from fsspec.utils import glob_translate

from kilonova.declare.schedules import seconds_of
from kilonova.errors import DeclarationError
from kilonova.model.directory import Directory


def directory(
    place: str,
    pattern: str = "*",
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    every: str = "30 seconds",
    settle: str = "5 seconds",
) -> Directory:
    """A directory whose files become part of a channel, each once.

    Files whose names begin with `.` or `_`, or end as those that are still being written (`.tmp`, `.part`), are left
    alone.

    Args:
        place: a path, relative to the project's directory unless it is absolute, or a URL such as `s3://bucket/inbox`.
        pattern: which files in it are meant: `*.csv`, or `**/*.csv` for those in its directories too.
        format: `parquet`, `csv`, `json` or any format that Spark reads; told from the names if left out.
        options: options for Spark's reader.
        every: how often to look.
        settle: for how long a file must have stayed as it is to count as complete.

    Raises:
        DeclarationError: there is no place, the pattern is none, or a time cannot be understood.
    """
    try:
        glob_translate(pattern)
    except ValueError as error:
        raise DeclarationError(f"the pattern {pattern!r} is none: {error}", hint="Write it as **/*.csv") from None
    return Directory(
        place=place,
        pattern=pattern,
        format=format,
        options=tuple(sorted((options or {}).items())),
        every=seconds_of(every),
        settle=seconds_of(settle),
    )
