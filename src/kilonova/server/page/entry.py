"""Signing in with a token, and out."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from kilonova.server.access import Access, Denied, refuse_other_pages
from kilonova.server.page.rendering import Pages

_DAYS = 30
"""For how long a browser keeps a token."""

_LONGEST = 4096
"""Bytes that a form may have."""


def entry(pages: Pages, access: Access) -> APIRouter:
    """The routes of signing in and out."""
    router = APIRouter()

    @router.get("/sign-in")
    def ask(request: Request, then: str = "/") -> Response:
        return pages.show(request, "sign_in.html", then=_local(then), problem=None)

    @router.post("/sign-in")
    async def take(request: Request) -> Response:
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _LONGEST:
            return pages.show(request, "sign_in.html", code=413, then="/", problem="that is no token")
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode("utf-8", "replace")).items()}
        then, secret = _local(form.get("then", "/")), form.get("token", "").strip()
        try:
            await run_in_threadpool(access.admit, request, secret)
        except Denied as error:
            problem = f"{error.problem}." + (f" {error.hint}." if error.status == 429 else "")
            return pages.show(request, "sign_in.html", code=error.status, then=then, problem=problem)
        response = RedirectResponse(then, 303)
        response.set_cookie(
            access.cookie,
            secret,
            max_age=_DAYS * 24 * 3600,
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return response

    @router.post("/sign-out")
    def leave(request: Request) -> Response:
        refuse_other_pages(request)
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(access.cookie)
        return response

    return router


def _local(path: str) -> str:
    """Where to go after signing in: a page of this server, and no other's.

    >>> _local("/runs?state=failed"), _local("//elsewhere"), _local("https://elsewhere")
    ('/runs?state=failed', '/', '/')
    """
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"
