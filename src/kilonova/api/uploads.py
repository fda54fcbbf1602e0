"""Uploads: request bodies written to a file for a worker to read."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from kilonova.api.operations import client_gone
from kilonova.errors import PayloadTooLarge
from kilonova.service.temporary_files import temporary_directory


@dataclass(frozen=True, slots=True)
class Upload:
    """An uploaded file.

    Attributes:
        digest: the SHA-256 digest of its bytes, in hexadecimal.
        place: the directory that holds only this file.
    """

    file: Path
    digest: str
    place: tempfile.TemporaryDirectory[str]

    def discard(self) -> None:
        """Delete the file."""
        self.place.cleanup()


async def receive_upload(request: Request, name: str, most: int) -> Upload:
    """Write a request's body to a file of the given name, if it has at most so many megabytes.

    Raises:
        PayloadTooLarge: the body is larger; with a `Content-Length` this is raised before reading.
        Cancelled: the client has disconnected.
    """
    if int(request.headers.get("content-length", 0)) > most << 20:
        raise _too_large(most)
    with ExitStack() as stack:
        place = temporary_directory()
        stack.enter_context(place)
        file = Path(place.name) / name
        size, digest = 0, hashlib.sha256()
        try:
            with file.open("wb") as sink:
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > most << 20:
                        raise _too_large(most)
                    digest.update(chunk)
                    await run_in_threadpool(sink.write, chunk)
        except ClientDisconnect:
            raise client_gone() from None
        if await request.is_disconnected():
            raise client_gone()
        stack.pop_all()
        return Upload(file, digest.hexdigest(), place)


def sent_as(*types: str) -> dict[str, Any]:
    """Return the OpenAPI description of a request body that `receive_upload` accepts."""
    file = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": dict.fromkeys(types, file)}}


def _too_large(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the upload is larger than {most} MB",
        hint="Put the file where the server can read it, and ingest it by its path",
    )
