"""Shared context, parameters and response models of the routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Path, Query, Request, Response, Security

from kilonova.api.auth import Authenticator, RequireRole
from kilonova.api.error_responses import ErrorResponse
from kilonova.api.newest_event import NewestEvent
from kilonova.api.operations import Operation, Operations
from kilonova.errors import Cancelled
from kilonova.model.role import Role
from kilonova.service.project import Project
from kilonova.service.spark_operations import OperationFailed, SparkOperations

Item = TypeVar("Item")
Result = TypeVar("Result")

Limit = Annotated[int, Query(ge=1, le=10_000, description="Maximum number of items on a page.")]
Number = Annotated[int, Query(ge=0, le=2**31)]
PathNumber = Annotated[int, Path(ge=0, le=2**53)]
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
    """Objects that routes work on; an application has it as `app.state.context`.

    Attributes:
        server: the server, which does what needs Spark.
        over: set when the HTTP server stops, so that endless streams end.
    """

    project: Project
    server: SparkOperations
    access: Authenticator
    operations: Operations
    newest_event: NewestEvent
    over: Event = field(default_factory=Event)


def route_context(server: SparkOperations, project: Project) -> RouteContext:
    """Return the context of the routes over a project, and over the server, which does what needs Spark."""
    return RouteContext(
        project=project,
        server=server,
        access=Authenticator(project.catalog, project.settings.serve),
        operations=Operations(server),
        newest_event=NewestEvent(project),
    )


async def _context(request: Request) -> RouteContext:
    context: RouteContext = request.app.state.context
    return context


Context = Annotated[RouteContext, Depends(_context)]


async def _project(context: Context) -> Project:
    return context.project


CurrentProject = Annotated[Project, Depends(_project)]

READ, OPERATE, ADMIN = ([Security(RequireRole(role), scopes=[role.value])] for role in Role)
"""Dependencies of routes that need a role."""

TRUSTED = [Security(RequireRole(Role.ADMIN, token=True), scopes=[Role.ADMIN.value])]
"""Dependencies of a route that needs a token of the role admin even while there are no tokens."""


class Paging:
    """Page of a list, as a dependency of its route.

    Attributes:
        limit: number of items on a page.
        more: number of items to query: one more than fits, if there is another page.
    """

    def __init__(self, request: Request, response: Response, limit: Limit = 100) -> None:
        self._request = request
        self._response = response
        self.limit = limit
        self.more = limit + 1

    def page(self, found: Sequence[Item], name: str, place: Callable[[Item], object]) -> list[Item]:
        """Return a page of the items found; if there are more, the header `Link` refers to the next page.

        Args:
            found: the items found.
            name: the parameter that says where a page begins.
            place: returns its value for the last item of the previous page.
        """
        if len(found) > self.limit:
            following = self._request.url.include_query_params(**{name: place(found[self.limit - 1])})
            self._response.headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
        return list(found[: self.limit])


Paged = Annotated[Paging, Depends()]


class OperationStart:
    """Start of an operation, as a dependency of its route: waits for its end, unless the client does not.

    Nothing is begun for a client that has disconnected.
    """

    def __init__(self, request: Request, response: Response, context: Context, wait: Wait = True) -> None:
        self._request = request
        self._response = response
        self._operations = context.operations
        self.wait = wait

    async def __call__(
        self, result: Callable[[Any], Result], what: str, then: Callable[[], None] = lambda: None, **arguments: Any
    ) -> Result | OperationResponse:
        """Start an operation, and convert its result to the response by `result`.

        The other parameters, and the errors, are those of `kilonova.api.operations.Operations.done`.
        """
        if self.wait:
            return result(await self._operations.done(what, then, client=self._request, **arguments))
        asked = self._operations.ask(what, then, **arguments)
        self._response.status_code = 202
        self._response.headers["Location"] = f"/api/v1/operations/{asked.name}"
        return operation_response(self._operations, asked)


Starting = Annotated[OperationStart, Depends()]


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
        before: while it waits for a worker, the number of runs and operations that workers end first; without the runs
            if it does not wait for these.
        progress: what a worker does now, as text, if it says so.
        result: its result: a run's number, for an ingest with whether it is repeated, plans or a preview.
    """

    operation: str
    what: str
    state: Literal["waiting", "running", "done", "failed"]
    before: int | None = None
    progress: str | None = None
    result: Any = None
    error: ErrorResponse | None = None


ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": OperationResponse, "description": "Accepted; `Location` is the URL of the operation."}
}
"""Additional response of a route that need not wait."""


def operation_response(operations: Operations, asked: Operation) -> OperationResponse:
    """Convert one of the operations to its response."""
    outcome = asked.outcome
    response = partial(OperationResponse, operation=asked.name, what=asked.what)
    if not outcome.done():
        before = operations.before(asked)
        progress = operations.progress(asked)
        return response(state="running" if before is None else "waiting", before=before, progress=progress)
    if outcome.cancelled():
        cancelled: Mapping[str, Any] = Cancelled("the operation was cancelled", hint="No worker had begun it").to_dict()
        return response(state="failed", error=ErrorResponse(**cancelled))
    match outcome.exception():
        case None:
            return response(state="done", result=outcome.result())
        case OperationFailed(content=content):
            return response(state="failed", error=ErrorResponse(**content))
        case error:
            raise error
