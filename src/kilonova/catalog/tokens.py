"""Tokens by which people and programs are told apart. The catalog keeps digests: a token is shown once, when made.

A token has 256 random bits, so that a plain digest of it gives nothing away.
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
from kilonova.errors import DeclarationError, UnknownName, closest
from kilonova.model.role import Role

NAME = r"^[A-Za-z0-9][A-Za-z0-9 _.@:+-]{0,199}$"
"""What the names of tokens are like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token, without its secret.

    Attributes:
        name: whose it is.
        role: what it is good for.
        created: when it was made.
    """

    name: str
    role: Role
    created: datetime


def create(tx: Transaction, name: str, role: Role) -> str:
    """Make a token.

    Returns:
        The secret, which is kept nowhere.

    Raises:
        DeclarationError: there is a token of that name, or none can have it.
    """
    if not re.fullmatch(NAME, name):
        raise DeclarationError(
            f"a token cannot be named {name[:40]!a}", hint="Use up to 200 letters, digits, spaces and any of _.@:+-"
        )
    if tx.connection.execute(select(tables.token.c.name).where(tables.token.c.name == name)).first() is not None:
        raise DeclarationError(f"there is a token {name} already", hint="Revoke it first, or choose another name")
    secret = secrets.token_urlsafe(32)
    tx.connection.execute(
        insert(tables.token).values(name=name, role=role.value, digest=_digest(secret), created=tx.now)
    )
    return secret


def revoke(tx: Transaction, name: str) -> None:
    """Make a token good for nothing.

    Raises:
        UnknownName: there is no such token.
    """
    result = tx.connection.execute(delete(tables.token).where(tables.token.c.name == name))
    if not result.rowcount:
        names = [token.name for token in tokens(tx)]
        raise UnknownName(f"there is no token {name}", hint=closest(name, names))


def tokens(tx: Transaction) -> list[Token]:
    """All tokens, by name."""
    rows = tx.connection.execute(select(tables.token).order_by(tables.token.c.name))
    return [Token(name=row.name, role=Role(row.role), created=row.created) for row in rows]


def any_token(tx: Transaction) -> bool:
    """Whether there are tokens."""
    return tx.connection.execute(select(tables.token.c.name).limit(1)).first() is not None


def holder(tx: Transaction, secret: str) -> Token | None:
    """Whose token a secret is; None if it is nobody's. The time that it takes does not tell how near a guess is."""
    digest, found = _digest(secret), None
    for row in tx.connection.execute(select(tables.token)):
        if hmac.compare_digest(row.digest, digest):
            found = Token(name=row.name, role=Role(row.role), created=row.created)
    return found


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
