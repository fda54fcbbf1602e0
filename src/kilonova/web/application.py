"""The web page and the HTTP API as one application, and the HTTP server of both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Thread

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from kilonova.api.application import compile_routes, create_api
from kilonova.api.http_server import listen
from kilonova.api.routes.context import RouteContext, route_context
from kilonova.service.project import Project
from kilonova.service.spark_operations import SparkOperations
from kilonova.web.overview_cache import OverviewCache
from kilonova.web.pages.workflow import draw_ahead
from kilonova.web.site import site

_LAST = 2.0
"""Maximum seconds to wait at shutdown for a drawing in progress."""


@contextmanager
def serve_http(server: SparkOperations, project: Project) -> Iterator[str]:
    """Serve the API and the page of a project until the end of the block, and yield the URL.

    What needs Spark is done by `server`.

    Raises:
        SettingsError: the address cannot be listened on, or is reachable from other machines while there are no tokens.
    """
    context = route_context(server, project)
    with listen(create_app(context), context) as url:
        yield url


def create_app(context: RouteContext) -> FastAPI:
    """Return the application of a context's project: the API, and the page for all requests that are not the API's."""
    app = create_api(context)
    overviews = OverviewCache(context.project.reader)
    pages = site(context, overviews)
    api_ready = app.router.lifespan_context

    @asynccontextmanager
    async def ready(app: FastAPI) -> AsyncIterator[None]:
        async with api_ready(app):
            compile_routes(pages)
            drawing = Thread(target=draw_ahead, args=(overviews,), name="drawing", daemon=True)
            drawing.start()
            yield
            drawing.join(_LAST)

    app.router.lifespan_context = ready
    unknown = app.router.default

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        asked = pages if scope["type"] == "http" and not scope["path"].startswith("/api/") else unknown
        await asked(scope, receive, send)

    app.router.default = answer
    return app
