"""Random small workflows with random pasts, whose blocks have rows."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from kilonova.model.bound import Bound, InconsistencyBound, StalenessBound
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.baselines import RandomChoice, SingleStepScheduler
from kilonova.schedule.asynchrony.channel_limits import LimitCheck
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, BlockType, DataBlock
from kilonova.schedule.asynchrony.execution_plan import ExecutionPlan
from kilonova.schedule.asynchrony.provenance import ORIGIN, ArrivalTimes
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState
from kilonova.schedule.asynchrony.state_changes import with_blocks
from kilonova.schedule.asynchrony.widgets import (
    UnitCosts,
    Widget,
    bag_union,
    channel_model,
    distributive_aggregation,
    join,
    stateless,
    workflow_of,
)
from kilonova.schedule.asynchrony.workflow_model import WorkflowModel
from tests.schedule.asynchrony.relations import Bag, Count, Database, Each, Join, Meaning, Row, Union

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass
class Shape:
    """A workflow with what its tasks mean; its output is the channel `out`."""

    workflow: WorkflowModel
    meanings: dict[str, Meaning]
    recompute: Callable[[dict[str, Bag]], Bag]


def odd(row: Row) -> list[Row]:
    return [row] if row[0] % 2 else []


def even(row: Row) -> list[Row]:
    return [] if row[0] % 2 else [row]


def renamed(row: Row) -> list[Row]:
    return [(row[0] + 1, *row[1:])]


def same_key(left: Row, right: Row) -> Row | None:
    return (left[0], left[1], right[1]) if left[0] == right[0] else None


def key(row: Row) -> int:
    return int(row[0])


def shapes(draw: random.Random) -> Shape:
    """Return a random workflow: two tasks in a row, a split and a union, a join, or a count before a step."""

    def costs() -> UnitCosts:
        return UnitCosts(float(draw.randint(1, 20)), 0.0, 0.0, 0.0)

    def step(name: str, read: str, writes: str) -> Widget:
        return stateless(name, read, channel_model(writes, costs()), costs())

    def varied(widget: Widget) -> Widget:
        """Return a widget whose variants differ in cost."""
        return replace(
            widget,
            tasks=tuple(
                replace(
                    task,
                    variants=tuple(
                        replace(variant, cost=replace(variant.cost, fixed=float(draw.randint(1, 20))))
                        for variant in task.variants
                    ),
                )
                for task in widget.tasks
            ),
        )

    each, two = Each(renamed), Each(odd)
    match draw.randrange(4):
        case 0:
            widgets = [step("first", "a", "m"), step("last", "m", "out")]
            return Shape(
                workflow_of([channel_model("a", costs())], [varied(widget) for widget in widgets]),
                {"first": each, "last": two},
                lambda rows: two(each(rows["a"])),
            )
        case 1:
            one, other = Each(odd), Each(even)
            widgets = [
                step("odd", "a", "m"),
                step("even", "a", "n"),
                bag_union("merge", "m", "n", channel_model("out", costs()), costs()),
            ]
            return Shape(
                workflow_of([channel_model("a", costs())], [varied(widget) for widget in widgets]),
                {"odd": one, "even": other, "merge": Union()},
                lambda rows: rows["a"],
            )
        case 2:
            met = Join(same_key)
            widgets = [
                step("first", "a", "m"),
                join("meet", "m", "b", channel_model("out", costs()), costs(), per_left=1.0, per_right=1.0),
            ]
            return Shape(
                workflow_of(
                    [channel_model("a", costs()), channel_model("b", costs())], [varied(widget) for widget in widgets]
                ),
                {"first": each, "meet": met},
                lambda rows: met(each(rows["a"]), rows["b"]),
            )
        case _:
            count = Count(key)
            widgets = [
                distributive_aggregation("count", "a", "m", costs(), groups=1.0, touched=1.0),
                step("last", "m", "out"),
            ]
            return Shape(
                workflow_of([channel_model("a", costs())], [varied(widget) for widget in widgets]),
                {"count": count, "last": each},
                lambda rows: each({(k, n): 1 for (k,), n in count.increments(rows["a"]).items()}),
            )


@dataclass
class World:
    """A workflow whose blocks have rows, from its first arrival on."""

    shape: Shape
    draw: random.Random
    bounds: tuple[Bound, ...]
    accepts: frozenset[BlockType]
    database: Database = field(init=False)
    state: SchedulingState = field(init=False)
    snapshots: dict[tuple[str, int], Bag] = field(default_factory=dict)
    _fresh: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        paths = self.shape.workflow.paths
        self.database = Database(self.shape.meanings)
        blocks = {}
        for name, each in paths.items():
            empty = DataBlock(name, BASE, None, (ORIGIN,) * len(each), 0.0)
            self.database.put(empty, {})
            blocks[name] = (empty,)
        sources = [name for name in paths if name not in self.shape.workflow.writer]
        self.snapshots = {(name, 0): {} for name in sources}
        self.state = SchedulingState(
            now=START,
            times={name: ArrivalTimes() for name in sources},
            blocks=blocks,
            outputs=(OutputState("out", self.accepts, (ORIGIN,) * len(paths["out"])),),
        )

    def arrive(self, source: str) -> None:
        """Let rows arrive on a source: added ones, or removed ones too."""
        known = self.state.times[source]
        number = len(known.points)
        before = self.snapshots[source, number]
        rows: Bag = {(self.draw.randrange(4), next(self._fresh)): 1 for _ in range(self.draw.randint(1, 3))}
        kind = MONOTONE
        if before and self.draw.random() < 0.5:
            kind = STRONG
            rows[self.draw.choice(sorted(before))] = -1
        after = dict(before)
        for row, weight in rows.items():
            after[row] = after.get(row, 0) + weight
        self.snapshots[source, number + 1] = {row: weight for row, weight in after.items() if weight}
        time = self.state.now + HOUR
        block = DataBlock(source, kind, (((number, number),),), (((number + 1, number + 1),),), float(len(rows)))
        self.database.put(block, rows)
        times = ArrivalTimes((*known.points, number + 1), (*known.times, time))
        self.state = replace(
            self.state,
            now=time + timedelta.resolution,
            times={**self.state.times, source: times},
            blocks={**self.state.blocks, source: (*self.state.blocks[source], block)},
        )

    def execute(self, plan: ExecutionPlan) -> None:
        for invocation in plan.invocations:
            self.database.execute(invocation)
        self.state = with_blocks(self.state, (each.writes for each in plan.invocations), self.declared)

    @property
    def scheduler(self) -> AsynchronousScheduler:
        return AsynchronousScheduler(self.shape.workflow, self.bounds)

    @property
    def declared(self) -> LimitCheck:
        workflow = self.shape.workflow
        return LimitCheck(workflow.paths, self.state.times, self.state.now, self.scheduler.declared)


def bounds_of(workflow: WorkflowModel, draw: random.Random, consistent: bool = False) -> tuple[Bound, ...]:
    """Return random bounds on the output: freshness of one path, and a limit of inconsistency or none."""
    path = draw.choice(workflow.paths["out"])
    bounds: list[Bound] = [StalenessBound(channel="out", path=path, limit=timedelta())]
    if consistent or draw.random() < 0.5:
        limit = timedelta() if consistent else draw.choice([0, 2, 5]) * HOUR
        bounds.append(InconsistencyBound(channel="out", limit=limit))
    return tuple(bounds)


def world_of(seed: int, *, consistent: bool = False, steps: int = 6) -> World:
    """Return a world with a random past: arrivals, and blocks that nobody asked for."""
    draw = random.Random(seed)
    shape = shapes(draw)
    accepts = draw.choice([frozenset({BASE}), frozenset({BASE, STRONG, MONOTONE})])
    world = World(shape, draw, bounds_of(shape.workflow, draw, consistent), accepts)
    sources = list(world.state.times)
    wasteful = SingleStepScheduler(world.scheduler, RandomChoice(seed))
    for _ in range(draw.randint(1, steps)):
        if draw.random() < 0.5:
            world.arrive(draw.choice(sources))
        elif any(times.points for times in world.state.times.values()):
            world.execute(draw.choice([world.scheduler, wasteful]).plan(world.state))
    for source in sources:
        if not world.state.times[source].points:
            world.arrive(source)
    world.arrive(world.bounds[0].path[0])  # type: ignore[union-attr]
    return world
