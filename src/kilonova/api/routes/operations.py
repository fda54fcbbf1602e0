"""Routes of long-running operations."""

from __future__ import annotations

from fastapi import APIRouter

from kilonova.api.routes.context import READ, Context, OperationResponse, operation_response

router = APIRouter(tags=["operations"])


@router.get("/operations/{name}", dependencies=READ)
def operation(context: Context, name: str) -> OperationResponse:
    """Return the state of an operation that this server accepted with `wait=false`."""
    return operation_response(context.operations, context.operations.asked(name))
