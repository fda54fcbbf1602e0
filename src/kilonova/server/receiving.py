"""What is sent to the server, in a file for a worker to read."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from kilonova.errors import TooLarge
from kilonova.server.errands import client_gone
from kilonova.server.temporary import temporary_directory


@dataclass(frozen=True, slots=True)
class Received:
    """A file that was sent.

    Attributes:
        file: where it is.
        digest: the digest of its bytes.
        place: the directory that it is alone in.
    """

    file: Path
    digest: str
    place: tempfile.TemporaryDirectory[str]

    def discard(self) -> None:
        """Delete it."""
        self.place.cleanup()


async def received(request: Request, name: str, most: int) -> Received:
    """Write a request's body to a file.

    Args:
        request: the request.
        name: what to call the file.
        most: how many megabytes there are at most.

    Raises:
        TooLarge: there are more; those who say so beforehand are not let send them.
        Cancelled: the client has gone.
    """
    if int(request.headers.get("content-length", 0)) > most << 20:
        raise _too_large(most)
    with ExitStack() as stack:
        place = temporary_directory()
        stack.enter_context(place)
        stack.enter_context(_refusing_gone())
        file = Path(place.name) / name
        size, digest = 0, hashlib.sha256()
        with file.open("wb") as sink:
            async for chunk in request.stream():
                size += len(chunk)
                if size > most << 20:
                    raise _too_large(most)
                digest.update(chunk)
                await run_in_threadpool(sink.write, chunk)
        if await request.is_disconnected():
            raise ClientDisconnect
        stack.pop_all()
        return Received(file, digest.hexdigest(), place)


@contextmanager
def _refusing_gone() -> Iterator[None]:
    try:
        yield
    except ClientDisconnect:
        raise client_gone() from None


def sent_as(*types: str) -> dict[str, Any]:
    """What the description of the API says of a body that `received` takes."""
    file = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": dict.fromkeys(types, file)}}


def _too_large(most: int) -> TooLarge:
    return TooLarge(
        f"the upload is larger than {most} MB", hint="Put the file where the server can read it, and refer to it"
    )
