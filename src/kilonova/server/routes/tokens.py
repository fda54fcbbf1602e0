"""Tokens, for those who may do everything. The first one is made on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Response

from kilonova.catalog.tokens import NAME, Token
from kilonova.model.role import Role
from kilonova.server.routes.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMade:
    """A new token.

    Attributes:
        name: whose it is.
        role: what it is good for.
        token: the secret, which is not shown again.
    """

    name: str
    role: Role
    token: str


def token_routes(context: Context) -> APIRouter:
    """The routes of tokens."""
    router = APIRouter(tags=["tokens"])
    project = context.project

    @router.get("/tokens", dependencies=context.trusted)
    def tokens() -> list[Token]:
        """Whose tokens there are."""
        return project.tokens()

    @router.post("/tokens", dependencies=context.trusted, status_code=201)
    def create(response: Response, name: Annotated[str, Query(pattern=NAME)], role: Role = Role.READ) -> TokenMade:
        """Make a token. It is shown once, here."""
        response.headers["Cache-Control"] = "no-store"
        return TokenMade(name=name, role=role, token=project.create_token(name, role.value))

    @router.delete("/tokens/{name}", dependencies=context.trusted)
    def revoke(name: str) -> list[Token]:
        """Make a token good for nothing; those that are left."""
        project.revoke_token(name)
        return project.tokens()

    return router
