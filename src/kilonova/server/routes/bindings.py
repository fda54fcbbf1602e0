"""Bindings: what runs by itself, what has fired, and who serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter

from kilonova.catalog.bindings import Bound
from kilonova.model.firing import Firing
from kilonova.model.trigger import described
from kilonova.server.routes.context import Context, Limit


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerShown:
    """A server."""

    name: str
    release: str
    state: str
    started: str
    lease_until: str


def binding_routes(context: Context) -> APIRouter:
    """The routes of bindings."""
    router = APIRouter(tags=["bindings"])
    project = context.project

    @router.get("/bindings", dependencies=context.read)
    def bindings() -> list[BindingShown]:
        """The bindings, and what starts them."""
        return [_shown(bound) for _, bound in sorted(project.operation(1).bindings.items())]

    @router.get("/bindings/{name}", dependencies=context.read)
    def binding(name: str) -> BindingShown:
        """A binding."""
        return _shown(project.operation(1, name).bindings[name])

    def acting(action: Callable[[str], None], verb: str, what: str) -> None:
        def act(name: str) -> dict[str, str]:
            action(name)
            return {"binding": name, "done": verb}

        act.__doc__ = what
        act.__name__ = verb
        router.post(f"/bindings/{{name}}/{verb}", dependencies=context.operate)(act)

    acting(project.fire, "fire", "Start a binding now, as if one of its triggers had fired.")
    acting(project.pause, "pause", "Hold the triggers of a binding back.")
    acting(project.resume, "resume", "Let the triggers of a binding go again.")

    @router.get("/firings", dependencies=context.read)
    def firings(binding: str | None = None, limit: Limit = 100) -> list[Firing]:
        """The last firings, newest first."""
        return list(project.operation(limit, binding).firings)

    @router.get("/servers", dependencies=context.read)
    def servers(limit: Limit = 100) -> list[ServerShown]:
        """The servers, those that started last first."""
        found: list[ServerShown] = [
            ServerShown(
                name=item.name,
                release=item.release,
                state=item.state,
                started=item.started.isoformat(),
                lease_until=item.lease_until.isoformat(),
            )
            for item in project.operation(limit).servers
        ]
        return found

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
