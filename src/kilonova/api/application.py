"""The HTTP API: the command line's functions for other programs; see `kilonova.service`.

Each route declares the role that it needs: see `kilonova.api.auth`. Errors: see `kilonova.api.error_responses`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI

from kilonova.api.api_docs import api_description
from kilonova.api.error_responses import ERRORS, install_error_handlers
from kilonova.api.routes import (
    bindings,
    bounds,
    channel_history,
    channels,
    events,
    garbage,
    health,
    operations,
    runs,
    tasks,
    tokens,
    verification,
    webhooks,
    workflows,
)
from kilonova.api.routes.context import RouteContext
from kilonova.api.url_validation import check_url
from kilonova.service.temporary_files import remove_abandoned

_ROUTER = APIRouter(dependencies=[Depends(check_url)])
"""The routes, which all applications of a process share: compiling them takes half a second."""

_ROUTER.include_router(health.router, responses=ERRORS)
for _routes in (
    channels,
    channel_history,
    garbage,
    verification,
    tasks,
    workflows,
    bindings,
    bounds,
    runs,
    operations,
    events,
    tokens,
    webhooks,
):
    _ROUTER.include_router(_routes.router, prefix="/api/v1", responses=ERRORS)


def create_api(context: RouteContext) -> FastAPI:
    """Return the application with the routes of the HTTP API, which work on a context."""

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
    )
    app.state.context = context
    app.routes.extend(_ROUTER.routes)
    install_error_handlers(app)
    api_description(app)
    return app


def compile_routes(app: FastAPI) -> None:
    """Compile an application's routes, which it does at the first request otherwise."""
    for route in app.routes:
        route.matches({"type": "http", "method": "GET", "path": "/nowhere", "root_path": "", "headers": []})
