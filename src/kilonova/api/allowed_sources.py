"""Allow-list of the files that HTTP clients may have read: those under `serve.sources`, in file formats."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote

from kilonova.api.auth import AccessDenied
from kilonova.errors import SettingsError
from kilonova.model.reader_options import check_reader_options
from kilonova.service.settings import ServeSection

_FILES = ("parquet", "orc", "csv", "json")
"""The formats that are always allowed: they read files only."""


def check_source_allowed(settings: ServeSection, source: str, format: str | None) -> None:
    """Require that the operator has listed a source and its format.

    Args:
        settings: the settings with the lists.
        source: a file, a directory or a URL.
        format: its format; None for a format that is inferred from file names.

    Raises:
        AccessDenied: the location or the format is not listed.
    """
    if not any(lies_in(source, place) for place in settings.sources):
        raise AccessDenied(
            403, "the server may not read files there", hint="List the location in the server's serve.sources"
        )
    if format is not None and format not in (*_FILES, *settings.formats):
        raise AccessDenied(
            403, f"the server may not read the format {format!a}", hint="List it in the server's serve.formats"
        )


def check_options(options: Mapping[str, str], format: str | None) -> None:
    """Check options for Spark's reader; none may select which files are read, or by which means.

    Raises:
        SettingsError: there is no such option, or its value is invalid.
    """
    check_reader_options(options, format)
    for name in options:
        if not re.fullmatch("[A-Za-z]+", name) or name.lower() in ("path", "paths"):
            raise SettingsError(
                f"the option {name!a} is not an option of reading files",
                hint="Use options such as header, sep or encoding",
            )


def lies_in(source: str, place: str) -> bool:
    """Return whether a file or directory equals another or lies in it; local links are followed.

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
