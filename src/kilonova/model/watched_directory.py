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
        place: its location: a path, relative to the project's directory unless it is absolute, or a URL.
        pattern: pattern of the files to ingest; `*` matches any part of a name, `**` any directories.
        format: their format; None to infer it from their names.
        options: options for Spark's reader.
        every: seconds between two scans.
        settle: seconds for which a file must be unchanged to count as complete.

    Raises:
        DeclarationError: there is no location, the pattern leads out of it, or a time is not positive.
    """

    place: str
    pattern: str = "*"
    format: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    every: int = 30
    settle: int = 5

    def __post_init__(self) -> None:
        if not self.place.strip():
            raise DeclarationError("a watched directory has a place", hint="Give its path or URL")
        if not self.pattern or self.pattern.startswith("/") or ".." in self.pattern.split("/"):
            raise DeclarationError(
                f"the pattern {self.pattern!r} is not one of files in the directory", hint="Write it as *.csv"
            )
        if self.every <= 0 or self.settle < 0:
            raise DeclarationError("there must be some time between two looks", hint="Write every='30 seconds'")
        if "://" not in self.place:
            object.__setattr__(self, "place", posixpath.normpath(self.place))
        elif not self.place.endswith("://"):
            object.__setattr__(self, "place", self.place.rstrip("/"))

    def path(self, name: str) -> str:
        """Return the path of a file by its name within the directory.

        >>> WatchedDirectory(place="inbox/").path("day 1/a.csv")
        'inbox/day 1/a.csv'
        """
        return f"{self.place.rstrip('/')}/{name}"


def describe_directory(directory: WatchedDirectory) -> str:
    """Return the directory as short text.

    >>> describe_directory(WatchedDirectory(place="./inbox", pattern="**/*.csv"))
    'inbox/**/*.csv every 30 seconds'
    """
    return f"{directory.path(directory.pattern)} every {duration(directory.every)}"
