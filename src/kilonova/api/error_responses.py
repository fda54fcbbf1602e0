"""Error responses of the API: one shape for every error, and an HTTP status per error code."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kilonova.api.auth import AccessDenied
from kilonova.errors import KilonovaError, describe_defect, is_transient
from kilonova.service.spark_operations import OperationFailed

_STATUSES = {
    "unknown": 404,
    "busy": 409,
    "lease": 409,
    "cancelled": 409,
    "large": 413,
    "media-type": 415,
    "damaged": 500,
    "storage": 503,
    "spark": 503,
    "catalog": 503,
    "invariant": 500,
    "defect": 500,
}
"""The HTTP status of each error code; others are 422: the request cannot be fulfilled."""

_WAIT = 2
"""Seconds after which to retry, as sent in `Retry-After`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse:
    """Description of an error.

    Attributes:
        error: its code, which is stable.
        problem: the problem, one sentence.
        hint: what to do about it.
        path: the file or parameter concerned; other fields name the binding, channel, … concerned.
    """

    error: str
    problem: str
    hint: str | None = None
    binding: str | None = None
    channel: str | None = None
    task: str | None = None
    column: str | None = None
    check: str | None = None
    point: int | None = None
    run: int | None = None
    path: str | None = None


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": what}
    for status, what in (
        (401, "A valid token is needed."),
        (403, "The role of the token is insufficient, or the request comes from a page of another origin."),
        (404, "Not found."),
        (409, "Conflict: another run holds the resource, or the run was cancelled."),
        (413, "The upload is too large."),
        (415, "The format of the upload is not known."),
        (422, "The request is invalid."),
        (429, "Too many requests or invalid tokens: retry after `Retry-After` seconds."),
        (500, "Internal error: a defect of Kilonova."),
        (503, "Spark, the warehouse or the catalog is unavailable; `Retry-After` is given if a retry may succeed."),
    )
}
"""Error responses that any route may return, for the API documentation."""


def install_error_handlers(app: FastAPI) -> None:
    """Install handlers that convert every error of an application to an `ErrorResponse`."""

    @app.exception_handler(KilonovaError)
    def kilonova_error(_request: Request, error: KilonovaError) -> JSONResponse:
        return _failure_response(error.to_dict(), passing=is_transient(error))

    @app.exception_handler(OperationFailed)
    def refused(_request: Request, error: OperationFailed) -> JSONResponse:
        return _failure_response(error.content, passing=error.passing)

    @app.exception_handler(AccessDenied)
    def denied(_request: Request, error: AccessDenied) -> JSONResponse:
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
        if error.wait is not None:
            headers["Retry-After"] = str(error.wait)
        content = {"error": "denied", "problem": error.problem, "hint": error.hint}
        return _Escaped(content, error.status, headers)

    @app.exception_handler(RequestValidationError)
    def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        content = {"error": "request", "problem": f"{name}: {first['msg']}", "hint": "See /api/docs", "path": name}
        return _Escaped(content, 422)

    @app.exception_handler(HTTPException)
    def http_error(_request: Request, error: HTTPException) -> JSONResponse:
        content = {
            "error": HTTPStatus(error.status_code).phrase.lower(),
            "problem": error.detail,
            "hint": "See /api/docs",
        }
        return _Escaped(content, error.status_code, error.headers)

    @app.exception_handler(Exception)
    def defect(request: Request, error: Exception) -> JSONResponse:
        logging.getLogger(__name__).error("%s %s failed", request.method, request.url.path, exc_info=error)
        return _failure_response(describe_defect(error), passing=False)


class _Escaped(JSONResponse):
    """JSON response that escapes lone surrogates, which an error may quote: they cannot be encoded as UTF-8."""

    def render(self, content: Any) -> bytes:
        """Encode the content of a response."""
        return json.dumps(content, ensure_ascii=False, allow_nan=False).encode(errors="backslashreplace")


def _failure_response(content: Mapping[str, Any], *, passing: bool) -> JSONResponse:
    headers = {"Retry-After": str(_WAIT)} if passing else None
    return _Escaped(dict(content), _STATUSES.get(str(content["error"]), 422), headers)
