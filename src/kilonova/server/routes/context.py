"""What all routes are given, and what they have in common."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query, Request, Response, Security
from fastapi.params import Depends

from kilonova.model.role import Role
from kilonova.server.access import Access
from kilonova.server.answers import Error
from kilonova.server.errands import Asked, Errands
from kilonova.server.loop import Refused, Server
from kilonova.service.project import Project

Item = TypeVar("Item")

Limit = Annotated[int, Query(ge=1, le=10_000, description="How many there are on a page, at most.")]
Number = Annotated[int, Query(ge=0, le=2**31)]
Before = Annotated[int | None, Query(ge=0, le=2**53, description="Those before this number.")]
After = Annotated[str, Query(description="Those after this name.")]
Wait = Annotated[bool, Query(description="Answer when it is done; false answers 202 at once, with an errand.")]


async def _holder(request: Request) -> str | None:
    holder: str | None = request.state.holder
    return holder


Who = Annotated[str | None, Depends(_holder)]
"""The name of the token that a request comes with; None if it comes without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What routes are over.

    Attributes:
        project: the project.
        server: does what needs Spark.
        access: lets requests in.
        errands: what the server was asked to do.
        over: set once nobody is answered any more, so that what would go on for ever ends.
    """

    project: Project
    server: Server
    access: Access
    errands: Errands
    over: Event

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

    @property
    def trusted(self) -> list[Depends]:
        """Those of a route for those who hold a token of the role admin, even as long as there are none."""
        return self._needs(Role.ADMIN, token=True)

    def _needs(self, role: Role, *, token: bool = False) -> list[Depends]:
        return [Security(self.access.needs(role, token=token), scopes=[role.value])]

    async def begun(
        self, request: Request, response: Response, wait: bool, what: str, **arguments: Any
    ) -> Begun | ErrandShown:
        """Let a worker carry out a run, and wait for its end or not.

        Args:
            request: whose it is: nothing is begun for a client that has gone.
            response: the answer, whose status says whether the run has ended.
            wait: whether to wait.
            what: see `kilonova.server.loop.Server.errand`.
            arguments: its arguments.

        Raises:
            Refused: it could not be done.
            Busy: too many errands wait already.
            Cancelled: the client has gone.
        """
        if wait:
            return Begun(await self.errands.done(what, client=request, **arguments))
        return accepted(response, self.errands.ask(what, **arguments))


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that was carried out: its number, or None if there was nothing to do."""

    run: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrandShown:
    """Something that a worker does for somebody who does not wait for it.

    Attributes:
        errand: the name by which to ask for it.
        what: what is done.
        state: whether a worker has begun, and how it has ended.
        result: what it gave: a run's number, for an ingest with whether it is repeated, or plans.
        error: why it has failed.
    """

    errand: str
    what: str
    state: Literal["waiting", "running", "done", "failed"]
    result: Any = None
    error: Error | None = None


ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": ErrandShown, "description": "It will be done; `Location` says where to ask what became of it."}
}
"""What a route may answer that need not wait."""


def accepted(response: Response, asked: Asked) -> ErrandShown:
    """The answer to somebody who does not wait."""
    response.status_code = 202
    response.headers["Location"] = f"/api/v1/errands/{asked.name}"
    return shown(asked)


def shown(asked: Asked) -> ErrandShown:
    """How an errand stands."""
    outcome = asked.outcome
    if not outcome.done():
        return ErrandShown(errand=asked.name, what=asked.what, state="running" if outcome.running() else "waiting")
    match outcome.exception():
        case None:
            return ErrandShown(errand=asked.name, what=asked.what, state="done", result=outcome.result())
        case Refused(told=told):
            return ErrandShown(errand=asked.name, what=asked.what, state="failed", error=Error(**told))
        case error:
            raise error


def page(request: Request, response: Response, found: list[Item], limit: int, name: str, place: Any) -> list[Item]:
    """A page of what was found, of which one more than fits was asked for.

    Args:
        request: whose it is.
        response: the answer; if there is more, its header `Link` says where.
        found: what was found.
        limit: how many there are on a page.
        name: the parameter that says where a page begins.
        place: gives its value for the last item of the page before.
    """
    if len(found) > limit:
        following = request.url.include_query_params(**{name: place(found[limit - 1])})
        response.headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
    return found[:limit]
