"""Pages of runs: past and current ones, and each with its inputs, outputs, log and duration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from fastapi import APIRouter, Response

from kilonova.api.routes.context import Before, PathNumber
from kilonova.errors import NotFound
from kilonova.model.run import Run, RunKind, RunState
from kilonova.web.charts import Scale, Tick, lanes, times
from kilonova.web.page import CurrentPage

_ROWS = 50
"""Number of runs per page."""

_LETTERS = 200_000
"""Maximum number of characters shown of a log, from its end."""

_AT_ONCE = 60
"""Maximum number of concurrent runs shown next to one."""

_LEAST = timedelta(seconds=10)
"""Minimum time span of a chart of runs."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Run in a chart: its start and length, in percent, and its lane."""

    run: Run
    left: float
    width: float
    lane: int


@dataclass(frozen=True, slots=True)
class Gantt:
    """Runs over time; concurrent ones are in different lanes."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    lanes: int


router = APIRouter()


@router.get("/runs")
def runs(
    page: CurrentPage,
    before: Before = None,
    after: Before = None,
    state: str = "",
    kind: str = "",
    binding: str = "",
    task: str = "",
    channel: str = "",
) -> Response:
    """Show the list of runs."""
    wanted = {"state": state, "kind": kind, "binding": binding, "task": task, "channel": channel}
    problem = None
    try:
        found = page.project.runs(
            _ROWS + 1,
            before,
            after=after,
            state=RunState(state) if state in {each.value for each in RunState} else None,
            kind=RunKind(kind) if kind in {each.value for each in RunKind} else None,
            binding=binding or None,
            task=task or None,
            channel=channel or None,
        )
    except NotFound as error:
        found, problem = [], error
    more = len(found) > _ROWS
    found = found[-_ROWS:] if after is not None else found[:_ROWS]
    given = {name: value for name, value in wanted.items() if value}
    older = more if after is None else bool(found)
    newer = before is not None or (after is not None and more)
    now = page.project.catalog.clock()
    return page.show(
        "runs.html",
        found=found,
        problem=problem,
        wanted=wanted,
        filtered=bool(given),
        states=[each.value for each in RunState],
        kinds=[each.value for each in RunKind],
        gantt=gantt([each.run for each in found], now),
        going=any(each.run.state is RunState.RUNNING for each in found),
        earlier="?" + urlencode({**given, "before": found[-1].run.number}) if found and older else None,
        later="?" + urlencode({**given, "after": found[0].run.number}) if found and newer else None,
    )


@router.get("/runs/{number}")
def run(page: CurrentPage, number: PathNumber) -> Response:
    """Show a run."""
    detail = page.project.run_detail(number)
    now = page.project.catalog.clock()
    try:
        log, unlogged = page.project.log(number).text, None
    except NotFound as error:
        log, unlogged = "", error
    near = page.project.reader.runs_between(detail.run.started, detail.run.ended or now, _AT_ONCE)
    others = [each for each in near if each.number != number]
    return page.show(
        "run.html",
        detail=detail,
        run=detail.run,
        log=log[-_LETTERS:],
        cut=len(log) > _LETTERS,
        unlogged=unlogged,
        gantt=gantt([detail.run, *others], now),
        others=len(others),
        most=_AT_ONCE,
        retried=detail.run.kind is RunKind.TASKS and detail.run.state not in (RunState.RUNNING, RunState.SUCCEEDED),
    )


def gantt(runs: Sequence[Run], now: datetime) -> Gantt | None:
    """Return a chart of runs, of which the current ones last until now; None if there are none."""
    if not runs:
        return None
    ordered = sorted(runs, key=lambda run: (run.started, run.number))
    first, last = ordered[0].started, max(run.ended or now for run in ordered)
    last = max(last, first + _LEAST)
    place = Scale(first.timestamp(), last.timestamp(), 0, 100)
    spans = [(place(run.started.timestamp()), place((run.ended or now).timestamp())) for run in ordered]
    shown = [(start, max(end, start + 0.35)) for start, end in spans]
    rows = lanes(shown)
    bars = [Bar(run, start, end - start, lane) for run, (start, end), lane in zip(ordered, shown, rows, strict=True)]
    return Gantt(bars=tuple(bars), ticks=tuple(times(first, last)), lanes=max(rows) + 1)
