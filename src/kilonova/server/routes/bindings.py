"""Bindings: what runs by itself, what has fired, and who serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from kilonova.catalog.bindings import Bound
from kilonova.catalog.prospects import Pending
from kilonova.catalog.servers import Attending
from kilonova.model.firing import Firing, FiringState
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedShown:
    """What a simple trigger waits for.

    Attributes:
        trigger: the trigger, in words.
        ready: whether it has come.
        waits: how far that is, in words.
        rows: how many rows have come, where it counts them and has not got all.
        since: when the oldest came of what is new on its channel, where that is not enough.
        wake: when it comes though nothing happens.
    """

    trigger: str
    ready: bool
    waits: str
    rows: int | None
    since: datetime | None
    wake: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerShown:
    """A trigger, and what it waits for.

    Attributes:
        trigger: the trigger, in words.
        ready: whether it fires when a server looks at it next.
        waits: how far it is, in words.
        wake: when a server looks at it though nothing happens.
        parts: the same of each simple trigger that it is made of.
    """

    trigger: str
    ready: bool
    waits: str
    wake: datetime | None
    parts: list[AwaitedShown]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingShown:
    """What starts a binding next.

    Attributes:
        binding: its name.
        paused: whether its triggers are held back.
        triggers: its triggers, and what each waits for.
        next: when a server looks at the first of them though nothing happens.
        last: its last firing.
        due: how many of its firings have not ended.
    """

    binding: str
    paused: bool
    triggers: list[TriggerShown]
    next: datetime | None
    last: Firing | None
    due: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerShown:
    """A server, and what it has taken on.

    Attributes:
        name: unique among all that ever ran.
        release: the release that it runs.
        state: `alive`, `stopped` or `silent`.
        started: when it started.
        lease_until: until when it is alive without another heartbeat.
        firings: the firings that it has claimed or runs.
        runs: the runs of these firings that go on.
        outlets: the outlets that it serves: webhooks, and OpenLineage.
    """

    name: str
    release: str
    state: str
    started: datetime
    lease_until: datetime
    firings: list[Firing]
    runs: list[int]
    outlets: list[str]


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

    @router.get("/triggers", dependencies=context.read)
    def triggers(
        request: Request,
        response: Response,
        binding: Annotated[
            list[str] | None, Query(description="Of these bindings; of all by name if left out.")
        ] = None,
        after: After = "",
        limit: Limit = 100,
    ) -> list[PendingShown]:
        """What the triggers of bindings wait for, how far that is, and what has fired last."""
        found = [_pending(each) for each in project.prospects(after, limit + 1, binding)]
        return found if binding else page(request, response, found, limit, "after", lambda last: last.binding)

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
        state: FiringState | None = None,
        before: Before = None,
        limit: Limit = 100,
    ) -> list[Firing]:
        """The firings, of all bindings or one, newest first."""
        found = project.firings(limit + 1, binding, before, state)
        return page(request, response, found, limit, "before", lambda last: last.number)

    @router.get("/servers", dependencies=context.read)
    def servers(limit: Limit = 100) -> list[ServerShown]:
        """The servers, those that started last first, and what each has taken on."""
        return [_attending(each) for each in project.attendance(limit)]

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


def _pending(pending: Pending) -> PendingShown:
    return PendingShown(
        binding=pending.bound.binding.name,
        paused=pending.bound.paused,
        triggers=[
            TriggerShown(
                trigger=each.text,
                ready=each.ready,
                waits=each.waits,
                wake=each.wake,
                parts=[
                    AwaitedShown(
                        trigger=described(part.trigger),
                        ready=part.ready,
                        waits=part.text,
                        rows=part.rows,
                        since=part.since,
                        wake=part.wake,
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


def _attending(attending: Attending) -> ServerShown:
    return ServerShown(
        name=attending.server.name,
        release=attending.server.release,
        state=attending.server.state,
        started=attending.server.started,
        lease_until=attending.server.lease_until,
        firings=list(attending.firings),
        runs=[run.number for run in attending.runs],
        outlets=list(attending.outlets),
    )
