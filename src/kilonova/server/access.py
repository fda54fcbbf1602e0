"""Who may do what by HTTP: tokens with roles, and how many requests somebody may make.

Where there are no tokens, whoever reaches the server may do everything; it listens to this machine alone then.
"""

from __future__ import annotations

import ipaddress
import socket

from fastapi import Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from kilonova.catalog import tokens
from kilonova.catalog.database import Catalog
from kilonova.errors import SettingsError
from kilonova.model.role import Role


class Denied(Exception):
    """Somebody may not do something.

    Attributes:
        status: the HTTP status: 401, 403 or 429.
        problem: why, one sentence.
    """

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem


class Access:
    """Lets requests in, or not.

    Args:
        catalog: where the tokens are.
        rate: how many requests that change something somebody may make, such as `"60 per minute"`.
    """

    def __init__(self, catalog: Catalog, rate: str) -> None:
        self._catalog = catalog
        self._rate: RateLimitItem = parse(rate)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    def needs(self, role: Role) -> Needs:
        """A check that a request comes from somebody with a role; a dependency of a route."""
        return Needs(self, role)

    def check(self, request: Request, needed: Role) -> None:
        """Refuse a request that somebody may not make.

        Raises:
            Denied: there is no token, a wrong one, one of too low a role, or there were too many requests.
        """
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        with self._catalog.reading() as tx:
            token = tokens.holder(tx, secret) if secret and scheme.lower() == "bearer" else None
            guarded = bool(tokens.tokens(tx))
        if guarded and token is None:
            raise Denied(401, "a valid token is needed: send Authorization: Bearer TOKEN")
        if token is not None and not token.role.may(needed):
            raise Denied(403, f"the token {token.name} may {token.role.value}, and this needs {needed.value}")
        who = token.name if token is not None else (request.client.host if request.client else "")
        if needed is not Role.READ and not self._limiter.hit(self._rate, who):
            raise Denied(429, f"too many requests: {self._rate} are let in")


class Needs(SecurityBase):
    """Refuses requests without a role; the description of the API says which token a route needs."""

    def __init__(self, access: Access, role: Role) -> None:
        self.model = HTTPBearer(description="A token of kilonova token create; none is needed while there are none.")
        self.scheme_name = "token"
        self._access = access
        self._role = role

    def __call__(self, request: Request) -> None:
        """Check a request.

        Raises:
            Denied: somebody may not make it.
        """
        self._access.check(request, self._role)


def refuse_open(catalog: Catalog, host: str) -> None:
    """Refuse to listen to other machines without tokens.

    Raises:
        SettingsError: there are none, and the host is not this machine's own.
    """
    if all(ipaddress.ip_address(str(address[4][0])).is_loopback for address in _addresses(host)):
        return
    with catalog.reading() as tx:
        guarded = bool(tokens.tokens(tx))
    if not guarded:
        raise SettingsError(
            f"the server would listen on {host} to everybody, because there are no tokens",
            hint="Make one with: kilonova token create NAME --role admin",
        )


def _addresses(host: str) -> list[tuple[object, object, object, object, tuple[object, ...]]]:
    try:
        return list(socket.getaddrinfo(host or "0.0.0.0", None))
    except OSError as error:
        raise SettingsError(f"the server cannot listen on {host}: {error}", hint="Set serve.host") from None
