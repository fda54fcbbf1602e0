"""What planning runs that keep bounds takes a server, on a catalog of 1,000 channels with 200 bounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import kilonova as kn
from bench.report import Goal, Report, Scale
from bench.scheduling import arrive, project_on
from kilonova.catalog.bound_observation import observe_bounds
from kilonova.schedule.bound_planning.bound_decision import decide_bound_runs
from kilonova.scheduler.bound_planner import BoundPlanner
from kilonova.service.project import Project

DEPTH = 4
"""Number of tasks between a source and the channel with the bound; each can process new rows, or all of them."""


def measure(scale: Scale) -> list[Report]:
    """Decisions after no, one and all sources have received data."""
    chains = 20 if scale is Scale.QUICK else 200
    rows: list[tuple[object, ...]] = []
    with project_on("SQLite") as project:
        project.apply(_workflow(chains))
        decided = [_decision(project, "at first", rows), _decision(project, "again", rows)]
        arrive(project, "s0")
        decided.append(_decision(project, "data in one source", rows))
        for number in range(chains):
            arrive(project, f"s{number}")
        decided.append(_decision(project, "data in all sources", rows))
        planner = BoundPlanner(project.catalog)
        planner.check(exist=True)
        idle = _timed(partial(planner.check, exist=True))
    goals = [
        Goal("seconds for a decision, at most", max(decided), 1.0),
        Goal("milliseconds where nothing has changed", 1000 * idle, 50),
    ]
    return [
        Report(
            name="bounds",
            title=f"Planning runs that keep bounds: {chains * (DEPTH + 1):,} channels, {2 * chains * DEPTH:,} variants,"
            f" {chains} bounds",
            columns=("state", "load the catalog, s", "plan, s", "runs to start"),
            rows=rows,
            goals=goals,
            timings={},
            note="Seconds of CPU, in a catalog in SQLite. Neither holds the writers' lock.",
        )
    ]


def _workflow(chains: int) -> kn.Workflow:
    workflow = kn.Workflow("bounded")
    for chain in range(chains):
        workflow.channel(f"s{chain}", "id bigint")
        read = f"s{chain}"
        for place in range(DEPTH):
            name = f"t{chain}_{place}"
            workflow.view(name, f"SELECT id + {place} AS id FROM {read}")
            read = name
        workflow.bound_staleness(read, f"s{chain}", 0)
    return workflow


def _decision(project: Project, state: str, rows: list[tuple[object, ...]]) -> float:
    """Append a row for a decision, and return the seconds that it took."""
    began = time.process_time()
    with project.catalog.reading() as tx:
        observed = observe_bounds(tx)
    assert observed is not None
    loaded = time.process_time()
    decision = decide_bound_runs(observed)
    ended = time.process_time()
    rows.append((state, loaded - began, ended - loaded, len(decision.runs)))
    return ended - began


def _timed(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began
