"""Idempotency key of an ingest: a repeated request with the same key is not executed again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kilonova.errors import SettingsError

LONGEST = 255
"""Maximum number of characters of a key."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Key chosen by the client of an ingest, with a digest of the request.

    Attributes:
        text: the key.
        digest: digest of the request; the same key with another digest is an error.

    Raises:
        SettingsError: the key is empty, too long, or has control characters.
    """

    text: str
    digest: str

    def __post_init__(self) -> None:
        check_key(self.text)


def check_key(text: str) -> None:
    """Check that a text is a valid idempotency key.

    Raises:
        SettingsError: it is empty, too long, or has control characters.
    """
    if not 0 < len(text) <= LONGEST or not text.isprintable():
        raise SettingsError(
            f"the idempotency key {text[:20]!r} must have 1 to {LONGEST} printable characters",
            hint="Choose a UUID, or a name of the batch such as orders-2024-01-31",
        )


def digest_of(asked: Mapping[str, Any]) -> str:
    """Return a digest of a request, which does not depend on the order of names.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
