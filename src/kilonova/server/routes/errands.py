"""What became of what somebody did not wait for."""

from __future__ import annotations

from fastapi import APIRouter

from kilonova.server.routes.context import Context, ErrandShown, shown


def errand_routes(context: Context) -> APIRouter:
    """The routes of errands."""
    router = APIRouter(tags=["errands"])

    @router.get("/errands/{name}", dependencies=context.read)
    def errand(name: str) -> ErrandShown:
        """How something stands that was asked of this server with `wait=false`."""
        return shown(context.errands.asked(name))

    return router
