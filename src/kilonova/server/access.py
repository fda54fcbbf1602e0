"""Who may do what by HTTP: tokens with roles, and how many requests somebody may make.

Where there are no tokens, whoever reaches the server may do everything but send code and make tokens; it listens to
this machine alone then, and takes no requests that a browser makes for a page of somebody else's.
"""

from __future__ import annotations

import ipaddress
import math
import re
import socket
import time

from fastapi import Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from kilonova.catalog import tokens
from kilonova.catalog.database import Catalog
from kilonova.catalog.tokens import Token
from kilonova.errors import SettingsError
from kilonova.model.role import Role
from kilonova.service.settings import ServeSection

MAKE_TOKEN = "Make one with: kilonova token create NAME --role admin"


class Denied(Exception):
    """Somebody may not do something.

    Attributes:
        status: the HTTP status: 401, 403 or 429.
        problem: why, one sentence.
        hint: what to do about it.
        wait: seconds after which it may be tried again, if that helps.
    """

    def __init__(self, status: int, problem: str, *, hint: str | None = None, wait: int | None = None) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem
        self.hint = hint
        self.wait = wait


class Access:
    """Lets requests in, or not.

    Args:
        catalog: where the tokens are.
        settings: how many requests are let in, and where the server listens.
    """

    def __init__(self, catalog: Catalog, settings: ServeSection) -> None:
        self._catalog = catalog
        self._rate = parse(settings.rate)
        self._reads = parse(settings.reads)
        self._guesses = parse(settings.guesses)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._alone = only_this_machine(settings.host)

    def needs(self, role: Role, *, token: bool = False) -> Needs:
        """A check that a request comes from somebody with a role; a dependency of a route.

        Args:
            role: the role.
            token: whether a token is needed even as long as there are none.
        """
        return Needs(self, role, token)

    def check(self, request: Request, needed: Role, *, token: bool = False) -> Token | None:
        """Refuse a request that somebody may not make.

        Returns:
            The token that it came with; None as long as there are none.

        Raises:
            Denied: there is no token, a wrong one, one of too low a role, or there were too many requests.
            CatalogError: the catalog cannot be used, so that nobody knows.
        """
        address = request.client.host if request.client else ""
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        cookie = request.cookies.get(self.cookie, "")
        given = secret if scheme.lower() == "bearer" else cookie
        with self._catalog.reading() as tx:
            holder = tokens.holder(tx, given) if given else None
            guarded = not self._alone or tokens.any_token(tx)
        if holder is not None:
            if not holder.role.may(needed):
                raise Denied(403, f"the token {holder.name} may {holder.role.value}, and this needs {needed.value}")
            if given == cookie:
                refuse_other_pages(request)
        elif guarded:
            if given:
                self._limited(self._guesses, "wrong tokens", address)
            raise Denied(401, "a valid token is needed", hint="Send Authorization: Bearer TOKEN")
        elif token:
            raise Denied(401, "this needs a token, and there are none yet", hint=MAKE_TOKEN)
        else:
            _refuse_foreign(request)
        who = holder.name if holder else f"at {address}"
        if needed is Role.READ:
            self._limited(self._reads, "requests", who)
        else:
            self._limited(self._rate, "requests that change something", who)
        return holder

    @property
    def cookie(self) -> str:
        """The cookie in which a browser keeps the token of whoever has signed in; cookies know no ports.

        Raises:
            CatalogError: the catalog cannot be used.
        """
        return f"kilonova-{self._catalog.check()}"

    def admit(self, request: Request, secret: str) -> Token:
        """Whose a token is, for somebody who signs in with it.

        Raises:
            Denied: it is a wrong one, there were too many, or another page asks.
            CatalogError: the catalog cannot be used, so that nobody knows.
        """
        refuse_other_pages(request)
        address = request.client.host if request.client else ""
        self._catalog.check()
        with self._catalog.reading() as tx:
            holder = tokens.holder(tx, secret) if secret else None
        if holder is None:
            self._limited(self._guesses, "wrong tokens", address)
            raise Denied(401, "this is not a valid token", hint=MAKE_TOKEN)
        return holder

    def _limited(self, rate: RateLimitItem, what: str, who: str) -> None:
        if not self._limiter.hit(rate, what, who):
            wait = self._limiter.get_window_stats(rate, what, who).reset_time - time.time()
            problem = f"too many {what}: {rate} are let in"
            raise Denied(429, problem, hint="Try again later", wait=max(1, math.ceil(wait)))


class Needs(SecurityBase):
    """Refuses requests without a role, and notes who asks; the API's description says which token a route needs."""

    def __init__(self, access: Access, role: Role, token: bool) -> None:
        self.model = HTTPBearer(description="A token of kilonova token create, with the role that the route names.")
        self.scheme_name = "token"
        self._access = access
        self._role = role
        self._token = token

    def __call__(self, request: Request) -> None:
        """Check a request; the name of its token is `request.state.holder` then, or None.

        Raises:
            Denied: somebody may not make it.
            CatalogError: the catalog cannot be used, so that nobody knows.
        """
        holder = self._access.check(request, self._role, token=self._token)
        request.state.holder = holder.name if holder else None


def _refuse_foreign(request: Request) -> None:
    """Refuse what a browser on this machine sends for a page of somebody else's.

    Such a page can name this machine (`Origin` is another then), or have its own name resolved to it (`Host` is).

    Raises:
        Denied: the request is one of those.
    """
    host = request.headers.get("host", "")
    if not _is_this_machine(re.sub(r":\d*$", "", host).strip("[]")):
        raise Denied(403, "without tokens the server is spoken to as localhost only", hint=MAKE_TOKEN)
    refuse_other_pages(request)


def refuse_other_pages(request: Request) -> None:
    """Refuse what a browser sends for a page of somebody else's, with what it keeps for this one.

    Raises:
        Denied: the request is one of those.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Denied(403, "no requests of other pages are taken", hint="Send Authorization: Bearer TOKEN")


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_open(catalog: Catalog, host: str) -> None:
    """Refuse to listen to other machines without tokens.

    Raises:
        SettingsError: there are none, and the host is not this machine's own.
    """
    if only_this_machine(host):
        return
    with catalog.reading() as tx:
        guarded = tokens.any_token(tx)
    if not guarded:
        raise SettingsError(
            f"the server would listen on {host} to everybody, because there are no tokens", hint=MAKE_TOKEN
        )


def only_this_machine(host: str) -> bool:
    """Whether nobody but this machine reaches what listens on a host.

    Raises:
        SettingsError: there is no such host.
    """
    try:
        addresses = socket.getaddrinfo(host or "0.0.0.0", None)
    except OSError as error:
        raise SettingsError(f"the server cannot listen on {host}: {error}", hint="Set serve.host") from None
    return all(ipaddress.ip_address(str(address[4][0])).is_loopback for address in addresses)
