"""The HTTP API: what the command line does, for other programs; see `kilonova.service`.

Each route says which role it needs. What fails is told as `{"error": code, "problem": …, "hint": …, fields…}`.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from kilonova.errors import KilonovaError
from kilonova.server.access import Access, Denied
from kilonova.server.loop import Refused, Server
from kilonova.server.routes.bindings import binding_routes
from kilonova.server.routes.channels import channel_routes
from kilonova.server.routes.context import Context
from kilonova.server.routes.events import event_routes
from kilonova.server.routes.health import health_routes
from kilonova.server.routes.runs import run_routes
from kilonova.server.routes.tasks import task_routes
from kilonova.service.project import Project

_ROUTES = (channel_routes, task_routes, binding_routes, run_routes, event_routes)

_STATUSES = {"unknown": 404, "busy": 409, "lease": 409, "storage": 503, "spark": 503, "catalog": 503, "invariant": 500}
"""The HTTP status of each error's code; others are 422: what was asked cannot be."""


def api(server: Server, project: Project) -> FastAPI:
    """The application over a project.

    Args:
        server: does what needs Spark.
        project: the project.
    """
    context = Context(project=project, server=server, access=Access(project.catalog, project.settings.serve.rate))
    app = FastAPI(title="Kilonova", version="1", docs_url="/api/docs", redoc_url=None, openapi_url="/api/openapi.json")
    app.include_router(health_routes(context))
    for routes in _ROUTES:
        app.include_router(routes(context), prefix="/api/v1")

    @app.exception_handler(KilonovaError)
    def kilonova_error(_request: Request, error: KilonovaError) -> JSONResponse:
        return _told(error.told)

    @app.exception_handler(Refused)
    def refused(_request: Request, error: Refused) -> JSONResponse:
        return _told(error.told)

    @app.exception_handler(Denied)
    def denied(_request: Request, error: Denied) -> JSONResponse:
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
        told = {"error": "denied", "problem": error.problem, "hint": None}
        return JSONResponse(told, error.status, headers)

    return app


def _told(told: Any) -> JSONResponse:
    return JSONResponse(dict(told), _STATUSES.get(str(told["error"]), 422 if told["error"] != "defect" else 500))
