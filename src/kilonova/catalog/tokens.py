"""API tokens that identify users and programs. The catalog stores digests only: a token is shown once, when created.

A token has 256 random bits, so that an unsalted digest does not reveal it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, insert, select

from kilonova.catalog import tables
from kilonova.catalog.database import Transaction
from kilonova.errors import DeclarationError, NotFound, closest_name
from kilonova.model.role import Role

NAME = r"^[A-Za-z0-9][A-Za-z0-9 _.@:+-]{0,199}$"
"""Pattern of valid token names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """API token, without its secret.

    Attributes:
        name: the name of its holder.
        role: the role that it grants.
        created: the time of its creation.
    """

    name: str
    role: Role
    created: datetime


def create(tx: Transaction, name: str, role: Role) -> str:
    """Create a token.

    Returns:
        The secret, which is not stored.

    Raises:
        DeclarationError: the name is already in use or invalid.
    """
    if not re.fullmatch(NAME, name):
        raise DeclarationError(
            f"a token cannot be named {name[:40]!a}", hint="Use up to 200 letters, digits, spaces and any of _.@:+-"
        )
    if tx.connection.execute(select(tables.token.c.name).where(tables.token.c.name == name)).first() is not None:
        raise DeclarationError(f"a token {name} already exists", hint="Revoke it first, or choose another name")
    secret = secrets.token_urlsafe(32)
    tx.connection.execute(
        insert(tables.token).values(name=name, role=role.value, digest=_digest(secret), created=tx.now)
    )
    return secret


def revoke(tx: Transaction, name: str) -> None:
    """Revoke a token.

    Raises:
        NotFound: there is no such token.
    """
    result = tx.connection.execute(delete(tables.token).where(tables.token.c.name == name))
    if not result.rowcount:
        names = [token.name for token in tokens(tx)]
        raise NotFound(f"there is no token {name}", hint=closest_name(name, names))


def tokens(tx: Transaction) -> list[Token]:
    """Return all tokens, by name."""
    rows = tx.connection.execute(select(tables.token).order_by(tables.token.c.name))
    return [Token(name=row.name, role=Role(row.role), created=row.created) for row in rows]


def any_token(tx: Transaction) -> bool:
    """Return whether there are tokens."""
    return tx.connection.execute(select(tables.token.c.name).limit(1)).first() is not None


def holder(tx: Transaction, secret: str) -> Token | None:
    """Return the token of a secret; None if there is none. Comparisons are constant-time, against timing attacks."""
    digest, found = _digest(secret), None
    for row in tx.connection.execute(select(tables.token)):
        if hmac.compare_digest(row.digest, digest):
            found = Token(name=row.name, role=Role(row.role), created=row.created)
    return found


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
