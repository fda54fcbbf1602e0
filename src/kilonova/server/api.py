"""The HTTP API: what the command line does, for other programs; see `kilonova.service`.

Each route says which role it needs: see `kilonova.server.access`; what fails: see `kilonova.server.answers`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event, Thread

from fastapi import Depends, FastAPI
from starlette.types import Receive, Scope, Send

from kilonova.server.access import Access
from kilonova.server.addresses import text_address
from kilonova.server.answers import ERRORS, tell_errors
from kilonova.server.description import describe
from kilonova.server.errands import Errands
from kilonova.server.loop import Server
from kilonova.server.page.glances import Glances
from kilonova.server.page.site import site
from kilonova.server.page.workflow import draw_ahead
from kilonova.server.routes.bindings import binding_routes
from kilonova.server.routes.chains import chain_routes
from kilonova.server.routes.channels import channel_routes
from kilonova.server.routes.context import Context
from kilonova.server.routes.errands import errand_routes
from kilonova.server.routes.events import event_routes
from kilonova.server.routes.garbage import garbage_routes
from kilonova.server.routes.health import health_routes
from kilonova.server.routes.runs import run_routes
from kilonova.server.routes.tasks import task_routes
from kilonova.server.routes.tokens import token_routes
from kilonova.server.routes.verification import verification_routes
from kilonova.server.routes.webhooks import webhook_routes
from kilonova.server.routes.workflows import workflow_routes
from kilonova.server.temporary import remove_abandoned
from kilonova.service.project import Project

_ROUTES = (
    channel_routes,
    chain_routes,
    garbage_routes,
    verification_routes,
    task_routes,
    workflow_routes,
    binding_routes,
    run_routes,
    errand_routes,
    event_routes,
    token_routes,
    webhook_routes,
)


_LAST = 2.0
"""Seconds that a drawing which goes on has at the end."""


def api(server: Server, project: Project, over: Event | None = None) -> FastAPI:
    """The application over a project.

    Args:
        server: does what needs Spark.
        project: the project.
        over: is set once nobody is answered any more; None if that is of no importance.
    """
    access = Access(project.catalog, project.settings.serve)
    context = Context(project=project, server=server, access=access, errands=Errands(server), over=over or Event())
    glances = Glances(project)
    pages = site(context, glances)

    @asynccontextmanager
    async def ready(app: FastAPI) -> AsyncIterator[None]:
        remove_abandoned()
        for route in (*app.routes, *pages.routes):  # they are made when a request is compared with them
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
        dependencies=[Depends(text_address)],
    )
    app.include_router(health_routes(context), responses=ERRORS)
    for routes in _ROUTES:
        app.include_router(routes(context), prefix="/api/v1", responses=ERRORS)

    tell_errors(app)
    describe(app)
    _beside(app, pages)
    return app


def _beside(app: FastAPI, pages: FastAPI) -> None:
    """Let the web page answer what the API does not."""
    unknown = app.router.default

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        asked = pages if scope["type"] == "http" and not scope["path"].startswith("/api/") else unknown
        await asked(scope, receive, send)

    app.router.default = answer
