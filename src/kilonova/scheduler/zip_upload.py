"""Safe unpacking of an uploaded zip: nothing is written outside of the target directory."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from kilonova.errors import InputError, PayloadTooLarge

_ENTRIES = 10_000
"""Maximum number of files and folders in a zip."""


def unpack_zip(file: Path, place: Path, most: int) -> None:
    """Unpack a zip into a directory.

    The zip's declared contents are validated before anything is written, and no file gets larger than declared.

    Args:
        file: the zip.
        place: an empty directory.
        most: maximum total size of its files, in bytes.

    Raises:
        InputError: it is not a zip, is damaged, or has an entry that lies outside of it or occurs twice.
        PayloadTooLarge: it holds too many entries or bytes.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            _refuse(entries, most)
            for entry in entries:
                target = place.joinpath(*PurePosixPath(entry.filename).parts)
                if entry.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(entry) as source, target.open("xb") as sink:
                        shutil.copyfileobj(source, sink)
    except zipfile.BadZipFile as error:
        raise InputError(
            f"the zip is damaged, or not a zip: {error}", hint="Send a zip of the workflow's files"
        ) from None
    except (OSError, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        raise InputError(f"the zip cannot be unpacked: {error}", hint="Make it anew, without a password") from None


def _refuse(entries: list[zipfile.ZipInfo], most: int) -> None:
    if len(entries) > _ENTRIES:
        raise PayloadTooLarge(f"the zip contains {len(entries)} files and folders", hint=f"Send at most {_ENTRIES}")
    if sum(entry.file_size for entry in entries) > most:
        raise PayloadTooLarge(
            f"the contents of the zip are larger than {most >> 20} MB", hint="Send only the files of the workflow"
        )
    for entry in entries:
        path = PurePosixPath(entry.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or not path.parts:
            raise InputError(
                f"the zip contains the path {entry.filename!r}, which leads out of it",
                hint="Make it with relative paths below one folder",
            )
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise InputError(f"{entry.filename!r} in the zip is a link", hint="Put the file itself there")
        if entry.flag_bits & 1:
            raise InputError(f"{entry.filename!r} in the zip is encrypted", hint="Send it without a password")
