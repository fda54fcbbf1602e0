"""Routes of tokens, for the role admin. The first token is created on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Response

from kilonova.api.routes.context import TRUSTED, CurrentProject
from kilonova.catalog.tokens import NAME, Token
from kilonova.model.role import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenResponse:
    """A new token: its holder's name, its role, and the secret as `token`, which is not shown again."""

    name: str
    role: Role
    token: str


router = APIRouter(tags=["tokens"])


@router.get("/tokens", dependencies=TRUSTED)
def tokens(project: CurrentProject) -> list[Token]:
    """List the tokens, without their secrets."""
    return project.reader.tokens()


@router.post("/tokens", dependencies=TRUSTED, status_code=201)
def create(
    project: CurrentProject, response: Response, name: Annotated[str, Query(pattern=NAME)], role: Role = Role.READ
) -> TokenResponse:
    """Create a token. Its secret is shown once, here."""
    response.headers["Cache-Control"] = "no-store"
    return TokenResponse(name=name, role=role, token=project.operator.create_token(name, role.value))


@router.delete("/tokens/{name}", dependencies=TRUSTED)
def revoke(project: CurrentProject, name: str) -> list[Token]:
    """Revoke a token; return the remaining ones."""
    project.operator.revoke_token(name)
    return project.reader.tokens()
