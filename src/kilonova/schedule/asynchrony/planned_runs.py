"""A plan as runs of tasks on channels of points: how far each port is read.

A channel of Kilonova is a chain of points, of which any snapshot and any change between two can be read. Conversions
and chains are ways to read, so that only the invocations of tasks remain, each with a point or two for every port: a
snapshot at a point, or the change from one to another. A point is stored already, or is written by an earlier run of
the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from kilonova.schedule.asynchrony.data_block import BASE, DataBlock
from kilonova.schedule.asynchrony.execution_plan import ChainStep, ConversionStep, ExecutionPlan, Invocation, TaskStep
from kilonova.schedule.asynchrony.provenance import Provenance
from kilonova.schedule.asynchrony.scheduling_state import SchedulingState


@dataclass(frozen=True, slots=True)
class WrittenPoint:
    """The point that a run of the plan writes, by the place of the run."""

    run: int


PlannedPoint = int | WrittenPoint


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """What a port reads.

    Attributes:
        channel: its channel.
        snapshot: the point whose snapshot it reads; None if it reads no snapshot.
        change: the points from and to which it reads the change; None if it reads no change.
    """

    channel: str
    snapshot: PlannedPoint | None = None
    change: tuple[PlannedPoint, PlannedPoint] | None = None


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of one variant.

    Attributes:
        task: the task.
        variant: the variant.
        reads: what it reads by each port that it reads.
        writes: the channel that it writes.
        whole: whether it writes a whole base, or a delta.
        cost: the estimated cost, with those of the conversions that only it needs left out.
    """

    task: str
    variant: str
    reads: tuple[PlannedRead, ...]
    writes: str
    whole: bool
    cost: float


def planned_runs(plan: ExecutionPlan, state: SchedulingState) -> tuple[PlannedRun, ...]:
    """Return the runs of a plan, in an order in which they can run.

    Args:
        plan: the plan.
        state: the state that it was made for, whose blocks have points.
    """
    points = _stored_points(state)
    runs: list[PlannedRun] = []
    for each in plan.invocations:
        written = (each.writes.channel, each.writes.target)
        match each.step:
            case TaskStep(task, variant):
                reads = tuple(_read(port, points) for port in each.reads if port)
                points[written] = WrittenPoint(len(runs))
                whole = each.writes.kind == BASE
                runs.append(PlannedRun(task, variant, reads, each.writes.channel, whole, each.cost))
            case ConversionStep() | ChainStep():
                points.setdefault(written, _end_of(each, points))
    return tuple(runs)


def _stored_points(state: SchedulingState) -> dict[tuple[str, Provenance], PlannedPoint]:
    """Return the point at which each stored provenance stands."""
    points: dict[tuple[str, Provenance], PlannedPoint] = {}
    for channel, blocks in state.blocks.items():
        for block in blocks:
            assert block.points is not None, "a stored block leads from point to point"
            points[channel, block.target] = block.points[1]
            if block.start is not None:
                points.setdefault((channel, block.start), block.points[0])
    return points


def _end_of(invocation: Invocation, points: dict[tuple[str, Provenance], PlannedPoint]) -> PlannedPoint:
    """Return the point of what a conversion or chain gives: that to which the last block that it reads leads."""
    last = invocation.reads[0][-1]
    return points[last.channel, last.target]


def _read(port: tuple[DataBlock, ...], points: dict[tuple[str, Provenance], PlannedPoint]) -> PlannedRead:
    """Return what a port reads, by points."""
    snapshot: PlannedPoint | None = None
    change: tuple[PlannedPoint, PlannedPoint] | None = None
    for block in port:
        end = points[block.channel, block.target]
        if block.start is None:
            snapshot = end
        else:
            change = (points[block.channel, block.start], end)
    return PlannedRead(port[0].channel, snapshot, change)
