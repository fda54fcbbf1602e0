"""Formats of uploads: from the request's parameter, its `Content-Type` or the file's name; and arrays of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from kilonova.errors import InputError, UnsupportedMediaType

UploadFormat = Literal["parquet", "csv", "json"]
"""Format of an upload."""

TYPES: dict[str, UploadFormat] = {
    "application/json": "json",
    "application/jsonl": "json",
    "application/x-ndjson": "json",
    "text/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
}
"""The format of each media type."""

_UNSPECIFIC = ("", "application/octet-stream")
_SUFFIXES: dict[str, UploadFormat] = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
_LONGEST = 200
"""Maximum length of a file's name."""


def upload_name(given: str | None, disposition: str | None) -> str | None:
    r"""Return the name of an uploaded file, without directories; None if it has none.

    Args:
        given: the name as a parameter.
        disposition: the header `Content-Disposition`.

    >>> upload_name(None, 'attachment; filename="orders.csv"')
    'orders.csv'
    >>> upload_name(None, "attachment; filename*=UTF-8''caf%C3%A9.csv")
    'café.csv'
    >>> upload_name("C:\\in\\orders.csv", None), upload_name(None, None)
    ('orders.csv', None)
    """
    if given is None and disposition is not None:
        header = Message()
        header["Content-Disposition"] = disposition
        given = header.get_filename()
    name = PurePosixPath((given or "").replace("\\", "/")).name
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:_LONGEST] or None


def upload_format(given: UploadFormat | None, content_type: str | None, name: str | None) -> UploadFormat:
    """Return the format of an upload: the given one, or that of its media type, or of its name, or JSON.

    Args:
        given: the format as a parameter.
        content_type: the header `Content-Type`.
        name: the name of the file.

    Raises:
        UnsupportedMediaType: the media type is none of an upload, or the name's ending is not known.

    >>> upload_format(None, "text/csv; charset=utf-8", None), upload_format(None, None, "day.parquet")
    ('csv', 'parquet')
    """
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        raise UnsupportedMediaType(
            f"the body is {kind}", hint="Send the file itself as the body, as with curl --data-binary @FILE"
        )
    if given is not None:
        return given
    suffix = PurePosixPath(name or "").suffix.lower()
    if kind in TYPES:
        return TYPES[kind]
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if kind in _UNSPECIFIC and not suffix:
        return "json"
    raise UnsupportedMediaType(
        f"the format of {name or kind} is not known",
        hint=f"Send format={', '.join(get_args(UploadFormat))}, or one of the media types {', '.join(TYPES)}",
    )


def check_not_empty(file: Path) -> None:
    """Check that an uploaded file has more than white space.

    Raises:
        InputError: it has not.
    """
    with file.open("rb") as content:
        while chunk := content.read(1 << 20):
            if chunk.strip():
                return
    raise InputError("the body is empty", hint="Send the rows as the body; [] is a relation without rows, as JSON")


def split_array(file: Path) -> None:
    """Rewrite a file that is one JSON array as JSON lines, of which Spark reads each with the digits that it has.

    Raises:
        InputError: the array is not JSON, or has elements that are not objects.
    """
    with file.open("rb") as content:
        if not content.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
            return
    try:
        text = file.read_text("utf-8-sig")
        with file.open("w", encoding="utf-8") as lines:
            lines.writelines(f"{line}\n" for line in _elements(text))
    except ValueError as error:
        raise InputError(f"the array is not JSON: {error}", hint="Nothing was changed") from None


def _elements(text: str) -> Iterator[str]:
    r"""Return the elements of a JSON array as text, each on one line.

    >>> list(_elements('[{"n": 1.10},\n {"n":\n 2}]'))
    ['{"n": 1.10}', '{"n":  2}']
    """
    decoder, place = json.JSONDecoder(), _next(text, _next(text, 0) + 1)
    if text[place : place + 1] == "]":
        _check_ended(text, place + 1)
        return
    while True:
        value, end = decoder.raw_decode(text, place)
        if not isinstance(value, dict):
            raise json.JSONDecodeError("Expecting an object", text, place)
        yield text[place:end].replace("\n", " ").replace("\r", " ")  # within strings they would be escaped
        place = _next(text, end)
        if text[place : place + 1] == "]":
            _check_ended(text, place + 1)
            return
        if text[place : place + 1] != ",":
            raise json.JSONDecodeError("Expecting ',' or ']'", text, place)
        place = _next(text, place + 1)


def _next(text: str, place: int) -> int:
    """Return the place of the next character that is not white space."""
    while text[place : place + 1] in _SPACE:
        place += 1
    return place


_SPACE = (" ", "\t", "\n", "\r")


def _check_ended(text: str, place: int) -> None:
    if _next(text, place) < len(text):
        raise json.JSONDecodeError("Extra data", text, place)
