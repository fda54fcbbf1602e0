"""The HTTP API: the command line's functions for other programs; see `kilonova.service`.

Each route declares the role that it needs: see `kilonova.server.auth`. Errors: see `kilonova.server.error_responses`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event, Thread

from fastapi import Depends, FastAPI
from starlette.types import Receive, Scope, Send

from kilonova.server.api_docs import api_description
from kilonova.server.auth import Authenticator
from kilonova.server.error_responses import ERRORS, install_error_handlers
from kilonova.server.loop import Server
from kilonova.server.operations import Operations
from kilonova.server.page.overview_cache import OverviewCache
from kilonova.server.page.site import site
from kilonova.server.page.workflow import draw_ahead
from kilonova.server.routes.bindings import binding_routes
from kilonova.server.routes.channel_history import channel_history_routes
from kilonova.server.routes.channels import channel_routes
from kilonova.server.routes.context import RouteContext
from kilonova.server.routes.events import event_routes
from kilonova.server.routes.garbage import garbage_routes
from kilonova.server.routes.health import health_routes
from kilonova.server.routes.operations import operation_routes
from kilonova.server.routes.runs import run_routes
from kilonova.server.routes.tasks import task_routes
from kilonova.server.routes.tokens import token_routes
from kilonova.server.routes.verification import verification_routes
from kilonova.server.routes.webhooks import webhook_routes
from kilonova.server.routes.workflows import workflow_routes
from kilonova.server.temporary_files import remove_abandoned
from kilonova.server.url_validation import check_url
from kilonova.service.project import Project

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


_LAST = 2.0
"""Maximum seconds to wait at shutdown for a drawing in progress."""


def api(server: Server, project: Project, over: Event | None = None) -> FastAPI:
    """Return the application of a project.

    Args:
        server: the server, which does what needs Spark.
        project: the project.
        over: set when the HTTP server stops; optional.
    """
    access = Authenticator(project.catalog, project.settings.serve)
    context = RouteContext(
        project=project, server=server, access=access, operations=Operations(server), over=over or Event()
    )
    glances = OverviewCache(project)
    pages = site(context, glances)

    @asynccontextmanager
    async def ready(app: FastAPI) -> AsyncIterator[None]:
        remove_abandoned()
        for route in (*app.routes, *pages.routes):  # routes are compiled when first matched
            route.matches({"type": "http", "method": "GET", "path": "/nowhere", "root_path": "", "headers": []})
        drawing = Thread(target=draw_ahead, args=(glances,), name="drawing", daemon=True)
        drawing.start()
        yield
        drawing.join(_LAST)

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
    _beside(app, pages)
    return app


def _beside(app: FastAPI, pages: FastAPI) -> None:
    """Let the web page's application handle the requests that the API does not."""
    unknown = app.router.default

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        asked = pages if scope["type"] == "http" and not scope["path"].startswith("/api/") else unknown
        await asked(scope, receive, send)

    app.router.default = answer
