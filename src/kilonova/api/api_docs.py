"""API documentation page, self-contained: it loads nothing from other servers."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

_FILES = "/api/docs/files"

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'unsafe-inline'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
    )
)
"""Content security policy of the page: it may load only from this server."""


def api_description(app: FastAPI) -> None:
    """Add the page at `/api/docs`."""
    app.mount(_FILES, StaticFiles(packages=[("fastapi_offline", "static")]))
    title = app.title  # FastAPI caches functions that it inspected: a reference to the app would keep it alive

    @app.get("/api/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        page = get_swagger_ui_html(
            openapi_url="openapi.json",
            title=title,
            swagger_js_url="docs/files/swagger-ui-bundle.js",
            swagger_css_url="docs/files/swagger-ui.css",
            swagger_favicon_url="docs/files/favicon.png",
            swagger_ui_parameters={"validatorUrl": None},
        )
        page.headers["Content-Security-Policy"] = _POLICY
        return page
