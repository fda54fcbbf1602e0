"""Bindings: what runs by itself, what has fired, and who serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from kilonova.catalog.bindings import Bound
from kilonova.catalog.servers import Server
from kilonova.model.firing import Firing
from kilonova.model.trigger import described
from kilonova.server.routes.context import After, Before, Context, Limit, Who, page


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingShown:
    """A binding.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        workflowette: the workflowette that is bound; empty if none is.
        tasks: its tasks.
        triggers: what starts it, in words.
        priority: what is higher goes first.
        paused: whether its triggers are held back.
    """

    name: str
    workflow: str
    workflowette: str
    tasks: list[str]
    triggers: list[str]
    priority: int
    paused: bool


def binding_routes(context: Context) -> APIRouter:
    """The routes of bindings."""
    router = APIRouter(tags=["bindings"])
    project = context.project

    @router.get("/bindings", dependencies=context.read)
    def bindings(request: Request, response: Response, after: After = "", limit: Limit = 100) -> list[BindingShown]:
        """The bindings by name, and what starts them."""
        found = [_shown(bound) for bound in project.bindings(after, limit + 1)]
        return page(request, response, found, limit, "after", lambda last: last.name)

    @router.get("/bindings/{name}", dependencies=context.read)
    def binding(name: str) -> BindingShown:
        """A binding."""
        return _shown(project.binding(name))

    def acting(action: Callable[[str, str | None], None], verb: str, what: str) -> None:
        def act(name: str, who: Who) -> dict[str, str]:
            action(name, who)
            return {"binding": name, "done": verb}

        act.__doc__ = what
        act.__name__ = verb
        router.post(f"/bindings/{{name}}/{verb}", dependencies=context.operate)(act)

    acting(project.fire, "fire", "Start a binding now, as if one of its triggers had fired.")
    acting(project.pause, "pause", "Hold the triggers of a binding back.")
    acting(project.resume, "resume", "Let the triggers of a binding go again.")

    @router.get("/firings", dependencies=context.read)
    def firings(
        request: Request,
        response: Response,
        binding: str | None = None,
        before: Before = None,
        limit: Limit = 100,
    ) -> list[Firing]:
        """The firings, of all bindings or one, newest first."""
        found = project.firings(limit + 1, binding, before)
        return page(request, response, found, limit, "before", lambda last: last.number)

    @router.get("/servers", dependencies=context.read)
    def servers(limit: Limit = 100) -> list[Server]:
        """The servers, those that started last first."""
        return project.servers(limit)

    return router


def _shown(bound: Bound) -> BindingShown:
    return BindingShown(
        name=bound.binding.name,
        workflow=bound.workflow,
        workflowette=bound.binding.workflowette,
        tasks=list(bound.binding.tasks),
        triggers=[described(trigger) for trigger in bound.binding.triggers],
        priority=bound.binding.priority,
        paused=bound.paused,
    )
