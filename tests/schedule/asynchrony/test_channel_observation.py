"""Channels of points as a plan sees them, and plans as runs on such channels."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kilonova.model.block import Block, Delta, Kind, Statistics
from kilonova.model.bound import InconsistencyBound, StalenessBound
from kilonova.model.channel import Channel, ChannelState, Point, PointState
from kilonova.model.encoding import Append
from kilonova.model.schema import Schema
from kilonova.model.version import Version
from kilonova.schedule.asynchrony.asynchronous_scheduler import AsynchronousScheduler
from kilonova.schedule.asynchrony.channel_observation import observed_blocks
from kilonova.schedule.asynchrony.data_block import BASE, MONOTONE, STRONG, DataBlock
from kilonova.schedule.asynchrony.planned_runs import PlannedRead, PlannedRun, WrittenPoint, planned_runs
from kilonova.schedule.asynchrony.provenance import ArrivalTimes, provenance_of
from kilonova.schedule.asynchrony.scheduling_state import OutputState, SchedulingState
from kilonova.schedule.asynchrony.widgets import UnitCosts, channel_model, join, stateless, workflow_of

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SCHEMA = Schema.of(("id", "bigint"))
COSTS = UnitCosts(fixed=1.0, read=1.0, probe=0.01, write=1.0)
WORKFLOW = workflow_of(
    [channel_model("pages", COSTS), channel_model("clicks", COSTS)],
    [
        stateless("score", "clicks", channel_model("scores", COSTS), COSTS),
        join("label", "pages", "scores", channel_model("labelled", COSTS), COSTS, per_left=1.0, per_right=1.0),
    ],
)


def block(number: int, kind: Kind, rows: int) -> Block:
    statistics = Statistics(rows=rows, bytes=rows, files=1)
    return Block(
        number=number, kind=kind, schema=SCHEMA, encoding=Append(), columns=SCHEMA, buckets=0, statistics=statistics
    )


def filled(number: int, version: Version, hour: float) -> Point:
    return Point(number=number, state=PointState.FILLED, version=version, time=NOON + hour * HOUR, run=number)


def channel(name: str, *points: tuple[Version, float, int]) -> ChannelState:
    """Return an append-only channel: of each point its version, its hour, and how many rows it added."""
    return ChannelState(
        Channel(name=name, schema=SCHEMA, encoding=Append()),
        tuple(filled(number, version, hour) for number, (version, hour, _) in enumerate(points, 1)),
        tuple(block(number, Delta(number - 1, number), rows) for number, (_, _, rows) in enumerate(points, 1)),
    )


def source(name: str, *points: tuple[float, int]) -> ChannelState:
    return channel(name, *((Version.source(name, number), *each) for number, each in enumerate(points, 1)))


def test_points_that_matter_are_where_readers_stand_and_the_newest() -> None:
    pages = source("pages", (0, 5), (1, 3), (2, 2), (3, 4))
    found = observed_blocks(pages, WORKFLOW.paths["pages"], cursors=[2])
    at = {number: (((number, number),),) for number in (2, 4)}
    assert found == (
        DataBlock("pages", BASE, None, at[2], 8.0, (2, 2)),
        DataBlock("pages", BASE, None, at[4], 14.0, (4, 4)),
        DataBlock("pages", MONOTONE, at[2], at[4], 6.0, (2, 4)),
    )


def test_without_readers_all_is_new() -> None:
    found = observed_blocks(source("pages", (0, 5), (1, 3)), WORKFLOW.paths["pages"], cursors=[])
    assert [(each.kind, each.points, each.rows) for each in found] == [
        (BASE, (0, 0), 0.0),
        (BASE, (2, 2), 8.0),
        (MONOTONE, (0, 2), 8.0),
    ]


def arrivals(channel: ChannelState) -> ArrivalTimes:
    times = ((point.number, point.time) for point in channel.points if point.time is not None)
    numbers, moments = zip(*times, strict=True)
    return ArrivalTimes(numbers, moments)


def state(pages: ChannelState, clicks: ChannelState, scores: ChannelState, labelled: ChannelState) -> SchedulingState:
    paths = WORKFLOW.paths
    cursors = {"pages": [1], "clicks": [1], "scores": [1], "labelled": []}
    channels = {each.channel.name: each for each in (pages, clicks, scores, labelled)}
    blocks = {name: observed_blocks(each, paths[name], cursors[name]) for name, each in channels.items()}
    head = provenance_of(labelled.version(labelled.latest), paths["labelled"])
    return SchedulingState(
        now=NOON + 9 * HOUR,
        times={each.channel.name: arrivals(each) for each in (pages, clicks)},
        blocks=blocks,
        outputs=(OutputState("labelled", frozenset({BASE, STRONG, MONOTONE}), head),),
    )


def present() -> SchedulingState:
    """Return a state with new pages and new clicks."""
    scored = Version.source("clicks", 1).through("score", 0)
    labelled = Version.source("pages", 1).joined(scored).through("label", 0)
    return state(
        source("pages", (0, 50), (4, 5)),
        source("clicks", (1, 90), (3, 9)),
        channel("scores", (scored, 1.5, 90)),
        channel("labelled", (labelled, 2, 50)),
    )


FRESH = StalenessBound(channel="labelled", path=("pages", "label"), limit=timedelta())


def test_an_asynchronous_run_reads_the_snapshot_that_is_there() -> None:
    found = present()
    plan = AsynchronousScheduler(WORKFLOW, (FRESH,)).plan(found)
    (run,) = planned_runs(plan, found)
    assert run == PlannedRun(
        task="label",
        variant="asynchronous left",
        reads=(PlannedRead("pages", change=(1, 2)), PlannedRead("scores", snapshot=1)),
        writes="labelled",
        whole=False,
        cost=plan.cost,
    )


def test_a_consistent_run_reads_what_an_earlier_one_writes() -> None:
    found = present()
    bounds = (FRESH, InconsistencyBound(channel="labelled", limit=timedelta()))
    runs = planned_runs(AsynchronousScheduler(WORKFLOW, bounds).plan(found), found)
    assert [(run.task, run.variant) for run in runs] == [("score", "incremental"), ("label", "incremental")]
    assert runs[0].reads == (PlannedRead("clicks", change=(1, 2)),)
    assert runs[1].reads == (
        PlannedRead("pages", snapshot=1, change=(1, 2)),
        PlannedRead("scores", snapshot=1, change=(1, WrittenPoint(0))),
    )
