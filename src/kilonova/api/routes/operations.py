"""Routes of long-running operations."""

from __future__ import annotations

from fastapi import APIRouter

from kilonova.api.routes.context import OperationResponse, RouteContext, operation_response


def operation_routes(context: RouteContext) -> APIRouter:
    """Return the routes of operations."""
    router = APIRouter(tags=["operations"])

    @router.get("/operations/{name}", dependencies=context.read)
    def operation(name: str) -> OperationResponse:
        """Return the state of an operation that this server accepted with `wait=false`."""
        return operation_response(context.operations.asked(name))

    return router
