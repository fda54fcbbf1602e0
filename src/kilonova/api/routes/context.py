"""Shared context, parameters and response models of the routes."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query, Request, Response, Security
from fastapi.params import Depends

from kilonova.api.auth import Authenticator
from kilonova.api.error_responses import ErrorResponse
from kilonova.api.operations import Operation, Operations
from kilonova.model.role import Role
from kilonova.service.project import Project
from kilonova.service.spark_operations import OperationFailed, SparkOperations

Item = TypeVar("Item")

Limit = Annotated[int, Query(ge=1, le=10_000, description="Maximum number of items on a page.")]
Number = Annotated[int, Query(ge=0, le=2**31)]
Before = Annotated[int | None, Query(ge=0, le=2**53, description="Only items before this number.")]
After = Annotated[str, Query(description="Only items after this name.")]
Wait = Annotated[bool, Query(description="Wait for the result; if false, answer 202 at once with an operation.")]


async def _holder(request: Request) -> str | None:
    holder: str | None = request.state.holder
    return holder


Who = Annotated[str | None, Depends(_holder)]
"""The name of a request's token; None if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteContext:
    """Objects that routes work on.

    Attributes:
        project: the project.
        server: the server, which does what needs Spark.
        access: the authenticator of requests.
        operations: the operations of the server.
        over: set when the HTTP server stops, so that endless streams end.
    """

    project: Project
    server: SparkOperations
    access: Authenticator
    operations: Operations
    over: Event = field(default_factory=Event)

    @property
    def read(self) -> list[Depends]:
        """Dependencies of a route that needs the role read."""
        return self._needs(Role.READ)

    @property
    def operate(self) -> list[Depends]:
        """Dependencies of a route that needs the role operate."""
        return self._needs(Role.OPERATE)

    @property
    def admin(self) -> list[Depends]:
        """Dependencies of a route that needs the role admin."""
        return self._needs(Role.ADMIN)

    @property
    def trusted(self) -> list[Depends]:
        """Dependencies of a route that needs a token of the role admin even while there are no tokens."""
        return self._needs(Role.ADMIN, token=True)

    def _needs(self, role: Role, *, token: bool = False) -> list[Depends]:
        return [Security(self.access.needs(role, token=token), scopes=[role.value])]

    async def begun(
        self, request: Request, response: Response, wait: bool, what: str, **arguments: Any
    ) -> RunStartedResponse | OperationResponse:
        """Start an operation that is a run, and wait for its end or not.

        Args:
            request: the request: nothing is begun for a client that has disconnected.
            response: the response, whose status says whether the run has ended.
            wait: whether to wait.
            what: see `kilonova.service.spark_operations.SparkOperations.operation`.
            arguments: its arguments.

        Raises:
            OperationFailed: the operation failed.
            Conflict: too many operations are waiting already.
            Cancelled: the client has disconnected.
        """
        if wait:
            return RunStartedResponse(await self.operations.done(what, client=request, **arguments))
        return accepted_response(response, self.operations.ask(what, **arguments))


def route_context(server: SparkOperations, project: Project) -> RouteContext:
    """Return the context of the routes over a project.

    Args:
        server: the server, which does what needs Spark.
        project: the project.
    """
    access = Authenticator(project.catalog, project.settings.serve)
    return RouteContext(project=project, server=server, access=access, operations=Operations(server))


@dataclass(frozen=True, slots=True)
class RunStartedResponse:
    """A completed run: its number, or None if there was nothing to do."""

    run: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationResponse:
    """A long-running operation, done by a worker.

    Attributes:
        operation: the name by which to poll for it.
        what: the kind of operation.
        state: its state.
        result: its result: a run's number, for an ingest with whether it is repeated, or plans.
        error: the error if it has failed.
    """

    operation: str
    what: str
    state: Literal["waiting", "running", "done", "failed"]
    result: Any = None
    error: ErrorResponse | None = None


ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": OperationResponse, "description": "Accepted; `Location` is the URL of the operation."}
}
"""Additional response of a route that need not wait."""


def accepted_response(response: Response, asked: Operation) -> OperationResponse:
    """Prepare the response to a client that does not wait."""
    response.status_code = 202
    response.headers["Location"] = f"/api/v1/operations/{asked.name}"
    return operation_response(asked)


def operation_response(asked: Operation) -> OperationResponse:
    """Convert an operation to its response."""
    outcome = asked.outcome
    if not outcome.done():
        return OperationResponse(
            operation=asked.name, what=asked.what, state="running" if outcome.running() else "waiting"
        )
    match outcome.exception():
        case None:
            return OperationResponse(operation=asked.name, what=asked.what, state="done", result=outcome.result())
        case OperationFailed(told=told):
            return OperationResponse(operation=asked.name, what=asked.what, state="failed", error=ErrorResponse(**told))
        case error:
            raise error


def paginate(request: Request, response: Response, found: list[Item], limit: int, name: str, place: Any) -> list[Item]:
    """Return a page of the items found, of which one more than fits was queried.

    Args:
        request: the request.
        response: the response; if there are more items, its header `Link` refers to the next page.
        found: the items found.
        limit: number of items on a page.
        name: the parameter that says where a page begins.
        place: returns its value for the last item of the previous page.
    """
    if len(found) > limit:
        following = request.url.include_query_params(**{name: place(found[limit - 1])})
        response.headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
    return found[:limit]
