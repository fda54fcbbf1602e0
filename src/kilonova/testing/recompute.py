"""Recomputation: the expected content of every derived channel, from the sources, without incremental steps.

Incremental equals recomputed means that a channel equals the result of `recompute` as a bag of rows. A task whose
inputs changed without it (an asynchronous lookup: its output's version is not the one that a single run would have) is
*replayed* instead, delta by delta, against the snapshots that its runs recorded as read. So is one that writes to a
channel of several writers, whose deltas, and ingested ones, are then merged in the order of their points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kilonova.catalog import run_records
from kilonova.catalog.planner_input import load_planner_input
from kilonova.catalog.read_models import run_queries
from kilonova.engine.invocation import invoke, validate_output
from kilonova.model.channel import ChannelState
from kilonova.model.encoding import Changes, delta_schema
from kilonova.model.logic import Compilation
from kilonova.model.run import RefreshMethod, RunInput
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Production, Task, Variant
from kilonova.model.version import Version
from kilonova.schedule.due import TaskState
from kilonova.schedule.layout import Strategy
from kilonova.service.project import Project
from kilonova.warehouse.algebra import merge
from kilonova.warehouse.blocks import column
from kilonova.warehouse.jobs import fetch


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Recomputed derived channel: its rows, and whether its task was replayed rather than run once."""

    channel: str
    rows: DataFrame
    replayed: bool


def recompute(project: Project) -> Iterator[Recomputed]:
    """Recompute every derived channel from all input, in the order of the tasks.

    Args:
        project: the project, which is not changed.

    Yields:
        The channels; each is computed before it is yielded.
    """
    with project.catalog.reading() as tx:
        observed = load_planner_input(tx)
        workflow, states, channel_states = observed.workflow, observed.newest, observed.channels
        past = run_queries.runs(tx)[::-1]
        inputs = run_records.inputs(tx, [run.number for run in past])
        outputs = run_records.outputs(tx, [run.number for run in past])
    relations = {
        name: project.warehouse.open(channel_state.snapshot(channel_state.latest_readable))
        for name, channel_state in channel_states.items()
        if channel_state.channel.schema is not None
        and not any(states[each.name].started for each in workflow.writers(name))
    }
    shared = {name for name, channel_state in channel_states.items() if channel_state.channel.several_writers}
    waiting = {name: {writer.name for writer in workflow.writers(name)} for name in shared}
    brought: dict[str, dict[int, DataFrame]] = {name: {} for name in shared}
    for task in workflow.order():
        known = states[task.name]
        made: Mapping[str, DataFrame] = {}
        replayed = not _is_view(task) and (
            not shared.isdisjoint(task.writes) or not _in_one_step(known, channel_states)
        )
        if known.started and not replayed:
            direct = task.from_sources if known.detached else None
            variant = direct or next(item for item in task.variants if not item.logic.derived)
            made = dict(zip(task.writes, from_nothing(project, known, variant, channel_states, relations), strict=True))
        elif known.started:
            read = [(run, item) for run, item in inputs if item.task == task.name]
            made, deltas = _replay(project, known, channel_states, read)
            for each in outputs:
                if each.task == task.name and each.channel in shared and each.run in deltas:
                    brought[each.channel][each.point] = deltas[each.run][each.channel]
        for channel in task.writes:
            if channel in shared:
                waiting[channel].discard(task.name)
                if not waiting[channel]:
                    points = {each.point for each in outputs if each.channel == channel and each.block is not None}
                    relations[channel] = _together(project, channel_states[channel], points, brought[channel])
                    yield Recomputed(channel, relations[channel], True)
            elif channel in made:
                relations[channel] = made[channel].localCheckpoint()
                yield Recomputed(channel, relations[channel], replayed)


def count_differences(left: DataFrame, right: DataFrame) -> int:
    """Return the number of rows in which two bags differ.

    Args:
        left: the rows of one.
        right: the rows of the other, whose columns may be in another order.
    """
    names = left.columns
    plus = left.withColumn("_weight", F.lit(1))
    minus = right.select(*map(column, names)).withColumn("_weight", F.lit(-1))
    total = plus.unionByName(minus).groupBy(*map(column, names)).agg(F.sum("_weight").alias("_weight"))
    counted = fetch(total.agg(F.sum(F.abs(column("_weight")))))
    return int(counted[0][0] or 0)


def from_nothing(
    project: Project,
    known: TaskState,
    variant: Variant,
    channel_states: Mapping[str, ChannelState],
    relations: Mapping[str, DataFrame],
) -> list[DataFrame]:
    """Return a variant's output from whole relations in one step from nothing, per channel written."""
    warehouse = project.warehouse
    frames: dict[str, DataFrame] = {}
    for port in variant.ports:
        channel_state = channel_states[port.channel]
        own = port.channel in known.task.writes
        schema = channel_state.schema_at(channel_state.latest_readable)
        assert schema is not None
        if own or port.mode is Mode.OLD:
            frames[port.name] = warehouse.spark.createDataFrame([], schema.ddl)
            continue
        whole = relations[port.channel]
        match port.mode:
            case Mode.NEW:
                frames[port.name] = warehouse.as_delta(whole, channel_state.channel.encoding, schema)
            case Mode.CHANGES:
                frames[port.name] = warehouse.as_delta(whole, Changes(), schema)
            case _:
                frames[port.name] = whole
    return [
        _relation(project, frame, channel_states[channel], production)
        for channel, production, frame in zip(
            known.task.writes,
            variant.productions,
            _call(project, known.task, variant, channel_states, frames),
            strict=True,
        )
    ]


