"""HTTP authentication, role checks and rate limits.

While there are no tokens, every client may do everything but send code and create tokens; the server then listens on
this machine only, and rejects requests that a browser makes for a page of another origin.
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

MAKE_TOKEN = "Create one with: kilonova token create NAME --role admin"


class AccessDenied(Exception):
    """A request that is not permitted.

    Attributes:
        status: the HTTP status: 401, 403 or 429.
        wait: seconds after which a retry may succeed; None if a retry does not help.
    """

    def __init__(self, status: int, problem: str, *, hint: str | None = None, wait: int | None = None) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem
        self.hint = hint
        self.wait = wait


class Authenticator:
    """Authenticator of requests: checks the tokens of a catalog, their roles, and the rate limits of the settings."""

    def __init__(self, catalog: Catalog, settings: ServeSection) -> None:
        self._catalog = catalog
        self._rate = parse(settings.rate_limit)
        self._reads = parse(settings.read_rate_limit)
        self._guesses = parse(settings.failed_auth_limit)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._alone = only_this_machine(settings.host)

    def check(self, request: Request, needed: Role, *, token: bool = False) -> Token | None:
        """Require that a request is permitted.

        Returns:
            The token of the request; None while there are none.

        Raises:
            AccessDenied: the token is missing, invalid or its role is too low, or there were too many requests.
            CatalogError: the catalog cannot be used, so the token cannot be checked.
        """
        address = _address(request)
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        cookie = request.cookies.get(self.cookie, "")
        given = secret if scheme.lower() == "bearer" else cookie
        with self._catalog.reading() as tx:
            holder = tokens.holder(tx, given) if given else None
            guarded = not self._alone or tokens.any_token(tx)
        if holder is not None:
            if not holder.role.may(needed):
                raise AccessDenied(
                    403, f"the token {holder.name} may {holder.role.value}, and this needs {needed.value}"
                )
            if given == cookie:
                check_same_origin(request)
        elif guarded:
            if given:
                self._limited(self._guesses, "wrong tokens", address)
            raise AccessDenied(401, "a valid token is needed", hint="Send Authorization: Bearer TOKEN")
        elif token:
            raise AccessDenied(401, "this needs a token, and no tokens exist yet", hint=MAKE_TOKEN)
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
        """The name of the cookie with the token of a signed-in user; names the catalog, as cookies ignore ports.

        Raises:
            CatalogError: the catalog cannot be used.
        """
        return f"kilonova-{self._catalog.identity()}"

    def admit(self, request: Request, secret: str) -> Token:
        """Return the token of a user who signs in with its secret.

        Raises:
            AccessDenied: the secret is invalid, there were too many, or the request is from another origin.
            CatalogError: the catalog cannot be used, so the token cannot be checked.
        """
        check_same_origin(request)
        with self._catalog.reading() as tx:
            holder = tokens.holder(tx, secret) if secret else None
        if holder is None:
            self._limited(self._guesses, "wrong tokens", _address(request))
            raise AccessDenied(401, "this is not a valid token", hint=MAKE_TOKEN)
        return holder

    def _limited(self, rate: RateLimitItem, what: str, who: str) -> None:
        if not self._limiter.hit(rate, what, who):
            wait = self._limiter.get_window_stats(rate, what, who).reset_time - time.time()
            problem = f"too many {what}: the limit is {rate}"
            raise AccessDenied(429, problem, hint="Try again later", wait=max(1, math.ceil(wait)))


class RequireRole(SecurityBase):
    """Route dependency that requires a role and records the token's name; a security scheme in the API docs.

    Args:
        role: the role.
        token: whether a token is required even while there are none.
    """

    def __init__(self, role: Role, *, token: bool = False) -> None:
        self.model = HTTPBearer(description="A token of kilonova token create, with the role that the route names.")
        self.scheme_name = "token"
        self._role = role
        self._token = token

    def __call__(self, request: Request) -> None:
        """Check a request, and set `request.state.holder` to the name of its token, or None.

        Raises:
            AccessDenied: the request is not permitted.
            CatalogError: the catalog cannot be used, so the token cannot be checked.
        """
        access: Authenticator = request.app.state.context.access
        holder = access.check(request, self._role, token=self._token)
        request.state.holder = holder.name if holder else None


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _refuse_foreign(request: Request) -> None:
    """Reject what a browser on this machine sends for a page of another origin.

    Such a page can address this machine (then `Origin` differs), or have its own name resolve to it (then `Host` does).
    """
    host = request.headers.get("host", "")
    if not _is_this_machine(re.sub(r":\d*$", "", host).strip("[]")):
        raise AccessDenied(403, "without tokens the server accepts requests to localhost only", hint=MAKE_TOKEN)
    check_same_origin(request)


def check_same_origin(request: Request) -> None:
    """Reject what a browser sends for a page of another origin, with the credentials it keeps for this one.

    Raises:
        AccessDenied: the request is from another origin.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise AccessDenied(
            403, "requests from pages of other origins are refused", hint="Send Authorization: Bearer TOKEN"
        )


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_tokens_exist(catalog: Catalog, host: str) -> None:
    """Require tokens where the server listens to other machines.

    Raises:
        SettingsError: there are no tokens, and the host is reachable from other machines.
    """
    if only_this_machine(host):
        return
    with catalog.reading() as tx:
        guarded = tokens.any_token(tx)
    if not guarded:
        raise SettingsError(
            f"the server cannot listen on {host} without tokens, because everybody could use it", hint=MAKE_TOKEN
        )


def only_this_machine(host: str) -> bool:
    """Return whether a host is reachable from this machine only.

    Raises:
        SettingsError: there is no such host.
    """
    try:
        addresses = socket.getaddrinfo(host or "0.0.0.0", None)
    except OSError as error:
        raise SettingsError(f"the server cannot listen on {host}: {error}", hint="Set serve.host") from None
    return all(ipaddress.ip_address(str(address[4][0])).is_loopback for address in addresses)
