"""Pages of changes of logic: the plan of a workflow's file or of a rollback, its preview, and its application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from kilonova.api.routes.context import Number, RouteContext, operation_response
from kilonova.api.routes.workflows import file_of
from kilonova.errors import KilonovaError, NotFound
from kilonova.model.role import Role
from kilonova.service.affected_channels import DownstreamEffect
from kilonova.service.formatting import size
from kilonova.service.spark_operations import OperationFailed
from kilonova.web.formatting import counted, number
from kilonova.web.page import CurrentPage, Page
from kilonova.web.preview_tables import preview_tables

router = APIRouter()


def _require_admin(request: Request) -> None:
    """Require the role that may apply workflows: making a plan runs the code of a workflow's file."""
    context: RouteContext = request.app.state.context
    context.access.check(request, Role.ADMIN)


ADMIN = [Depends(_require_admin)]

_VERSIONS = 20
"""Number of logic versions shown of a workflow."""

_BROKEN = frozenset({DownstreamEffect.BREAKS.value, DownstreamEffect.MAY_BREAK.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Change that a page is about: what a file declares, or a rollback.

    Attributes:
        page: the URL of its page.
        plan: the URL of the part of a page with its plan.
        apply: the route that applies it.
        preview: the route that previews it.
        verb: what applying it is called on buttons.
        task: the task of a rollback; None for a file.
    """

    page: str
    plan: str
    apply: str
    preview: str
    verb: str
    task: str | None = None


@router.get("/changes")
def workflows(page: CurrentPage) -> Response:
    """Show the list of workflows, with their files."""
    return page.show("changes.html", found=page.project.reader.workflows())


@router.get("/changes/{workflow}")
def change(page: CurrentPage, workflow: str, preview: str = "") -> Response:
    """Show what the file of a workflow would change."""
    known = page.project.reader.workflow(workflow)
    return page.show(
        "change.html",
        workflow=known,
        task=None,
        history=page.project.reader.workflow_history(workflow, _VERSIONS),
        change=_of_file(workflow),
        preview=_preview(page, preview),
    )


@router.get("/changes/{workflow}/plan", dependencies=ADMIN)
async def plan(page: CurrentPage, workflow: str) -> Response:
    """Return a part of a page: the plan of applying the file of a workflow."""
    try:
        source = await run_in_threadpool(file_of, page.project, workflow)
    except NotFound as error:
        return page.show("plan.html", problem=error.to_dict())
    options = {"dry_run": True, "same_logic": [], "new_version": [], "defer": None, "expected": None}
    return await _plan(page, _of_file(workflow), "apply", **source, **options)


@router.get("/changes/{workflow}/plan/waiting")
async def waiting(page: CurrentPage, workflow: str) -> dict[str, int | None]:
    """Return how many runs and operations are before the first plan that waits for a worker; null if none does."""
    return {"before": page.context.operations.before_first("apply")}


@router.get("/tasks/{name}/rollback")
def rollback(page: CurrentPage, name: str, version: Number, preview: str = "") -> Response:
    """Show what returning to an earlier logic version of a task would change."""
    task = page.project.reader.task(name)
    page.project.reader.logic_difference(
        name, version, task.registered.logic
    )  # or it says that there is no such version
    return page.show(
        "change.html",
        workflow=page.project.reader.workflow(task.registered.workflow),
        task=task.registered,
        version=version,
        change=_of_rollback(name, version),
        preview=_preview(page, preview),
    )


@router.get("/tasks/{name}/rollback/plan", dependencies=ADMIN)
async def rollback_plan(page: CurrentPage, name: str, version: Number) -> Response:
    """Return a part of a page: the plan of a rollback."""
    options = {"dry_run": True, "defer": None, "expected": None}
    return await _plan(page, _of_rollback(name, version), "rollback", task=name, version=version, **options)


@router.get("/tasks/{name}/rollback/plan/waiting")
async def rollback_waiting(page: CurrentPage, name: str) -> dict[str, int | None]:
    """Return how many runs and operations are before the first rollback that waits for a worker; null if none does."""
    return {"before": page.context.operations.before_first("rollback")}


def _of_file(workflow: str) -> _Change:
    name = quote(workflow, safe="")
    return _Change(
        page=f"/changes/{name}?",
        plan=f"/changes/{name}/plan",
        apply=f"/api/v1/workflows/{name}/apply?",
        preview=f"/api/v1/workflows/{name}/preview?",
        verb="Apply",
    )


def _of_rollback(task: str, version: int) -> _Change:
    name, given = quote(task, safe=""), urlencode({"version": version})
    return _Change(
        page=f"/tasks/{name}/rollback?{given}&",
        plan=f"/tasks/{name}/rollback/plan?{given}",
        apply=f"/api/v1/tasks/{name}/rollback?{given}&",
        preview=f"/api/v1/tasks/{name}/rollback/preview?{given}&",
        verb="Roll back",
        task=task,
    )


async def _plan(page: Page, change: _Change, what: str, **arguments: Any) -> Response:
    try:
        plans = await page.context.operations.done(what, client=page.request, **arguments)
    except OperationFailed as error:
        return page.show("plan.html", problem=error.content)
    except KilonovaError as error:
        return page.show("plan.html", problem=error.to_dict())
    expected = urlencode([("expected", plan["digest"]) for plan in plans])
    broken = {each["task"] for plan in plans for each in plan["affected"] if each["effect"] in _BROKEN}
    question = _question(change, [task for plan in plans for task in plan["tasks"]], len(broken))
    return page.show("plan.html", problem=None, plans=plans, change=change, expected=expected, question=question)


def _question(change: _Change, tasks: Sequence[Mapping[str, Any]], broken: int) -> str:
    """Return what is asked before a change is applied: what it does, what that costs, and how many tasks it breaks."""
    written = [task for task in tasks if task["migration"]]
    migrated = sum(task["migrated"] for task in written)
    parts = [f"{change.verb} this change?"]
    if written:
        counts = [(migrated, "migrated"), (len(written) - migrated, "recomputed")]
        said = " and ".join(
            f"{counted(count, 'output')} {'is' if count == 1 else 'are'} {how}" for count, how in counts if count
        )
        rows, bytes_ = (sum(task[name] for task in tasks) for name in ("rows", "bytes"))
        parts.append(f"At the next run, {said}, which reads {number(rows)} rows, {size(bytes_)}.")
    if broken:
        parts.append(f"{counted(broken, 'task')} downstream may fail.")
    return " ".join(parts)


def _preview(page: Page, name: str) -> dict[str, Any] | None:
    """Return the state of a preview, with its tables if it is done; None if none was asked for."""
    if not name:
        return None
    try:
        operation = page.context.operations.asked(name)
    except NotFound as error:
        return {"state": "failed", "error": error.to_dict(), "tables": None}
    if operation.what != "preview":
        return None
    response = operation_response(page.context.operations, operation)
    tables = preview_tables(response.result) if response.state == "done" else None
    return {
        "state": response.state,
        "operation": name,
        "before": response.before,
        "progress": response.progress,
        "error": None if response.error is None else asdict(response.error),
        "tables": tables,
    }
