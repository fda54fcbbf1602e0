"""Web page next to the API, in the same process, based on the same functions of `kilonova.service`."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from kilonova.api.auth import AccessDenied, Authenticator
from kilonova.api.routes.context import RouteContext
from kilonova.api.url_validation import check_url
from kilonova.errors import KilonovaError, NotFound
from kilonova.model.role import Role
from kilonova.web.overview_cache import OverviewCache
from kilonova.web.pages import changes, channels, events, retraction, runs, servers, sign_in, tasks, triggers, workflow
from kilonova.web.rendering import PageRenderer, Viewer


def site(context: RouteContext, overviews: OverviewCache) -> FastAPI:
    """Return the application with the pages of a context's project, whose overview is cached."""
    project = context.project
    app = FastAPI(openapi_url=None)
    app.state.context = context
    app.state.renderer = PageRenderer(project.directory.resolve().name, project.catalog.clock)
    app.state.overviews = overviews
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=3)
    app.mount("/static", _Files(packages=[("kilonova.web", "static")]))
    app.routes.extend(_ROUTER.routes)
    _tell_errors(app, app.state.renderer, context.access)
    return app


def _record_viewer(request: Request) -> None:
    """Record the viewer, who must be permitted to view pages, in the request's state."""
    context: RouteContext = request.app.state.context
    holder = context.access.check(request, Role.READ)
    request.state.event = context.project.reader.newest_event()
    request.state.viewer = Viewer(name=holder.name if holder else None, role=holder.role if holder else Role.ADMIN)


_ROUTER = APIRouter(dependencies=[Depends(check_url)])
"""The pages, which all applications of a process share: compiling their routes takes long."""

_ROUTER.include_router(sign_in.router)
for _pages in (workflow, channels, tasks, runs, triggers, changes, retraction, servers, events):
    _ROUTER.include_router(_pages.router, dependencies=[Depends(_record_viewer)])


class _Files(StaticFiles):
    """Static files that browsers revalidate on each use: pages and scripts must match."""

    def file_response(self, *given: Any, **named: Any) -> Response:
        """Return the file, or that it has not changed."""
        answer = super().file_response(*given, **named)
        answer.headers["Cache-Control"] = "no-cache"
        return answer


def _tell_errors(app: FastAPI, pages: PageRenderer, access: Authenticator) -> None:
    """Install error handlers that render errors as pages."""

    def error_page(request: Request, status: int, title: str, problem: str, hint: str | None) -> Response:
        return pages.show(request, "error.html", code=status, title=title, problem=problem, hint=hint)

    @app.exception_handler(AccessDenied)
    def denied(request: Request, error: AccessDenied) -> Response:
        if error.status == 401:
            then = quote(f"{request.url.path}?{request.url.query}".rstrip("?"), safe="")
            response: Response = RedirectResponse(f"/sign-in?then={then}", 303)
            if access.cookie in request.cookies:
                response.delete_cookie(access.cookie)
            return response
        title = "Too many requests" if error.status == 429 else "Access denied"
        answer = error_page(request, error.status, title, error.problem, error.hint)
        if error.wait is not None:
            answer.headers["Retry-After"] = str(error.wait)
        return answer

    @app.exception_handler(KilonovaError)
    def kilonova_error(request: Request, error: KilonovaError) -> Response:
        if isinstance(error, NotFound):
            return error_page(request, 404, "Not found", error.problem, error.hint)
        return error_page(request, 503, "Temporarily unavailable", error.problem, error.hint)

    @app.exception_handler(HTTPException)
    def http_error(request: Request, error: HTTPException) -> Response:
        return error_page(request, error.status_code, "Not found", request.url.path, "Go to the workflow")

    @app.exception_handler(RequestValidationError)
    def nonsense(request: Request, error: RequestValidationError) -> Response:
        problem = "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
        return error_page(request, 422, "Invalid address", problem, "Go to the workflow")

    @app.exception_handler(Exception)
    def defect(request: Request, error: Exception) -> Response:
        logging.getLogger(__name__).error("%s %s failed", request.method, request.url.path, exc_info=error)
        problem = f"{type(error).__name__}: {error}"
        return error_page(request, 500, "Internal error", problem, "See the server's log")
