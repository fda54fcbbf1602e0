"""Recomputation: what every derived channel should hold, made from the sources with no incremental step.

Incremental equals recomputed means that a channel equals `recomputed` as a bag of rows. A task whose inputs
moved on under it (an asynchronous lookup: its output's version is not the one that a single run would have) is
*replayed* instead, delta by delta, against the snapshots that its runs recorded as read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kilonova.catalog import history, runs
from kilonova.catalog.observation import observe
from kilonova.engine.invoke import checked, invoke
from kilonova.model.channel import Chronicle
from kilonova.model.encoding import Changes, delta_schema
from kilonova.model.run import Input
from kilonova.model.schema import Schema
from kilonova.model.task import Mode, Production, Query, Task, Variant
from kilonova.model.version import Version
from kilonova.schedule.layout import Strategy
from kilonova.schedule.planning import Progress
from kilonova.service.project import Project
from kilonova.warehouse.algebra import merge
from kilonova.warehouse.blocks import column
from kilonova.warehouse.jobs import fetch


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A derived channel made again: its rows, and whether its task was replayed rather than run once."""

    channel: str
    rows: DataFrame
    replayed: bool


def recomputed(project: Project) -> Iterator[Recomputed]:
    """Make every derived channel again from all the input, in the order of the tasks.

    Args:
        project: the project; nothing in it is changed.

    Yields:
        The channels; each is computed before it is given out.
    """
    with project.catalog.reading() as tx:
        workflow, progress, chronicles = observe(tx)
        past = history.runs(tx)[::-1]
        inputs = runs.inputs(tx, [run.number for run in past])
    relations = {
        name: project.warehouse.open(chronicle.snapshot(chronicle.readable))
        for name, chronicle in chronicles.items()
        if workflow.writer(name) is None and chronicle.channel.schema is not None
    }
    for task in workflow.order():
        known = progress[task.name]
        if not known.started:
            continue
        if _is_view(task) or _in_one_step(known, chronicles):
            variant = next(item for item in task.variants if not isinstance(item.logic, Query))
            made = from_nothing(project, known, variant, chronicles, relations)
            replayed = False
        else:
            read = [(run, item) for run, item in inputs if item.task == task.name]
            made = _replay(project, known, chronicles, read)
            replayed = True
        for channel, frame in zip(task.writes, made, strict=True):
            relations[channel] = frame.localCheckpoint()
            yield Recomputed(channel, relations[channel], replayed)


def differing(left: DataFrame, right: DataFrame) -> int:
    """How many rows two bags differ in; columns may stand in another order."""
    names = left.columns
    plus = left.withColumn("_weight", F.lit(1))
    minus = right.select(*map(column, names)).withColumn("_weight", F.lit(-1))
    total = plus.unionByName(minus).groupBy(*map(column, names)).agg(F.sum("_weight").alias("_weight"))
    counted = fetch(total.agg(F.sum(F.abs(column("_weight")))))
    return int(counted[0][0] or 0)


def from_nothing(
    project: Project,
    known: Progress,
    variant: Variant,
    chronicles: Mapping[str, Chronicle],
    relations: Mapping[str, DataFrame],
) -> list[DataFrame]:
    """What a variant makes of whole relations in one step from nothing, per channel written."""
    warehouse = project.warehouse
    frames: dict[str, DataFrame] = {}
    for port in variant.ports:
        chronicle = chronicles[port.channel]
        own = port.channel in known.task.writes
        schema = chronicle.schema_at(chronicle.readable)
        assert schema is not None
        if own or port.mode is Mode.OLD:
            frames[port.name] = warehouse.spark.createDataFrame([], schema.ddl)
            continue
        whole = relations[port.channel]
        match port.mode:
            case Mode.NEW:
                frames[port.name] = warehouse.as_delta(whole, chronicle.channel.encoding, schema)
            case Mode.CHANGES:
                frames[port.name] = warehouse.as_delta(whole, Changes(), schema)
            case _:
                frames[port.name] = whole
    return [
        _relation(project, frame, chronicles[channel], production)
        for channel, production, frame in zip(
            known.task.writes,
            variant.productions,
            invoke(warehouse, known.task, variant.logic, frames),
            strict=True,
        )
    ]


def _relation(project: Project, frame: DataFrame, chronicle: Chronicle, production: Production) -> DataFrame:
    schema = checked(project.warehouse.schema_of(frame), chronicle.channel, production, None)
    if production is Production.BASE:
        return frame.select(*map(column, schema.names))
    return project.warehouse.relation(frame, chronicle.channel.encoding, schema)


def _is_view(task: Task) -> bool:
    """Whether the output follows from the present inputs alone, however the task came there."""
    return any(isinstance(variant.logic, Query) for variant in task.variants)


def _in_one_step(known: Progress, chronicles: Mapping[str, Chronicle]) -> bool:
    """Whether the outputs reflect just what one run over the present inputs would reflect."""
    whole = Version()
    for name in known.task.reads:
        chronicle = chronicles[name]
        whole = whole.joined(chronicle.version(known.cursor(name)).through(known.task.name, known.logic))
    outputs = [chronicles[name] for name in known.task.writes]
    return all(output.version(output.readable) == whole for output in outputs)


def _replay(
    project: Project, known: Progress, chronicles: Mapping[str, Chronicle], read: list[tuple[int, Input]]
) -> list[DataFrame]:
    """Run a task again delta by delta, as its runs recorded."""
    warehouse, task = project.warehouse, known.task
    variant = next(item for item in task.variants if item.incremental)
    states: list[DataFrame] | None = None
    for number in sorted({run for run, _ in read}):
        items = {item.port: item for run, item in read if run == number}
        fresh = all(items[port.name].start == 0 for port in variant.ports if port.mode.advances)
        frames: dict[str, DataFrame] = {}
        for port in variant.ports:
            chronicle, item = chronicles[port.channel], items[port.name]
            if port.channel in task.writes:
                empty = warehouse.spark.createDataFrame([], _schema(chronicle).ddl)
                kept = None if states is None or fresh else states[task.writes.index(port.channel)]
                frames[port.name] = empty if kept is None else kept
                continue
            match port.mode:
                case Mode.NEW:
                    reading = chronicle.delta(item.start, item.end)
                case Mode.CHANGES | Mode.INSERTS:
                    reading = chronicle.changes(item.start, item.end)
                case Mode.OLD:
                    reading = chronicle.snapshot(item.start)
                case Mode.ALL:
                    reading = chronicle.snapshot(item.end)
            frames[port.name] = warehouse.open(reading)
        made = invoke(warehouse, task, variant.logic, frames)
        before = None if states is None or fresh else dict(zip(task.writes, states, strict=True))
        states = [
            _relation(project, frame, chronicles[channel], production)
            if before is None or production is Production.BASE
            else _merged(project, before[channel], frame, chronicles[channel])
            for channel, production, frame in zip(task.writes, variant.productions, made, strict=True)
        ]
    assert states is not None
    return states


def _merged(project: Project, state: DataFrame, frame: DataFrame, chronicle: Chronicle) -> DataFrame:
    encoding, schema = chronicle.channel.encoding, _schema(chronicle)
    delta = project.warehouse.completed(frame, encoding, schema).select(*delta_schema(encoding, schema).names)
    return merge(state, delta, encoding, schema, Strategy.SHUFFLED, project.warehouse.functions)


def _schema(chronicle: Chronicle) -> Schema:
    schema = chronicle.schema_at(chronicle.readable)
    assert schema is not None
    return schema
