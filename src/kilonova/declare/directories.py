"""Declaration of watched directories: see `kilonova.model.watched_directory`."""

from __future__ import annotations

from collections.abc import Mapping

from fsspec.utils import glob_translate

from kilonova.declare.schedules import seconds_of
from kilonova.errors import DeclarationError, SettingsError
from kilonova.model.reader_options import check_reader_options
from kilonova.model.watched_directory import WatchedDirectory


def watched_directory(
    path: str,
    pattern: str = "*",
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    poll_interval: str = "30 seconds",
    settle_time: str = "5 seconds",
    in_order: bool = False,
) -> WatchedDirectory:
    """Declare a directory whose files are ingested into a channel, each once.

    Files whose names begin with `.` or `_`, or end with the suffix of an incomplete file (`.tmp`, `.part`), are
    ignored.

    Args:
        path: a path, relative to the project's directory unless it is absolute, or a URL such as `s3://bucket/inbox`.
        pattern: pattern of the files to ingest: `*.csv`, or `**/*.csv` to include subdirectories.
        format: `parquet`, `csv`, `json` or any format that Spark reads; inferred from the names by default.
        options: options for Spark's reader.
        poll_interval: interval between scans.
        settle_time: time for which a file must have been unchanged to count as complete.
        in_order: whether to ingest no file before an earlier one: a file that cannot be ingested stops those after it
            until it is corrected or deleted.

    Raises:
        DeclarationError: the path is empty, the pattern or an option is invalid, or a time cannot be parsed.
    """
    try:
        glob_translate(pattern)
    except ValueError as error:
        raise DeclarationError(f"the pattern {pattern!r} is invalid: {error}", hint="Write it as **/*.csv") from None
    try:
        check_reader_options(options or {}, format)
    except SettingsError as error:
        raise DeclarationError(error.problem, hint=error.hint) from None
    return WatchedDirectory(
        location=path,
        pattern=pattern,
        format=format,
        options=tuple(sorted((options or {}).items())),
        poll_interval=seconds_of(poll_interval),
        settle_time=seconds_of(settle_time),
        in_order=in_order,
    )
