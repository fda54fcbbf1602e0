"""Routes of bindings, triggers, firings and servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from kilonova.api.routes.context import After, Before, Limit, RouteContext, Who, paginate
from kilonova.catalog.bindings import RegisteredBinding
from kilonova.catalog.read_models.binding_status import BindingStatus
from kilonova.catalog.servers import ServerStatus
from kilonova.model.firing import Firing, FiringState
from kilonova.model.trigger import describe_trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingResponse:
    """A binding.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        workflowette: the workflowette that is bound; empty if none is.
        tasks: its tasks.
        triggers: its triggers, as text.
        priority: its priority; higher ones go first.
        paused: whether its triggers are paused.
    """

    name: str
    workflow: str
    workflowette: str
    tasks: list[str]
    triggers: list[str]
    priority: int
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionResponse:
    """State of a trigger's condition.

    Attributes:
        trigger: the condition, as text.
        ready: whether it is met.
        waits: its progress, as text.
        rows: number of rows that have arrived, where it counts them and there are not enough yet.
        since: arrival time of the oldest new input on its channel, where there is not enough yet.
        next_check: when it is met without further events.
    """

    trigger: str
    ready: bool
    waits: str
    rows: int | None
    since: datetime | None
    next_check: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerResponse:
    """State of a trigger and its conditions.

    Attributes:
        trigger: the trigger, as text.
        ready: whether it fires when a server evaluates it next.
        waits: its progress, as text.
        next_check: when a server evaluates it without further events.
        parts: the states of its conditions.
    """

    trigger: str
    ready: bool
    waits: str
    next_check: datetime | None
    parts: list[ConditionResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingStatusResponse:
    """State of a binding's triggers.

    Attributes:
        binding: its name.
        paused: whether its triggers are paused.
        triggers: the states of its triggers.
        next: when a server evaluates the first of them without further events.
        last: its last firing.
        due: number of its firings that have not ended.
    """

    binding: str
    paused: bool
    triggers: list[TriggerResponse]
    next: datetime | None
    last: Firing | None
    due: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResponse:
    """A server and its current work.

    Attributes:
        name: unique among all that ever ran.
        release: the release that it runs.
        state: `alive`, `stopped` or `silent`.
        started: when it started.
        lease_until: when its lease expires without another heartbeat.
        firings: the firings that it has claimed or runs.
        runs: the runs of these firings that are running.
        subscriptions: the subscriptions that it serves: webhooks, and OpenLineage.
    """

    name: str
    release: str
    state: str
    started: datetime
    lease_until: datetime
    firings: list[Firing]
    runs: list[int]
    subscriptions: list[str]


def binding_routes(context: RouteContext) -> APIRouter:
    """Return the routes of bindings."""
    router = APIRouter(tags=["bindings"])
    project = context.project

    @router.get("/bindings", dependencies=context.read)
    def bindings(request: Request, response: Response, after: After = "", limit: Limit = 100) -> list[BindingResponse]:
        """List the bindings by name, with their triggers."""
        found = [_shown(bound) for bound in project.bindings(after, limit + 1)]
        return paginate(request, response, found, limit, "after", lambda last: last.name)

    @router.get("/bindings/{name}", dependencies=context.read)
    def binding(name: str) -> BindingResponse:
        """Return a binding."""
        return _shown(project.binding(name))

    @router.get("/triggers", dependencies=context.read)
    def triggers(
        request: Request,
        response: Response,
        binding: Annotated[list[str] | None, Query(description="The bindings; all if omitted.")] = None,
        after: After = "",
        limit: Limit = 100,
    ) -> list[BindingStatusResponse]:
        """List the states of the triggers of bindings, and their last firings."""
        found = [_pending(each) for each in project.binding_statuses(after, limit + 1, binding)]
        return found if binding else paginate(request, response, found, limit, "after", lambda last: last.binding)

    def acting(action: Callable[[str, str | None], None], verb: str, what: str) -> None:
        def act(name: str, who: Who) -> dict[str, str]:
            action(name, who)
            return {"binding": name, "done": verb}

        act.__doc__ = what
        act.__name__ = verb
        router.post(f"/bindings/{{name}}/{verb}", dependencies=context.operate)(act)

    acting(project.fire, "fire", "Start a binding now, as if one of its triggers had fired.")
    acting(project.pause, "pause", "Pause the triggers of a binding.")
    acting(project.resume, "resume", "Resume the triggers of a binding.")

    @router.get("/firings", dependencies=context.read)
    def firings(
        request: Request,
        response: Response,
        binding: str | None = None,
        state: FiringState | None = None,
        before: Before = None,
        limit: Limit = 100,
    ) -> list[Firing]:
        """List the firings, of all bindings or one, newest first."""
        found = project.firings(limit + 1, binding, before, state)
        return paginate(request, response, found, limit, "before", lambda last: last.number)

    @router.get("/servers", dependencies=context.read)
    def servers(limit: Limit = 100) -> list[ServerResponse]:
        """List the servers, last started first, with the current work of each."""
        return [_attending(each) for each in project.servers(limit)]

    return router


def _shown(bound: RegisteredBinding) -> BindingResponse:
    return BindingResponse(
        name=bound.binding.name,
        workflow=bound.workflow,
        workflowette=bound.binding.workflowette,
        tasks=list(bound.binding.tasks),
        triggers=[describe_trigger(trigger) for trigger in bound.binding.triggers],
        priority=bound.binding.priority,
        paused=bound.paused,
    )


def _pending(pending: BindingStatus) -> BindingStatusResponse:
    return BindingStatusResponse(
        binding=pending.bound.binding.name,
        paused=pending.bound.paused,
        triggers=[
            TriggerResponse(
                trigger=each.text,
                ready=each.ready,
                waits=each.waits,
                next_check=each.next_check,
                parts=[
                    ConditionResponse(
                        trigger=describe_trigger(part.trigger),
                        ready=part.ready,
                        waits=part.text,
                        rows=part.rows,
                        since=part.since,
                        next_check=part.next_check,
                    )
                    for part in each.parts
                ],
            )
            for each in pending.triggers
        ],
        next=pending.next,
        last=pending.last,
        due=pending.due,
    )


def _attending(attending: ServerStatus) -> ServerResponse:
    return ServerResponse(
        name=attending.server.name,
        release=attending.server.release,
        state=attending.server.state,
        started=attending.server.started,
        lease_until=attending.server.lease_until,
        firings=list(attending.firings),
        runs=[run.number for run in attending.runs],
        subscriptions=list(attending.subscriptions),
    )
