"""Simulation of declared workflows: what keeping their bounds costs, before anything is registered or run."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from kilonova.errors import CatalogError, DeclarationError, NotFound
from kilonova.model.bound import Bound, InconsistencyBound, StalenessBound, place_of
from kilonova.model.channel import Channel
from kilonova.model.workflow import WorkflowDefinition
from kilonova.model.workflow_path import describe_path, path_of
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG
from kilonova.schedule.asynchrony.declared_workflow import ROW_BYTES, LearnedTask, model_bounds, model_of
from kilonova.schedule.asynchrony.execution_plan import TaskStep
from kilonova.schedule.asynchrony.feasibility import TIMED_RUNS, ExpectedArrival, InfeasibleBound, infeasible_bounds
from kilonova.schedule.asynchrony.scenario import Feed, Scenario
from kilonova.schedule.asynchrony.simulation import simulate
from kilonova.schedule.asynchrony.simulation_result import SimulationResult
from kilonova.service.bound_plan import complete_bound

if TYPE_CHECKING:
    from kilonova.declare.workflow import Workflow
    from kilonova.service.queries import ProjectReader

START = datetime(2026, 1, 5, tzinfo=UTC)
"""Beginning of every simulation: a Monday."""

_HISTORY = 50
"""Number of past ingests of a channel from which its arrivals are taken."""

_FEED = re.compile(r"(?P<channel>\w+)\s*[:=]?\s*(?P<rows>[\d_,]+)(\s*rows?)?\s+every\s+(?P<every>.+)")
_BOUND = re.compile(r"(?P<channel>\w+)\s+(staleness\s+(?P<path>.+?)|inconsistency)\s+(?P<limit>0|\d+(\.\d+)?\s*[a-z]+)")


@dataclass(frozen=True, slots=True)
class SimulatedBound:
    """A bound with what became of it.

    Attributes:
        bound: the bound.
        violations: how often it was violated.
        median_lag: the median time from a violation to its repair; 0 if there was none.
        worst: the largest staleness or inconsistency.
        amounts: the largest amount in each of equal parts of the simulation, as a share of the limit, or of the largest
            amount where the limit is 0.
    """

    bound: Bound
    violations: int
    median_lag: timedelta
    worst: timedelta
    amounts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class WorkflowSimulation:
    """Result of the simulation of a workflow.

    Attributes:
        duration: the simulated time.
        feeds: the assumed arrivals.
        learned: the tasks whose costs are those of their own runs; those of the others are assumed.
        bounds: its bounds.
        invocations: how often each variant of each task ran, and its average cost in hours.
        infeasible: bounds that cannot be kept, because the cheapest plan takes longer or there is none.
        result: the runs and samples.
    """

    duration: timedelta
    feeds: tuple[Feed, ...]
    learned: tuple[str, ...]
    bounds: tuple[SimulatedBound, ...]
    invocations: Mapping[TaskStep, tuple[int, float]]
    infeasible: tuple[InfeasibleBound, ...]
    result: SimulationResult


def simulate_workflows(
    workflows: Sequence[Workflow],
    duration: timedelta,
    *,
    arrivals: Iterable[str] = (),
    bounds: Iterable[str] = (),
    ratios: Iterable[str] = (),
    seed: int = 1,
    parts: int = 40,
    workers: int = 1,
    history: ProjectReader | None = None,
) -> WorkflowSimulation:
    """Simulate declared workflows, on one computer.

    Args:
        workflows: the workflows.
        duration: how long they are simulated.
        arrivals: what arrives on source channels, such as "pages 1000 rows every 30 minutes".
        bounds: bounds beside or instead of declared ones, such as "labelled staleness pages 10 minutes".
        ratios: rows of a channel per row of its task's inputs, such as "scores=0.01".
        seed: the seed of the random factors.
        parts: the number of parts of the simulation for which amounts are returned.
        workers: the number of tasks that run at a time, if they do not read each other's output.
        history: a project whose past ingests are taken for channels without given arrivals, whose runs tell what tasks
            cost, and whose channels are there at the beginning; None for none.

    Raises:
        DeclarationError: a text cannot be parsed, it is not known what arrives on a source channel, there is no bound,
            or one names a channel or a path that does not exist.
    """
    whole = _combined(workflows)
    known = _replaced(whole.bounds, [complete_bound(_parse_bound(text), whole) for text in bounds], whole)
    if not known:
        raise DeclarationError("the workflow has no bounds", hint='Declare one, or give: --set "CHANNEL staleness …"')
    feeds = _feeds(whole, [_parse_feed(text) for text in arrivals], history)
    past = _Past.of(whole, history)
    model = model_of(whole, dict(map(_parse_ratio, ratios)), learned=past.tasks)
    everything = frozenset({BASE, STRONG, MONOTONE})
    scenario = Scenario(
        workflow=model,
        bounds=model_bounds(known, whole, model),
        accepts={bound.channel: everything for bound in known},
        feeds=tuple(replace(feed, rows=feed.rows * past.row_sizes.get(feed.channel, 1.0)) for feed in feeds),
        stored=past.stored,
    )
    scheduler = AsynchronousScheduler(model, scenario.bounds)
    result = simulate(scenario, scheduler, start=START, duration=duration, seed=seed, computers=1, workers=workers)
    expected = {feed.channel: ExpectedArrival(feed.kind, feed.rows) for feed in scenario.feeds}
    return WorkflowSimulation(
        duration,
        feeds,
        tuple(past.tasks),
        tuple(_summary(bound, result, duration, parts) for bound in scenario.bounds),
        _invocations(result),
        infeasible_bounds(scheduler, result.final, expected, timedelta(hours=1)),
        result,
    )


@dataclass(frozen=True, slots=True)
class _Past:
    """Past of a declared workflow, as far as a project knows it.

    Attributes:
        tasks: the costs and sizes of tasks that have run often enough.
        stored: the sizes of its channels, in rows of the model; none unless all of its tasks have run.
        row_sizes: the size of a row of each channel, in rows of the model.
    """

    tasks: Mapping[str, LearnedTask] = field(default_factory=dict)
    stored: Mapping[str, float] = field(default_factory=dict)
    row_sizes: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, whole: WorkflowDefinition, history: ProjectReader | None) -> _Past:
        try:
            known = None if history is None else history.planner_input()
        except CatalogError:  # there is no project
            known = None
        if known is None:
            return cls()
        from kilonova.schedule.bound_planning.task_models import learned_task  # numpy takes a while

        states = {task.name: known.newest.get(task.name) for task in whole.tasks}
        tasks = {
            name: learned_task(state, known.channels)
            for name, state in states.items()
            if state is not None and len(state.samples) >= TIMED_RUNS
        }
        channels = {each.name: known.channels[each.name] for each in whole.channels if each.name in known.channels}
        complete = len(channels) == len(whole.channels) and all(each and each.started for each in states.values())
        blocks = {name: each.snapshot(each.latest_readable).blocks for name, each in channels.items()}
        rows = {name: sum(block.statistics.rows for block in each) for name, each in blocks.items()}
        return cls(
            tasks,
            {name: each.size / ROW_BYTES for name, each in channels.items()} if complete else {},
            {name: each.size / rows[name] / ROW_BYTES for name, each in channels.items() if rows[name]},
        )


def _combined(workflows: Sequence[Workflow]) -> WorkflowDefinition:
    """Return several workflows as one."""
    channels: dict[str, Channel] = {}
    found: list[WorkflowDefinition] = []
    for workflow in workflows:
        declared = workflow.declared(tuple(channels.values())).workflow
        channels |= {channel.name: channel for channel in declared.channels}
        found.append(declared)
    return WorkflowDefinition(
        name=" ".join(each.name for each in found),
        channels=tuple(channels.values()),
        tasks=tuple(task for each in found for task in each.tasks),
        bounds=tuple(bound for each in found for bound in each.bounds),
    )


def _replaced(declared: Iterable[Bound], given: Sequence[Bound], whole: WorkflowDefinition) -> tuple[Bound, ...]:
    """Return bounds with complete paths, of which given ones replace declared ones."""
    complete = (complete_bound(each, whole) for each in declared)
    return tuple({place_of(bound): bound for bound in (*complete, *given)}.values())


def _feeds(whole: WorkflowDefinition, given: Sequence[Feed], history: ProjectReader | None) -> tuple[Feed, ...]:
    """Return the arrivals on all source channels that tasks read."""
    read = {name for task in whole.tasks for name in task.reads}
    sources = [channel.name for channel in whole.sources if channel.name in read]
    for feed in given:
        if feed.channel not in sources:
            raise DeclarationError(
                "it is no source channel", channel=feed.channel, hint=f"There are: {', '.join(sources)}"
            )
    known = {feed.channel: feed for feed in given}
    found = [known.get(name) or _past_feed(name, history) for name in sources]
    return tuple(found)


def _past_feed(channel: str, history: ProjectReader | None) -> Feed:
    """Return arrivals like the past ingests of a channel.

    Raises:
        DeclarationError: there are fewer than two of them.
    """
    try:
        records = () if history is None else history.channel_history(channel, limit=_HISTORY).points
    except (NotFound, CatalogError):  # there is no such channel yet, or no project
        records = ()
    points = [(each.time, each.blocks[0].rows) for each in records if each.time is not None and each.blocks]
    if len(points) < 2:
        hint = f'Give it: --arrive "{channel} 1000 rows every 1 hour"'
        raise DeclarationError("it is not known what arrives", channel=channel, hint=hint)
    every = timedelta(
        seconds=max(1, round(_median([later - earlier for (later, _), (earlier, _) in pairwise(points)])))
    )
    return Feed(channel, MONOTONE, statistics.mean(float(rows or 0) for _, rows in points), every)


def _parse_feed(text: str) -> Feed:
    """Parse what arrives on a channel.

    >>> _parse_feed("pages 1,000 rows every 30 minutes").every
    datetime.timedelta(seconds=1800)
    """
    from kilonova.declare.schedules import seconds_of

    found = _FEED.fullmatch(text.strip())
    if found is None:
        raise DeclarationError(f"{text!r} is no arrival", hint='Write "pages 1000 rows every 30 minutes"')
    rows = float(found["rows"].replace(",", "").replace("_", ""))
    return Feed(found["channel"], MONOTONE, rows, timedelta(seconds=seconds_of(found["every"])))


def _parse_bound(text: str) -> Bound:
    """Parse a bound.

    >>> _parse_bound("labelled staleness clicks/scores 1 day").path, _parse_bound("labelled inconsistency 0").limit
    (('clicks', 'scores'), datetime.timedelta(0))
    """
    from kilonova.declare.limits import limit_of

    found = _BOUND.fullmatch(text.strip())
    if found is None:
        raise DeclarationError(
            f"{text!r} is no bound",
            hint='Write "labelled staleness pages 10 minutes" or "labelled inconsistency 1 week"',
        )
    limit = limit_of(found["limit"])
    if found["path"] is None:
        return InconsistencyBound(channel=found["channel"], limit=limit)
    return StalenessBound(channel=found["channel"], path=path_of(found["path"]), limit=limit)


def _parse_ratio(text: str) -> tuple[str, float]:
    """Parse the ratio of a channel.

    >>> _parse_ratio("scores=0.01")
    ('scores', 0.01)
    """
    channel, _, ratio = text.partition("=")
    try:
        return channel.strip(), float(ratio)
    except ValueError:
        raise DeclarationError(f"{text!r} is no ratio", hint='Write "scores=0.01"') from None


def _summary(bound: Bound, result: SimulationResult, duration: timedelta, parts: int) -> SimulatedBound:
    """Return what became of a bound."""
    lags = [(lag.until, lag.until - lag.since) for lag in result.lags if lag.bound == bound]
    states = [(sample.time, state) for sample in result.samples for state in sample.states if state.bound == bound]
    series = [(time, state.amount) for time, state in states] + [(until, bound.limit + lag) for until, lag in lags]
    worst = max((amount for _, amount in series), default=timedelta())
    scale = bound.limit or worst or timedelta(seconds=1)
    amounts = [0.0] * parts
    for time, amount in series:
        place = min(parts - 1, int((time - START) / duration * parts))
        amounts[place] = max(amounts[place], amount / scale)
    violations = len(lags) or sum(state.violated for _, state in states)
    median = timedelta(seconds=_median([lag for _, lag in lags]))
    return SimulatedBound(bound, violations, median, worst, tuple(amounts))


def _median(times: Sequence[timedelta]) -> float:
    """Return the median of some times in seconds; 0 if there are none."""
    return statistics.median(time.total_seconds() for time in times) if times else 0.0


def _invocations(result: SimulationResult) -> dict[TaskStep, tuple[int, float]]:
    """Return how often each variant ran and its average planned cost, the most expensive in all first."""
    costs: dict[TaskStep, list[float]] = {}
    for run in result.runs:
        for each in run.plan.invocations:
            if isinstance(each.step, TaskStep):
                costs.setdefault(each.step, []).append(each.cost)
    ordered = sorted(costs.items(), key=lambda item: -sum(item[1]))
    return {step: (len(each), statistics.mean(each)) for step, each in ordered}


def describe_place(bound: Bound) -> str:
    """Return what a bound limits, as text."""
    return f"staleness along {describe_path(bound.path)}" if isinstance(bound, StalenessBound) else "inconsistency"
