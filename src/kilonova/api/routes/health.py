"""Routes of health checks for load balancers, and of metrics for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from kilonova.api.metrics import exposition
from kilonova.api.routes.context import READ, Context, CurrentProject

router = APIRouter(tags=["health"])


@router.get("/health")
def health() -> dict[str, str]:
    """Return whether the process is alive."""
    return {"status": "alive"}


@router.get("/ready")
def ready(context: Context) -> dict[str, str]:
    """Return whether the server is ready: the catalog can be read and written, and a worker has started."""
    context.project.catalog.identity()
    if (impediment := context.server.impediment) is not None:
        raise impediment
    return {"status": "ready"}


@router.get("/metrics", dependencies=READ, response_class=PlainTextResponse)
def metrics(project: CurrentProject) -> Response:
    """Return the metrics in Prometheus's text format."""
    return Response(exposition(project), media_type=CONTENT_TYPE_LATEST)
