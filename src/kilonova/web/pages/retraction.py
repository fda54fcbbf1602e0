"""Page of the retraction of a faulty logic version: what it has touched, and how that is repaired."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Response

from kilonova.api.routes.context import Number
from kilonova.errors import KilonovaError, NotFound
from kilonova.model.point_ranges import describe_points, ranges_of
from kilonova.service.spark_operations import OperationFailed
from kilonova.web.page import CurrentPage
from kilonova.web.pages.changes import ADMIN

router = APIRouter()


@router.get("/tasks/{name}/retraction")
def retraction(page: CurrentPage, name: str, version: Number, recompute: bool = False) -> Response:
    """Show what retracting a logic version of a task would repair."""
    task = page.project.reader.task(name).registered
    history = page.project.reader.logic_history(name)
    if version not in {each.logic for each in history}:
        numbers = ", ".join(str(each.logic) for each in reversed(history))
        raise NotFound(f"there is no logic version {version}", task=name, hint=f"The versions are {numbers}")
    workflow = page.project.reader.workflow(task.workflow)
    return page.show("retraction.html", workflow=workflow, task=task, version=version, recompute=recompute)


@router.get("/tasks/{name}/retraction/plan", dependencies=ADMIN)
async def retraction_plan(page: CurrentPage, name: str, version: Number, recompute: bool = False) -> Response:
    """Return a part of a page: the points that a logic version has touched, and how they are repaired."""
    asked: dict[str, Any] = {"task": name, "version": version, "to": None, "recompute": recompute}
    try:
        found = await page.context.operations.done("retract", client=page.request, dry_run=True, **asked)
    except OperationFailed as error:
        return page.show("retraction_plan.html", problem=error.content)
    except KilonovaError as error:
        return page.show("retraction_plan.html", problem=error.to_dict())
    touched = [{**each, "points": describe_points(ranges_of(each["points"]))} for each in found["touched"]]
    action = f"/api/v1/tasks/{quote(name, safe='')}/versions/{version}/retract?recompute={str(recompute).lower()}"
    return page.show(
        "retraction_plan.html",
        problem=None,
        task=name,
        version=version,
        recompute=recompute,
        found={**found, "touched": touched},
        action=action,
    )


@router.get("/tasks/{name}/retraction/plan/waiting")
async def waiting(page: CurrentPage, name: str) -> dict[str, int | None]:
    """Return how many runs and operations are before the first retraction that waits for a worker; null if none is."""
    return {"before": page.context.operations.before_first("retract")}
