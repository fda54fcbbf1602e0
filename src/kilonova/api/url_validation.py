"""Validation of request URLs: percent-encoded UTF-8 without NUL, which no name can contain."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from fastapi import Request
from fastapi.exceptions import RequestValidationError


def check_url(request: Request) -> None:
    """Require that a request's URL is valid text; a dependency of all routes.

    Raises:
        RequestValidationError: it is not; undecodable bytes would otherwise be replaced by other characters.
    """
    if not (is_text(request.scope["raw_path"]) and is_text(request.scope["query_string"])):
        raise RequestValidationError([{"loc": ("address",), "msg": "not percent-encoded UTF-8 without NUL"}])


def is_text(encoded: bytes) -> bool:
    """Return whether percent-encoded bytes are text.

    >>> is_text(b"caf%C3%A9"), is_text(b"caf%E9"), is_text(b"%ED%A0%80"), is_text(b"a%00b")
    (True, False, False, False)
    """
    decoded = unquote_to_bytes(encoded)
    try:
        decoded.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in decoded
