"""Idempotency key of an ingest: asked for again under the same key, it is not carried out again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kilonova.errors import SettingsError

LONGEST = 255
"""How many characters a key has at most."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Key that the client of an ingest has chosen, and what it asked for under it.

    Attributes:
        text: the key.
        digest: digest of what was asked: a key that comes again with another one was not meant for that.

    Raises:
        SettingsError: the key is empty, too long, or has control characters.
    """

    text: str
    digest: str

    def __post_init__(self) -> None:
        refuse_unfit(self.text)


def refuse_unfit(text: str) -> None:
    """Refuse what cannot be an idempotency key.

    Raises:
        SettingsError: it is empty, too long, or has control characters.
    """
    if not 0 < len(text) <= LONGEST or not text.isprintable():
        raise SettingsError(
            f"the idempotency key {text[:20]!r} must have 1 to {LONGEST} printable characters",
            hint="Choose a UUID, or a name of the batch such as orders-2024-01-31",
        )


def digest_of(asked: Mapping[str, Any]) -> str:
    """Digest of what was asked, which does not depend on the order of names.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
