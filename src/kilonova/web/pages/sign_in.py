"""Sign-in with a token, and sign-out."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from kilonova.api.auth import AccessDenied, check_same_origin
from kilonova.web.page import CurrentPage

_DAYS = 30
"""Number of days for which a browser keeps a token."""

_LONGEST = 4096
"""Maximum size of a form in bytes."""


router = APIRouter()


@router.get("/sign-in")
def ask(page: CurrentPage, then: str = "/") -> Response:
    """Show the form of the sign-in."""
    return page.show("sign_in.html", then=_local(then), problem=None)


@router.post("/sign-in")
async def take(page: CurrentPage) -> Response:
    """Sign a user in, by a token."""
    length = page.request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > _LONGEST:
        return page.show("sign_in.html", code=413, then="/", problem="this is not a valid token")
    form = {
        name: values[0] for name, values in parse_qs((await page.request.body()).decode("utf-8", "replace")).items()
    }
    then, secret = _local(form.get("then", "/")), form.get("token", "").strip()
    try:
        await run_in_threadpool(page.context.access.admit, page.request, secret)
    except AccessDenied as error:
        problem = f"{error.problem}." + (f" {error.hint}." if error.status == 429 else "")
        return page.show("sign_in.html", code=error.status, then=then, problem=problem)
    response = RedirectResponse(then, 303)
    response.set_cookie(
        page.context.access.cookie,
        secret,
        max_age=_DAYS * 24 * 3600,
        httponly=True,
        samesite="lax",
        secure=page.request.url.scheme == "https",
    )
    return response


@router.post("/sign-out")
def leave(page: CurrentPage) -> Response:
    """Sign the user out."""
    check_same_origin(page.request)
    response = RedirectResponse("/sign-in", 303)
    response.delete_cookie(page.context.access.cookie)
    return response


def _local(path: str) -> str:
    """Return the page to go to after sign-in: a page of this server only.

    >>> _local("/runs?state=failed"), _local("//elsewhere"), _local("https://elsewhere")
    ('/runs?state=failed', '/', '/')
    """
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"
