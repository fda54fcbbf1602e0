"""Addresses of requests are text: percent-encoded UTF-8 without NUL, which no name can hold."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class TextAddresses:
    """Answers 422 to requests whose address is no text, instead of letting unreadable characters stand for it.

    Args:
        app: answers the others.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or (is_text(scope["raw_path"]) and is_text(scope["query_string"])):
            await self._app(scope, receive, send)
            return
        told = {
            "error": "request",
            "problem": "the address is not UTF-8 without NUL",
            "hint": "Percent-encode names and values as UTF-8",
        }
        await JSONResponse(told, 422)(scope, receive, send)


def is_text(encoded: bytes) -> bool:
    """Whether something that is percent-encoded is text.

    >>> is_text(b"caf%C3%A9"), is_text(b"caf%E9"), is_text(b"%ED%A0%80"), is_text(b"a%00b")
    (True, False, False, False)
    """
    decoded = unquote_to_bytes(encoded)
    try:
        decoded.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in decoded
