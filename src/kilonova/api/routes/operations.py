"""Routes of long-running operations."""

from __future__ import annotations

from fastapi import APIRouter

from kilonova.api.routes.context import OPERATE, READ, Context, OperationResponse, operation_response

router = APIRouter(tags=["operations"])


@router.get("/operations/{name}", dependencies=READ)
def operation(context: Context, name: str) -> OperationResponse:
    """Return the state of an operation that this server accepted with `wait=false`."""
    return operation_response(context.operations, context.operations.asked(name))


@router.post("/operations/{name}/cancel", dependencies=OPERATE)
def cancel(context: Context, name: str) -> OperationResponse:
    """Cancel an operation that waits for a worker, or a preview.

    The worker that does a preview is killed, and another one starts.
    """
    asked = context.operations.asked(name)
    context.operations.cancel(asked)
    return operation_response(context.operations, asked)
