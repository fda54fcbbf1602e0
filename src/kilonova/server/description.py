"""The description of the API as a page, of which nothing comes from anywhere else."""

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
"""What the page may load, as browsers are told: what this server has."""


def describe(app: FastAPI) -> None:
    """Put the page at `/api/docs`."""
    app.mount(_FILES, StaticFiles(packages=[("fastapi_offline", "static")]))
    title = app.title  # FastAPI keeps the functions that it has looked at: one that knew the app would keep it too

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
