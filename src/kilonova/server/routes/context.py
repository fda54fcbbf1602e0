"""What all routes are given, and what they have in common."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query, Security
from fastapi.params import Depends

from kilonova.model.role import Role
from kilonova.server.access import Access
from kilonova.server.loop import Server
from kilonova.service.project import Project

Limit = Annotated[int, Query(ge=1, le=10_000)]
Number = Annotated[int, Query(ge=0, le=2**31)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What routes are over.

    Attributes:
        project: the project.
        server: does what needs Spark.
        access: lets requests in.
    """

    project: Project
    server: Server
    access: Access

    @property
    def read(self) -> list[Depends]:
        """The dependencies of a route for those who may look."""
        return self._needs(Role.READ)

    @property
    def operate(self) -> list[Depends]:
        """The dependencies of a route for those who may start and steer things."""
        return self._needs(Role.OPERATE)

    @property
    def admin(self) -> list[Depends]:
        """The dependencies of a route for those who may do everything."""
        return self._needs(Role.ADMIN)

    def _needs(self, role: Role) -> list[Depends]:
        return [Security(self.access.needs(role), scopes=[role.value])]

    async def done(self, what: str, **arguments: Any) -> Any:
        """What a worker gives back for an errand.

        Raises:
            Refused: it could not be done.
        """
        return await asyncio.wrap_future(self.server.errand(what, **arguments))


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that was carried out: its number, or None if there was nothing to do."""

    run: int | None
