"""Pages of tasks and views: the list, and each with its logic, its next run, and the durations of its runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from fastapi import APIRouter, Response

from kilonova.api.routes.context import Before, Number
from kilonova.catalog.read_models.task_runs import TaskRun
from kilonova.errors import KilonovaError, NotFound
from kilonova.service.formatting import seconds
from kilonova.service.logic_history import LogicDifference, LogicVersion
from kilonova.web.charts import Scale, Tick, steps
from kilonova.web.graph.picture import graph_picture
from kilonova.web.overview_cache import neighbourhood, task_status
from kilonova.web.page import CurrentPage, Page

_ROWS = 100
"""Number of rows of a list."""

_RUNS = 60
"""Number of runs per page."""

_LINES = 15
"""Number of the last lines shown of the log of a failed run."""

_VERSIONS = 10
"""Number of logic versions shown."""

_NAMED = 10
"""Number of runs named below a chart."""


router = APIRouter()


@router.get("/tasks")
def tasks(page: CurrentPage, q: str = "", workflow: str = "", state: str = "", start: Number = 0) -> Response:
    """Show the list of tasks."""
    every = page.overview()
    stands = {name: task_status(task, every) for name, task in every.tasks.items()}
    found = [
        task
        for name, task in every.tasks.items()
        if q.strip().lower() in name.lower() and workflow in ("", task.workflow) and state in ("", stands[name].state)
    ]
    return page.show(
        "tasks.html",
        every=every,
        found=found[start : start + _ROWS],
        count=len(found),
        start=start,
        size=_ROWS,
        q=q,
        workflow=workflow,
        state=state,
        workflows=sorted({each.workflow for each in every.tasks.values()}),
        stands=stands,
    )


@router.get("/tasks/{name}")
def task(page: CurrentPage, name: str, before: Before = None) -> Response:
    """Show a task."""
    status = page.project.reader.task(name)
    every = page.overview()
    glance = every.tasks[name]
    history = page.project.reader.logic_history(name)[:_VERSIONS]
    past = page.project.reader.task_runs(name, before, _RUNS)
    last = past[:1] if before is None else page.project.reader.task_runs(name, None, 1)
    try:
        outlook, unseen = page.project.reader.task_preview(name), None
    except NotFound as error:
        outlook, unseen = None, error
    try:
        kept = page.project.explain(name, 0) if glance.view else ()
    except KilonovaError:  # its input has changed, so that the query is no longer valid
        kept = ()
    return page.show(
        "task.html",
        task=status.registered.task,
        registered=status.registered,
        deferred_until=status.deferred_until,
        alert=status.alert,
        lags=status.lags,
        glance=glance,
        stands=task_status(glance, every),
        binding=every.bindings.get(glance.binding),
        failure=None if glance.failed is None else _failure(page, glance.failed),
        outlook=outlook,
        unseen=unseen,
        variants=status.registered.task.variants,
        kept=kept,
        past=past,
        last=last[0] if last else None,
        before=before,
        chart=_chart(past),
        history=history,
        differences=dict(_differences(page, history)),
        near=graph_picture(neighbourhood(every, glance.writes, 1), every),
    )


@router.get("/tasks/{name}/versions/diff")
def difference(page: CurrentPage, name: str, version: Number, since: Number) -> Response:
    """Return a part of a page: how two logic versions of a task differ."""
    try:
        found, problem = page.project.reader.logic_difference(name, version, since), None
    except NotFound as error:
        found, problem = None, error
    return page.show("difference.html", found=found, problem=problem)


def _differences(page: Page, history: Sequence[LogicVersion]) -> Iterator[tuple[int, LogicDifference]]:
    """Yield how each version differs from the one before, which follows it, as far as both are known."""
    for each, before in pairwise(history):
        if each.known and before.known:
            yield each.logic, page.project.reader.logic_difference(each.task, each.logic, before.logic)


def _failure(page: Page, number: int) -> dict[str, Any]:
    """Return a failed run, with the last lines of its log."""
    try:
        log = page.project.log(number).text
    except NotFound:  # it was deleted
        log = ""
    run = page.project.run_detail(number).run
    return {"run": run, "log": "\n".join(log.splitlines()[-_LINES:])}


def _chart(past: Sequence[TaskRun]) -> dict[str, Any] | None:
    """Return a chart of the durations of runs, oldest first, with their estimates; failures have marks too."""
    known = [each for each in reversed(past) if each.method is not None or each.error is not None]
    if len(known) < 2:
        return None
    values = [each.seconds for each in known] + [value for each in known for value in each.estimates.values()]
    values.sort()
    top = min(values[-1], 3 * values[int(len(values) * 0.9)])  # a single outlier must not make all others invisible
    marks = steps(top)
    high, place = Scale(0, marks[-1], 100, 0), Scale(-0.5, len(known) - 0.5, 0, 100)
    return {
        "ticks": [Tick(high(value), seconds(value)) for value in marks],
        "runs": [
            Tick(place(number), f"run {each.run}")
            for number, each in enumerate(known)
            if number % math.ceil(len(known) / _NAMED) == 0
        ],
        "marks": list(dict.fromkeys(_mark(each) for each in known)),
        "dots": [
            {
                "past": each,
                "mark": _mark(each),
                "x": place(number),
                "y": high(min(each.seconds, marks[-1])),
                "over": each.seconds > marks[-1],
                "estimates": [
                    (method, high(min(value, marks[-1])), method is each.method)
                    for method, value in each.estimates.items()
                ],
            }
            for number, each in enumerate(known)
        ],
    }


def _mark(past: TaskRun) -> str:
    """Return the mark of a run in a chart: its refresh method, or that it failed."""
    return past.state.value if past.method is None else past.method.value
