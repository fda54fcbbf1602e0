"""Routes of bindings, triggers, firings and servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator

from kilonova.api.response_models import ResponseModel, attribute, list_of, response_model
from kilonova.api.routes.context import OPERATE, READ, After, Before, CurrentProject, Limit, Paged, PathNumber, Who
from kilonova.catalog.bindings import RegisteredBinding
from kilonova.catalog.read_models.binding_status import BindingStatus
from kilonova.catalog.servers import ServerStatus
from kilonova.model.firing import Firing, FiringState
from kilonova.model.run import Run
from kilonova.model.trigger import describe_trigger
from kilonova.schedule.trigger_status import ConditionStatus, TriggerStatus

_TriggerText = Annotated[str, BeforeValidator(describe_trigger)]


def _numbers(runs: Sequence[Run]) -> list[int]:
    return [run.number for run in runs]


class BindingResponse(ResponseModel):
    """A binding, with its triggers as text."""

    name: str = attribute("binding", "name")
    workflow: str
    workflowette: str = attribute("binding", "workflowette")
    tasks: list[str] = attribute("binding", "tasks")
    triggers: list[_TriggerText] = attribute("binding", "triggers")
    priority: int = attribute("binding", "priority")
    paused: bool


_ConditionResponse = response_model(ConditionStatus, trigger=_TriggerText)
_TriggerResponse = response_model(TriggerStatus, text=None, trigger=_TriggerText, parts=list_of(_ConditionResponse))
_BindingStatusResponse = response_model(
    BindingStatus,
    bound=None,
    binding=Annotated[str, attribute("bound", "binding", "name")],
    paused=Annotated[bool, attribute("bound", "paused")],
    triggers=list_of(_TriggerResponse),
)


_ServerStatusResponse = response_model(
    ServerStatus, flat="server", runs=Annotated[list[int], BeforeValidator(_numbers)], lost=None
)

router = APIRouter(tags=["bindings"])


@router.get("/bindings", dependencies=READ, response_model=list[BindingResponse])
def bindings(project: CurrentProject, paging: Paged, after: After = "") -> list[RegisteredBinding]:
    """List the bindings by name, with their triggers."""
    return paging.page(project.reader.bindings(after, paging.more), "after", lambda last: last.binding.name)


@router.get("/bindings/{name}", dependencies=READ, response_model=BindingResponse)
def binding(project: CurrentProject, name: str) -> RegisteredBinding:
    """Return a binding."""
    return project.reader.binding(name)


@router.get("/triggers", dependencies=READ, response_model=list_of(_BindingStatusResponse))
def triggers(
    project: CurrentProject,
    paging: Paged,
    binding: Annotated[list[str] | None, Query(description="The bindings; all if omitted.")] = None,
    after: After = "",
) -> list[BindingStatus]:
    """List the states of the triggers of bindings, and their last firings."""
    found = list(project.reader.binding_statuses(after, paging.more, binding))
    return found if binding else paging.page(found, "after", lambda last: last.bound.binding.name)


@router.post("/bindings/{name}/fire", dependencies=OPERATE, status_code=202)
def fire(project: CurrentProject, response: Response, name: str, who: Who) -> Firing:
    """Start a binding now, as if one of its triggers had fired.

    A server starts it: `Location` is the URL of the firing, which says what becomes of it.
    """
    firing = project.fire(name, who)
    response.headers["Location"] = f"/api/v1/firings/{firing.number}"
    return firing


@router.post("/bindings/{name}/pause", dependencies=OPERATE)
def pause(project: CurrentProject, name: str, who: Who) -> dict[str, str]:
    """Pause the triggers of a binding."""
    project.pause(name, who)
    return {"binding": name, "done": "pause"}


@router.post("/bindings/{name}/resume", dependencies=OPERATE)
def resume(project: CurrentProject, name: str, who: Who) -> dict[str, str]:
    """Resume the triggers of a binding."""
    project.resume(name, who)
    return {"binding": name, "done": "resume"}


@router.get("/firings", dependencies=READ)
def firings(
    project: CurrentProject,
    paging: Paged,
    binding: str | None = None,
    state: FiringState | None = None,
    before: Before = None,
) -> list[Firing]:
    """List the firings, of all bindings or one, newest first."""
    found = project.reader.firings(paging.more, binding, before, state)
    return paging.page(found, "before", lambda last: last.number)


@router.get("/firings/{number}", dependencies=READ)
def firing(project: CurrentProject, number: PathNumber) -> Firing:
    """Return a firing: its state, its run, and why it came to nothing if it did."""
    return project.reader.firing(number)


@router.get("/servers", dependencies=READ, response_model=list_of(_ServerStatusResponse))
def servers(project: CurrentProject, limit: Limit = 100) -> list[ServerStatus]:
    """List the servers, last started first, with the current work of each."""
    return list(project.reader.servers(limit))
