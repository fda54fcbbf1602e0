"""Bounded asynchrony: the simulations of Tables 5 and 6 of the paper, and decisions on large workflows."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.report import Draw, Goal, Report, Scale
from examples.asynchrony import crawl_selection, feedback_prioritization, search_preprocessing
from kilonova.model.bound import Bound, StalenessBound
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.baselines import RandomChoice, SingleStepScheduler
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockType, DataBlock
from kilonova.schedule.asynchrony.processing_methods import only_base_blocks, only_consistent_blocks
from kilonova.schedule.asynchrony.provenance import ORIGIN, ArrivalTimes
from kilonova.schedule.asynchrony.scenario import Scenario
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState
from kilonova.schedule.asynchrony.simulation import PlanningScheduler, simulate
from kilonova.schedule.asynchrony.simulation_result import SimulationResult
from kilonova.schedule.asynchrony.widgets import (
    UnitCosts,
    Widget,
    bag_union,
    channel_model,
    join,
    stateless,
    workflow_of,
)
from kilonova.schedule.asynchrony.workflow_model import ChannelModel

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)

Restrict = Callable[[Scenario], Scenario]

METHODS: dict[str, Restrict] = {
    "Async/Incr": lambda scenario: scenario,
    "Sync/Incr": only_consistent_blocks,
    "Async/Batch": only_base_blocks,
    "Sync/Batch": lambda scenario: only_consistent_blocks(only_base_blocks(scenario)),
}


@dataclass(frozen=True)
class Published:
    """What the paper measured: lags in computer hours, scheduling in seconds."""

    scenario: Scenario
    lags: tuple[float, float, float, float]
    scheduling: float


WORKFLOWS = {
    "SearchPreprocessing": Published(search_preprocessing.scenario(), (0.0606, 27.9, 615, 808), 6.25),
    "FeedbackPrioritization": Published(feedback_prioritization.scenario(), (0.0435, 2.12, 139, 193), 2.77),
    "CrawlSelection": Published(crawl_selection.scenario(), (81.4, 542, 2380, 3890), 10.1),
}


def measure(scale: Scale) -> Iterable[Report]:
    """Processing methods, schedulers, and large workflows; each report comes when it is there."""
    quick = scale is Scale.QUICK
    weeks, hours, runs, channels = (1, 2, 1, 100) if quick else (10, 12, 3, 1000)
    yield _large(channels)
    yield _methods(weeks, 1)
    yield _schedulers(hours, runs)


def _run(scenario: Scenario, scheduler: PlanningScheduler, duration: timedelta, seed: int) -> SimulationResult:
    return simulate(scenario, scheduler, start=START, duration=duration, seed=seed, timer=time.process_time)


def _full(scenario: Scenario) -> AsynchronousScheduler:
    return AsynchronousScheduler(scenario.workflow, scenario.bounds)


def _averages(results: list[SimulationResult]) -> tuple[float, float, float]:
    """The median lag, the cost and the scheduler's time, each averaged over the runs."""
    return (
        statistics.mean(result.median_lag for result in results),
        statistics.mean(result.cost for result in results),
        statistics.mean(result.scheduling_seconds for result in results),
    )


