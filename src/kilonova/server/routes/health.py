"""Whether the server lives and can do something, for balancers; metrics for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from kilonova.errors import SparkUnavailable
from kilonova.server.metrics import exposition
from kilonova.server.routes.context import Context


def health_routes(context: Context) -> APIRouter:
    """The routes of health."""
    router = APIRouter(tags=["health"])

    @router.get("/health")
    def health() -> dict[str, str]:
        """Whether the process lives."""
        return {"status": "alive"}

    @router.get("/ready")
    def ready() -> dict[str, str]:
        """Whether the server can do something: the catalog answers, and a worker has started."""
        context.project.catalog.check()
        if not context.server.ready:
            raise SparkUnavailable("no worker is ready", hint="Wait until Spark has started")
        return {"status": "ready"}

    @router.get("/metrics", dependencies=context.read, response_class=PlainTextResponse)
    def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(exposition(context.project), media_type=CONTENT_TYPE_LATEST)

    return router
