"""Which files those who ask by HTTP may have read: those that `serve.sources` lists, in formats of files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote

from kilonova.errors import SettingsError
from kilonova.server.access import Denied
from kilonova.service.settings import ServeSection

_FILES = ("parquet", "orc", "csv", "json")
"""The formats that may always be read: they are of files alone."""


def refuse_unlisted(settings: ServeSection, source: str, format: str | None) -> None:
    """Refuse to read what the operator has not listed.

    Args:
        settings: the lists.
        source: a file, a directory or a URL.
        format: its format; None for one of those that are told from names.

    Raises:
        Denied: the place or the format is not listed.
    """
    if not any(lies_in(source, place) for place in settings.sources):
        raise Denied(403, "the server may not read files there", hint="List the place in the server's serve.sources")
    if format is not None and format not in (*_FILES, *settings.formats):
        raise Denied(
            403, f"the server may not read the format {format!a}", hint="List it in the server's serve.formats"
        )


def refuse_outside_reading(options: Mapping[str, str]) -> None:
    """Refuse options that say not how files are read but which, or by which means.

    Raises:
        SettingsError: there is one.
    """
    for name in options:
        if not re.fullmatch("[A-Za-z]+", name) or name.lower() in ("path", "paths"):
            raise SettingsError(
                f"the option {name!a} is none of how a file is read", hint="Use such as header, sep or encoding"
            )


def lies_in(source: str, place: str) -> bool:
    """Whether a file or directory is another, or lies in it; on this machine links are followed.

    >>> lies_in("s3://data/in/a.csv", "s3://data/in"), lies_in("s3://data/inside", "s3://data/in")
    (True, False)
    >>> lies_in("s3://data/in/../out", "s3://data/in"), lies_in("/data/../etc/passwd", "/data")
    (False, False)
    """
    source, place = (each.removeprefix("file://") for each in (source, place))
    if "://" not in place:
        if ":" in source.partition("/")[0] or "://" in source or "\0" in source:
            return False
        return os.path.commonpath((os.path.realpath(place), os.path.realpath(source))) == os.path.realpath(place)
    place = place.rstrip("/")
    parts = unquote(source).replace("\\", "/").split("/")
    return ".." not in parts and "::" not in source and (source == place or source.startswith(f"{place}/"))
