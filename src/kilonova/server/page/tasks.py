"""Tasks and views: all of them, and each with its logic, what it would do now, and what its runs took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from kilonova.catalog.past import Past
from kilonova.errors import KilonovaError, UnknownName
from kilonova.model.task import Function, Variant
from kilonova.server.page.charts import Scale, Tick, steps
from kilonova.server.page.glances import Glances, around, standing
from kilonova.server.page.picture import pictured
from kilonova.server.page.rendering import Pages
from kilonova.server.page.words import seconds
from kilonova.server.routes.context import Before, Context, Number

_ROWS = 100
"""How many rows a list has."""

_RUNS = 60
"""How many runs are shown at once."""

_NAMED = 10
"""How many runs are named under a chart."""


def task_pages(context: Context, pages: Pages, glances: Glances) -> APIRouter:
    """The pages of tasks."""
    router = APIRouter()
    project = context.project

    @router.get("/tasks")
    def tasks(request: Request, q: str = "", workflow: str = "", state: str = "", start: Number = 0) -> Response:
        every = glances.overview()
        stands = {name: standing(task, every) for name, task in every.tasks.items()}
        found = [
            task
            for name, task in every.tasks.items()
            if q.strip().lower() in name.lower()
            and workflow in ("", task.workflow)
            and state in ("", stands[name].state)
        ]
        return pages.show(
            request,
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
    def task(request: Request, name: str, before: Before = None) -> Response:
        status = project.task(name)
        every = glances.overview()
        glance = every.tasks[name]
        near = around(every, glance.writes, 1)
        past = project.past(name, before, _RUNS)
        last = past[:1] if before is None else project.past(name, None, 1)
        variants = status.registered.task.variants
        try:
            outlook, unseen = project.outlook(name), None
        except UnknownName as error:
            outlook, unseen = None, error
        try:
            kept = project.explain(name, 0) if glance.view else ()
        except KilonovaError:  # what it reads has changed, so that its query does not fit it any more
            kept = ()
        return pages.show(
            request,
            "task.html",
            task=status.registered.task,
            registered=status.registered,
            lags=status.lags,
            glance=glance,
            stands=standing(glance, every),
            binding=every.bindings.get(glance.binding),
            outlook=outlook,
            unseen=unseen,
            sources=[_source(variant) for variant in variants],
            kept=kept,
            past=past,
            last=last[0] if last else None,
            before=before,
            chart=_chart(past),
            near=pictured(near, every),
        )

    return router


def _source(variant: Variant) -> tuple[Variant, str, str]:
    """A variant with its text and the language of that."""
    logic = variant.logic
    return (variant, logic.source, "python") if isinstance(logic, Function) else (variant, logic.text, "sql")


def _chart(past: Sequence[Past]) -> dict[str, Any] | None:
    """What runs took, oldest first, beside what they were estimated to take."""
    known = [each for each in reversed(past) if each.way is not None]
    if len(known) < 2:
        return None
    values = [each.seconds for each in known] + [value for each in known for value in each.estimates.values()]
    values.sort()
    top = min(values[-1], 3 * values[int(len(values) * 0.9)])  # one bad time must not make all others invisible
    marks = steps(top)
    high, place = Scale(0, marks[-1], 100, 0), Scale(-0.5, len(known) - 0.5, 0, 100)
    return {
        "ticks": [Tick(high(value), seconds(value)) for value in marks],
        "runs": [
            Tick(place(number), f"run {each.run}")
            for number, each in enumerate(known)
            if number % math.ceil(len(known) / _NAMED) == 0
        ],
        "ways": list(dict.fromkeys(each.way for each in known)),
        "dots": [
            {
                "past": each,
                "x": place(number),
                "y": high(min(each.seconds, marks[-1])),
                "over": each.seconds > marks[-1],
                "estimates": [
                    (way, high(min(value, marks[-1])), way is each.way) for way, value in each.estimates.items()
                ],
            }
            for number, each in enumerate(known)
        ],
    }
