"""A watched directory: a directory whose files are ingested into a source channel, each once.

A file is identified by the path that its directory's location and its name form, as they are declared, so that a
project can be moved together with its directories. A file that was ingested is never ingested again: neither when it
changes, nor when it is removed and one of the same name is added.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from kilonova.errors import DeclarationError
from kilonova.model.schedule import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedDirectory:
    """A watched directory.

    Attributes:
        location: a path, relative to the project's directory unless it is absolute, or a URL.
        pattern: pattern of the files to ingest; `*` matches any part of a name, `**` any directories.
        format: their format; None to infer it from their names.
        options: options for Spark's reader.
        poll_interval: seconds between two scans.
        settle_time: seconds for which a file must be unchanged to count as complete.
        in_order: whether no file is ingested before an earlier one, so that a quarantined file stops those after it.

    Raises:
        DeclarationError: there is no location, the pattern leads out of it, or a time is not positive.
    """

    location: str
    pattern: str = "*"
    format: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    poll_interval: int = 30
    settle_time: int = 5
    in_order: bool = False

    def __post_init__(self) -> None:
        if not self.location.strip():
            raise DeclarationError("the path of the watched directory is empty", hint="Give its path or URL")
        if not self.pattern or self.pattern.startswith("/") or ".." in self.pattern.split("/"):
            raise DeclarationError(
                f"the pattern {self.pattern!r} must be a relative path within the watched directory",
                hint="Write it as *.csv",
            )
        if self.poll_interval <= 0 or self.settle_time < 0:
            raise DeclarationError(
                "the poll interval must be positive, and the settle time not negative",
                hint="Write poll_interval='30 seconds', settle_time='5 seconds'",
            )
        if "://" not in self.location:
            object.__setattr__(self, "location", posixpath.normpath(self.location))
        elif not self.location.endswith("://"):
            object.__setattr__(self, "location", self.location.rstrip("/"))

    def path(self, name: str) -> str:
        """Return the path of a file by its name within the directory.

        >>> WatchedDirectory(location="inbox/").path("day 1/a.csv")
        'inbox/day 1/a.csv'
        """
        return f"{self.location.rstrip('/')}/{name}"

    def name(self, path: str) -> str:
        """Return the name of a file within the directory by its path.

        >>> WatchedDirectory(location="inbox/").name("inbox/day 1/a.csv")
        'day 1/a.csv'
        """
        return path.removeprefix(self.path(""))


def describe_directory(directory: WatchedDirectory) -> str:
    """Return the directory as short text.

    >>> describe_directory(WatchedDirectory(location="./inbox", pattern="**/*.csv"))
    'inbox/**/*.csv every 30 seconds'
    """
    order = ", in order" if directory.in_order else ""
    return f"{directory.path(directory.pattern)} every {duration(directory.poll_interval)}{order}"