def _methods(weeks: int, runs: int) -> Report:
    """Table 5."""
    rows: list[tuple[object, ...]] = []
    goals: list[Goal] = []
    lags: dict[str, list[float]] = {}
    for name, published in WORKFLOWS.items():
        for place, (method, restrict) in enumerate(METHODS.items()):
            scenario = restrict(published.scenario)
            results = [_run(scenario, _full(scenario), weeks * 168 * HOUR, seed) for seed in range(runs)]
            lag, cost, seconds = _averages(results)
            print(f"{name}, {method}: {seconds:.1f} s of scheduling", file=sys.stderr, flush=True)
            lags.setdefault(name, []).append(lag)
            rows.append((f"{name}, {method}", f"{lag:.3g}", f"{published.lags[place]:g}", f"{cost:.3g}", seconds))
            if not place:
                goals.append(Goal(f"{name}: seconds of scheduling (paper)", seconds, published.scheduling))
        ratio = lags[name][1] / lags[name][0]
        least = round(min(10, published.lags[1] / published.lags[0]), 1)
        goals.append(Goal(f"{name}: lag of Sync/Incr by that of Async/Incr", ratio, least, at_least=True))
    return Report(
        name="asynchrony",
        title=f"Simulated workflows over {weeks} weeks, by processing method",
        columns=("workflow and method", "freshness lag, h", "paper", "processing cost, h", "scheduling, s"),
        rows=rows,
        goals=goals,
        note=f"Hours of one computer, of {runs} run{'s' if runs > 1 else ''} with noise; the lag is the median. Rates"
        " and costs are ours, so that only orders of magnitude can be compared with the paper. A thousand computers do"
        " not keep up with batch processing, so that its lag includes waiting.",
        panels=1,
        draw=_drawn(lags),
    )


def _drawn(lags: dict[str, list[float]]) -> Draw:
    def draw(axes: Any) -> None:
        (axis,) = axes
        width = 0.2
        for place, method in enumerate(METHODS):
            axis.bar(
                [number + (place - 1.5) * width for number in range(len(lags))],
                [each[place] for each in lags.values()],
                width,
                label=method,
            )
        axis.set_yscale("log")
        axis.set_xticks(range(len(lags)), [name.replace("P", "\nP", 1).replace("Sel", "\nSel") for name in lags])
        axis.set_ylabel("freshness lag, computer hours")
        axis.legend(fontsize=7)

    return draw


def _schedulers(hours: int, runs: int) -> Report:
    """Table 6."""
    rows: list[tuple[object, ...]] = []
    goals: list[Goal] = []
    for name, published in WORKFLOWS.items():
        feeds = tuple(replace(feed, initial=0.0) for feed in published.scenario.feeds)
        scenario = replace(published.scenario, feeds=feeds)
        full = _full(scenario)
        costs: dict[str, float] = {}
        for scheduler in ("dynamic program", "GREEDY", "RANDOM"):
            results = []
            for seed in range(runs):
                chosen: PlanningScheduler = full
                if scheduler != "dynamic program":
                    single = SingleStepScheduler(full)
                    chosen = single if scheduler == "GREEDY" else SingleStepScheduler(full, RandomChoice(seed))
                results.append(_run(scenario, chosen, hours * HOUR, seed))
            lag, cost, seconds = _averages(results)
            costs[scheduler] = cost
            print(f"{name}, {scheduler}: {seconds:.1f} s of scheduling", file=sys.stderr, flush=True)
            rows.append((f"{name}, {scheduler}", f"{lag:.3g}", f"{cost:.3g}", seconds))
        goals.append(Goal(f"{name}: cost by that of GREEDY", costs["dynamic program"] / costs["GREEDY"], 1))
    return Report(
        name="asynchrony_schedulers",
        title=f"Schedulers over {hours} simulated hours",
        columns=("workflow and scheduler", "freshness lag, h", "processing cost, h", "scheduling, s"),
        rows=rows,
        goals=goals,
        note="From empty channels on. GREEDY and RANDOM run one step at a time: the cheapest, or any, that keeps the"
        " propagated bounds.",
    )


COSTS = UnitCosts(fixed=1.0, read=1e-3, probe=1e-5, write=1e-3)


