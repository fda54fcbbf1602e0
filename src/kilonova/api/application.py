"""The HTTP API: the command line's functions for other programs; see `kilonova.service`.

Each route declares the role that it needs: see `kilonova.api.auth`. Errors: see `kilonova.api.error_responses`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI

from kilonova.api.api_docs import api_description
from kilonova.api.error_responses import ERRORS, install_error_handlers
from kilonova.api.routes.bindings import binding_routes
from kilonova.api.routes.channel_history import channel_history_routes
from kilonova.api.routes.channels import channel_routes
from kilonova.api.routes.context import RouteContext
from kilonova.api.routes.events import event_routes
from kilonova.api.routes.garbage import garbage_routes
from kilonova.api.routes.health import health_routes
from kilonova.api.routes.operations import operation_routes
from kilonova.api.routes.runs import run_routes
from kilonova.api.routes.tasks import task_routes
from kilonova.api.routes.tokens import token_routes
from kilonova.api.routes.verification import verification_routes
from kilonova.api.routes.webhooks import webhook_routes
from kilonova.api.routes.workflows import workflow_routes
from kilonova.api.temporary_files import remove_abandoned
from kilonova.api.url_validation import check_url

_ROUTES = (
    channel_routes,
    channel_history_routes,
    garbage_routes,
    verification_routes,
    task_routes,
    workflow_routes,
    binding_routes,
    run_routes,
    operation_routes,
    event_routes,
    token_routes,
    webhook_routes,
)


def create_api(context: RouteContext) -> FastAPI:
    """Return the application with the routes of the HTTP API.

    Args:
        context: the context of the routes.
    """

    @asynccontextmanager
    async def ready(app: FastAPI) -> AsyncIterator[None]:
        remove_abandoned()
        compile_routes(app)
        yield

    app = FastAPI(
        title="Kilonova",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=ready,
        dependencies=[Depends(check_url)],
    )
    app.include_router(health_routes(context), responses=ERRORS)
    for routes in _ROUTES:
        app.include_router(routes(context), prefix="/api/v1", responses=ERRORS)

    install_error_handlers(app)
    api_description(app)
    return app


def compile_routes(app: FastAPI) -> None:
    """Compile an application's routes, which it does at the first request otherwise."""
    for route in app.routes:
        route.matches({"type": "http", "method": "GET", "path": "/nowhere", "root_path": "", "headers": []})