def _call(
    project: Project,
    task: Task,
    variant: Variant,
    channel_states: Mapping[str, ChannelState],
    frames: Mapping[str, DataFrame],
) -> tuple[DataFrame, ...]:
    """Return what a variant makes of its inputs, per channel written."""
    compilation = Compilation(writes=task.writes, reads=(), states=channel_states, method=RefreshMethod.FULL)
    compiled = variant.logic.compile(compilation)
    assert compiled is not None
    return invoke(project.warehouse, task, compiled.executable, frames)


def _relation(project: Project, frame: DataFrame, channel_state: ChannelState, production: Production) -> DataFrame:
    schema = validate_output(project.warehouse.schema_of(frame), channel_state.channel, production, None)
    if production is Production.BASE:
        return frame.select(*map(column, schema.names))
    return project.warehouse.relation(frame, channel_state.channel.encoding, schema)


def _is_view(task: Task) -> bool:
    """Return whether the output depends on the present inputs only, not on the history of runs."""
    return any(variant.logic.derived for variant in task.variants)


def _in_one_step(known: TaskState, channel_states: Mapping[str, ChannelState]) -> bool:
    """Return whether the outputs reflect exactly what one run over the present inputs would reflect."""
    whole = Version()
    for name in known.task.reads:
        channel_state = channel_states[name]
        whole = whole.joined(channel_state.version(known.cursor(name)).through(known.task.name, known.logic))
    outputs = [channel_states[name] for name in known.task.writes]
    return all(output.version(output.latest_readable) == whole for output in outputs)


def _replay(
    project: Project, known: TaskState, channel_states: Mapping[str, ChannelState], read: list[tuple[int, RunInput]]
) -> tuple[dict[str, DataFrame], dict[int, dict[str, DataFrame]]]:
    """Replay a task delta by delta, as its runs recorded.

    Returns:
        The channels that only this task writes; and its output for channels of several writers, by run and channel.
    """
    warehouse, task = project.warehouse, known.task
    variant = next((item for item in task.variants if item.incremental), task.variants[0])
    states: dict[str, DataFrame] = {}
    deltas: dict[int, dict[str, DataFrame]] = {}
    for number in sorted({run for run, _ in read}):
        items = {item.port: item for run, item in read if run == number}
        fresh = all(items[port.name].start == 0 for port in variant.ports if port.mode.advances)
        frames: dict[str, DataFrame] = {}
        for port in variant.ports:
            channel_state, item = channel_states[port.channel], items[port.name]
            if port.channel in task.writes:
                empty = warehouse.spark.createDataFrame([], _schema(channel_state).ddl)
                kept = None if fresh else states.get(port.channel)
                frames[port.name] = empty if kept is None else kept
                continue
            match port.mode:
                case Mode.NEW:
                    reading = channel_state.delta(item.start, item.end)
                case Mode.CHANGES | Mode.INSERTS:
                    reading = channel_state.changes(item.start, item.end)
                case Mode.OLD:
                    reading = channel_state.snapshot(item.start)
                case Mode.ALL:
                    reading = channel_state.snapshot(item.end)
            frames[port.name] = warehouse.open(reading)
        made = _call(project, task, variant, channel_states, frames)
        deltas[number] = {}
        for channel, production, frame in zip(task.writes, variant.productions, made, strict=True):
            channel_state = channel_states[channel]
            if channel_state.channel.several_writers:
                deltas[number][channel] = frame
            elif channel not in states or fresh or production is Production.BASE:
                states[channel] = _relation(project, frame, channel_state, production)
            else:
                states[channel] = _merged(project, states[channel], frame, channel_state)
    return states, deltas


def _together(
    project: Project, channel_state: ChannelState, points: Iterable[int], brought: Mapping[int, DataFrame]
) -> DataFrame:
    """Merge the deltas of a channel's writers in the order of their points; points not in `brought` were ingested."""
    state = project.warehouse.spark.createDataFrame([], _schema(channel_state).ddl)
    for point in sorted(points):
        delta = brought.get(point)
        if delta is None:
            delta = project.warehouse.open(channel_state.delta(point - 1, point))
        state = _merged(project, state, delta, channel_state).localCheckpoint()
    return state


def _merged(project: Project, state: DataFrame, frame: DataFrame, channel_state: ChannelState) -> DataFrame:
    encoding, schema = channel_state.channel.encoding, _schema(channel_state)
    delta = project.warehouse.completed(frame, encoding, schema).select(*delta_schema(encoding, schema).names)
    return merge(state, delta, encoding, schema, Strategy.SHUFFLED, project.warehouse.functions)


def _schema(channel_state: ChannelState) -> Schema:
    schema = channel_state.schema_at(channel_state.latest_readable)
    assert schema is not None
    return schema