def _large(channels: int) -> Report:
    """Decisions on many channels: all bounds violated at once, one, and none."""
    scenario = _many(channels)
    scheduler = _full(scenario)
    rows: list[tuple[object, ...]] = []
    found: dict[str, float] = {}
    sources = [name for name in scenario.workflow.paths if name not in scenario.workflow.writer]
    situations = {"all bounds violated": sources, "two bounds violated": ["a0"], "nothing changed": []}
    for name, arrived in situations.items():
        state = _state(scenario, arrived)
        scheduler.plan(state)
        times = []
        for _ in range(5):
            began = time.process_time()
            plan = scheduler.plan(state)
            times.append(time.process_time() - began)
        found[name] = 1000 * statistics.median(times)
        rows.append((name, len(plan.violated), len(plan.invocations), found[name]))
    variants = sum(len(task.variants) for task in scenario.workflow.tasks)
    return Report(
        name="asynchrony_scale",
        title=f"A decision on {channels} channels, {variants} variants, {len(scenario.bounds)} bounds",
        columns=("situation", "violated", "invocations planned", "milliseconds"),
        rows=rows,
        goals=[
            Goal("milliseconds with all bounds violated", found["all bounds violated"], 1000),
            Goal("milliseconds where nothing changed", found["nothing changed"], 50),
        ],
    )


def _many(channels: int) -> Scenario:
    """Groups of ten channels, of which two each are bounded: joins and unions below steps."""
    sources: list[ChannelModel] = []
    widgets: list[Widget] = []
    bounds: list[Bound] = []
    accepts: dict[str, frozenset[BlockType]] = {}
    draw = random.Random(1)
    for number in range(channels // 10):
        a, b = f"a{number}", f"b{number}"
        sources += [channel_model(a, COSTS), channel_model(b, COSTS)]
        widgets += _group(number, a, b)
        for output, task in ((f"out{number}", f"last{number}"), (f"all{number}", f"union{number}")):
            accepts[output] = frozenset({BASE, STRONG, MONOTONE})
            first = (a, f"first{number}", f"second{number}", f"join{number}", f"wide{number}", task)
            limit = timedelta(minutes=draw.randrange(60))
            bounds.append(StalenessBound(channel=output, path=first, limit=limit))
    return Scenario(workflow=workflow_of(sources, widgets), bounds=tuple(bounds), accepts=accepts, feeds=())


def _group(number: int, a: str, b: str) -> list[Widget]:
    def channel(name: str) -> ChannelModel:
        return channel_model(f"{name}{number}", COSTS)

    def step(task: str, read: str, writes: str) -> Widget:
        return stateless(f"{task}{number}", read, channel(writes), COSTS)

    return [
        step("first", a, "c"),
        step("second", f"c{number}", "d"),
        step("third", b, "e"),
        join(f"join{number}", f"d{number}", f"e{number}", channel("f"), COSTS, per_left=1.0, per_right=1.0),
        step("wide", f"f{number}", "g"),
        step("last", f"g{number}", "out"),
        step("other", b, "h"),
        bag_union(f"union{number}", f"g{number}", f"h{number}", channel("all"), COSTS),
    ]


def _state(scenario: Scenario, arrived: Sequence[str]) -> SchedulingState:
    """Everything up to date at point 1; then one more arrival on some sources."""
    workflow = scenario.workflow
    times: dict[str, ArrivalTimes] = {}
    blocks: dict[str, tuple[DataBlock, ...]] = {}
    one, two = ((1, 1),), ((2, 2),)
    for name, paths in workflow.paths.items():
        empty = DataBlock(name, BASE, None, (ORIGIN,) * len(paths), 0.0, (0, 0))
        full = DataBlock(name, BASE, None, (one,) * len(paths), 1e6, (1, 1))
        blocks[name] = (empty, full)
        if name not in workflow.writer:
            times[name] = ArrivalTimes((1,), (START,))
        if name in arrived:
            times[name] = ArrivalTimes((1, 2), (START, START + HOUR))
            blocks[name] += (DataBlock(name, MONOTONE, (one,), (two,), 1e3, (1, 2)),)
    outputs = tuple(
        OutputState(name, accepts, (one,) * len(workflow.paths[name])) for name, accepts in scenario.accepts.items()
    )
    return SchedulingState(now=START + 3 * HOUR, times=times, blocks=blocks, outputs=outputs)
