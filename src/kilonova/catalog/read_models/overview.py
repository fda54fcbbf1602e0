"""Overview of all channels, tasks and bindings: a few statements, none of which reads the history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import CTE, and_, case, exists, func, or_, select

from kilonova.catalog import codec, tables
from kilonova.catalog.database import Transaction
from kilonova.model.channel import PointState
from kilonova.model.progress import RunProgress
from kilonova.model.row_count import RowCount
from kilonova.model.run import RunState
from kilonova.model.task import FROM_SOURCES, Mode, Production, productions_from_text
from kilonova.model.watched_file import FileState

_FAILURES = 1000
"""Number of the last unsuccessful runs that are searched for failed tasks."""

_BOUNDED = ("append", "upsert", "increment", "columns", "removal")
"""Encodings whose deltas add at most as many rows as they have."""

_ILL = (RunState.FAILED.value, RunState.ABANDONED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSummary:
    """Summary of a channel.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        point: the newest readable filled point; 0 if there is none.
        time: the time when that was filled; None if there is none.
        rows: the number of its rows then, as far as its blocks record it.
        bytes: the size of its snapshot: of the newest base and the deltas after it.
        writing: the runs that are writing it.
        watched: whether it ingests the files of a watched directory.
        quarantined: the number of these files that are quarantined.
    """

    name: str
    workflow: str
    point: int
    time: datetime | None
    rows: RowCount
    bytes: int
    writing: tuple[int, ...]
    watched: bool
    quarantined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSummary:
    """Summary of a channel that a task reads.

    Attributes:
        channel: the channel.
        modes: the distinct modes in which the task's variants read it, in the order of the variants.
        cursor: the point up to which the current logic version has read it; 0 if it has not started.
        behind: the number of filled points after that.
        drives: whether new input on it makes the task due.
    """

    channel: str
    modes: tuple[Mode, ...]
    cursor: int
    behind: int
    drives: bool

    @property
    def mode(self) -> Mode:
        """First mode that advances the cursor, or else the first mode."""
        return next((mode for mode in self.modes if mode.advances), self.modes[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """Summary of a task.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        binding: the binding that it belongs to.
        view: whether it is written as one SQL query.
        logic: its logic version.
        started: whether that logic version has run.
        succeeds: whether its channels hold the output of an earlier logic version, which has run.
        reads: the channels that it reads, except those that it writes.
        writes: the channels that it writes.
        own: the channels that it both writes and reads.
        productions: the distinct production modes of its variants.
        running: the run that is running it; None if there is none.
        failed: the last run that failed since it last succeeded; None if there is none.
    """

    name: str
    workflow: str
    binding: str
    view: bool
    logic: int
    started: bool
    succeeds: bool
    reads: tuple[InputSummary, ...]
    writes: tuple[str, ...]
    own: tuple[str, ...]
    productions: tuple[Production, ...]
    running: int | None
    failed: int | None

    @property
    def due(self) -> bool:
        """Return whether there is new input that makes it run, or its output is that of an earlier logic version."""
        return (self.succeeds and not self.started) or any(each.behind > 0 for each in self.reads if each.drives)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingSummary:
    """Summary of a binding.

    Attributes:
        name: its name.
        workflowette: the workflowette that is bound; empty if none is.
        implicit: whether it was created for a task without a declared binding.
        paused: whether its triggers are paused.
        due: the number of its firings that have not ended.
    """

    name: str
    workflowette: str
    implicit: bool
    paused: bool
    due: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Summaries of all channels, tasks and bindings at one time, each by name.

    Attributes:
        channels: the channels.
        tasks: the tasks.
        bindings: the bindings.
        running: the progress of the running runs, by run; None if it is unknown.
        event: the number of the last event that this reflects.
        time: the time.
    """

    channels: Mapping[str, ChannelSummary]
    tasks: Mapping[str, TaskSummary]
    bindings: Mapping[str, BindingSummary]
    running: Mapping[int, RunProgress | None]
    event: int
    time: datetime


def overview(tx: Transaction) -> Overview:
    """Return the overview."""
    channels = _channels(tx)
    return Overview(
        channels=channels,
        tasks=_tasks(tx, channels, _running(tx), _failed(tx)),
        bindings=_bindings(tx),
        running=progress_of_runs(tx),
        event=int(tx.connection.execute(select(func.max(tables.event.c.id))).scalar() or 0),
        time=tx.now,
    )


def progress_of_runs(tx: Transaction) -> dict[int, RunProgress | None]:
    """Return the progress of the running runs, by run; None if it is unknown."""
    table = tables.run
    query = select(table.c.id, table.c.progress).where(table.c.state == RunState.RUNNING.value).order_by(table.c.id)
    return {
        row.id: None if row.progress is None else codec.progress_from_json(row.progress)
        for row in tx.connection.execute(query)
    }


def _running(tx: Transaction) -> dict[str, int]:
    """Return the running runs, by task."""
    table = tables.run
    query = select(table.c.id, table.c.tasks).where(table.c.state == RunState.RUNNING.value).order_by(table.c.id)
    return {task: row.id for row in tx.connection.execute(query) for task in row.tasks}


def _failed(tx: Transaction) -> dict[str, int]:
    """Return the last failed run, by task."""
    table = tables.run
    query = select(table.c.id, table.c.tasks).where(table.c.state.in_(_ILL)).order_by(table.c.id.desc())
    found: dict[str, int] = {}
    for row in tx.connection.execute(query.limit(_FAILURES)):
        for task in row.tasks:
            found.setdefault(task, row.id)
    return found


def _newest() -> CTE:
    """Return the newest readable filled point of each channel: `id` and `number`, which may be null."""
    channel, point = tables.channel, tables.point
    here = point.c.channel_id == channel.c.id
    reserved = select(func.min(point.c.number)).where(here, point.c.state == PointState.RESERVED.value)
    every = select(func.max(point.c.number) + 1).where(here)
    ends = select(
        channel.c.id, func.coalesce(reserved.scalar_subquery(), every.scalar_subquery()).label("before")
    ).subquery("ends")
    filled = select(func.max(point.c.number)).where(
        point.c.channel_id == ends.c.id, point.c.state == PointState.FILLED.value, point.c.number < ends.c.before
    )
    newest = select(ends.c.id, filled.scalar_subquery().label("number")).cte("newest")
    return newest.prefix_with("MATERIALIZED")  # otherwise it is recomputed for each block and cursor


def _channels(tx: Transaction) -> dict[str, ChannelSummary]:
    channel, point, newest = tables.channel, tables.point, _newest()
    times = {
        row.id: (row.number, row.time)
        for row in tx.connection.execute(
            select(newest.c.id, newest.c.number, point.c.time).join(
                point, and_(point.c.channel_id == newest.c.id, point.c.number == newest.c.number)
            )
        )
    }
    writing: dict[int, list[int]] = {}
    for held in tx.connection.execute(
        select(point.c.channel_id, point.c.run_id)
        .join(tables.run, tables.run.c.id == point.c.run_id)
        .where(tables.run.c.state == RunState.RUNNING.value, point.c.state == PointState.RESERVED.value)
        .order_by(point.c.run_id)
    ):
        writing.setdefault(held.channel_id, []).append(held.run_id)
    sizes, file = snapshot_sizes(tx), tables.file
    aside = select(func.count()).where(file.c.channel_id == channel.c.id, file.c.state == FileState.QUARANTINED.value)
    found = {}
    for row in tx.connection.execute(
        select(
            *(channel.c.id, channel.c.name, channel.c.workflow),
            *(channel.c.watch.is_not(None).label("watched"), aside.scalar_subquery().label("quarantined")),
        ).order_by(channel.c.name)
    ):
        number, time = times.get(row.id, (0, None))
        rows, size = sizes.get(row.id, (RowCount(0, 0), 0))
        found[row.name] = ChannelSummary(
            name=row.name,
            workflow=row.workflow,
            point=number,
            time=time,
            rows=rows,
            bytes=size,
            writing=tuple(writing.get(row.id, ())),
            watched=row.watched,
            quarantined=row.quarantined,
        )
    return found


def snapshot_sizes(tx: Transaction) -> dict[int, tuple[RowCount, int]]:
    """Return the rows and bytes of the newest readable snapshot of each channel, by the channel's id."""
    block, place, newest = tables.block, tables.placement, _newest()
    base = (
        select(place.c.channel_id, func.max(place.c.end).label("end"))
        .join(newest, newest.c.id == place.c.channel_id)
        .where(place.c.live, place.c.start.is_(None), place.c.end <= newest.c.number)
        .group_by(place.c.channel_id)
        .subquery("base")
    )
    shown = select(newest.c.id, newest.c.number, base.c.end).outerjoin(base, base.c.channel_id == newest.c.id)
    bounds = shown.cte("bounds").prefix_with("MATERIALIZED")
    net = case((place.c.start.is_(None), block.c.rows), else_=block.c.net_rows)
    bounded = block.c.encoding["encoding"].as_string().in_(_BOUNDED)
    most = func.coalesce(net, case((bounded, block.c.rows)))
    rows = tx.connection.execute(
        select(
            place.c.channel_id,
            *(func.sum(each).label(name) for name, each in (("net", net), ("most", most), ("bytes", block.c.bytes))),
            (func.count() == func.count(net)).label("exact"),
            (func.count() == func.count(most)).label("bounded"),
        )
        .join(block, block.c.id == place.c.block_id)
        .outerjoin(bounds, bounds.c.id == place.c.channel_id)  # an outer join, so that SQLite reads the blocks in order
        .where(
            place.c.live,
            place.c.merged_into.is_(None),
            place.c.end <= bounds.c.number,
            or_(
                bounds.c.end.is_(None),
                place.c.start >= bounds.c.end,
                and_(place.c.start.is_(None), place.c.end == bounds.c.end),
            ),
        )
        .group_by(place.c.channel_id)
    )
    return {
        row.channel_id: (
            RowCount(int(row.net) if row.exact else None, int(row.most) if row.bounded else None),
            int(row.bytes),
        )
        for row in rows
    }


def _tasks(
    tx: Transaction, channels: Mapping[str, ChannelSummary], running: Mapping[str, int], failed: Mapping[str, int]
) -> dict[str, TaskSummary]:
    task, variant, output = tables.task, tables.variant, tables.run_output
    logic = _current()
    ways: dict[int, list[tuple[list[list[str]], str, str]]] = {}
    for each in tx.connection.execute(
        select(variant.c.task_id, variant.c.ports, variant.c.production, variant.c.language)
        .join(logic, and_(logic.c.task_id == variant.c.task_id, logic.c.version == variant.c.logic))
        .where(variant.c.name != FROM_SOURCES)
        .order_by(variant.c.task_id, variant.c.position)
    ):
        ways.setdefault(each.task_id, []).append((each.ports, each.production, each.language))
    cursors, lags = _cursors(tx)
    succeeding = _succeeding(tx)
    detached: dict[str, dict[str, int]] = {}  # views before what they materialize, in the order of names
    done = select(func.max(output.c.run_id)).where(output.c.task == task.c.name).scalar_subquery()
    found = {}
    for row in tx.connection.execute(
        select(
            *(task.c.id, task.c.name, task.c.workflow, task.c.binding, task.c.view),
            *(logic.c.version, logic.c.writes, done.label("done")),
        )
        .join(logic, logic.c.task_id == task.c.id)
        .order_by(task.c.name)
    ):
        variants = ways[row.id]
        ports = [(channel, Mode(mode)) for ports, _, _ in variants for _, channel, mode in ports]
        modes: dict[str, dict[Mode, None]] = {}
        for channel, mode in ports:
            modes.setdefault(channel, {})[mode] = None
        outside = [channel for channel in modes if channel not in row.writes]
        followed = {channel for channel, mode in ports if mode.advances and channel not in row.writes}
        mine = cursors.get(row.id, {})
        if mine and not mine.keys() >= {*outside}:
            detached[row.name] = mine
        read = mine or detached.get(row.view, {})
        ill = failed.get(row.name)
        found[row.name] = TaskSummary(
            name=row.name,
            workflow=row.workflow,
            binding=row.binding or row.name,
            view=any(language != "python" for _, _, language in variants),
            logic=row.version,
            started=row.id in cursors,
            succeeds=row.id in succeeding,
            reads=tuple(
                InputSummary(
                    channel=channel,
                    modes=tuple(modes[channel]),
                    cursor=mine.get(channel, 0),
                    behind=0 if read and channel not in read else _behind(channels[channel], read.get(channel), lags),
                    drives=not followed or channel in followed,
                )
                for channel in outside
            ),
            writes=tuple(row.writes),
            own=tuple(channel for channel in modes if channel in row.writes),
            productions=tuple(
                dict.fromkeys(each for _, text, _ in variants for each in productions_from_text(text, 1))
            ),
            running=running.get(row.name),
            failed=ill if ill is not None and ill > (row.done or 0) else None,
        )
    return found


def _current() -> CTE:
    """Return the newest live logic version of each task: `task_id`, `version` and `writes`."""
    logic, newer = tables.logic.c, tables.logic.alias("newer").c
    newest = select(func.max(newer.version)).where(newer.task_id == logic.task_id, newer.live).scalar_subquery()
    return select(logic.task_id, logic.version, logic.writes).where(logic.version == newest).cte("current")


def _behind(channel: ChannelSummary, cursor: int | None, lags: Mapping[tuple[str, int], int]) -> int:
    """Return the number of filled points to read; for a task that has not started, 1 if there is any."""
    if cursor is None:
        return 1 if channel.point else 0
    return lags.get((channel.name, cursor), 0)


def _succeeding(tx: Transaction) -> set[int]:
    """Return the tasks with a superseded logic version that has run and is kept until a newer one has."""
    cursor, logic = tables.cursor.c, tables.logic.c
    ran = select(cursor.task_id).where(cursor.task_id == logic.task_id, cursor.logic == logic.version).exists()
    return set(tx.connection.execute(select(logic.task_id).where(logic.live, logic.superseded, ran)).scalars())


def _cursors(tx: Transaction) -> tuple[dict[int, dict[str, int]], dict[tuple[str, int], int]]:
    """Return the cursors of each task's newest live version, and the number of filled points after each cursor."""
    cursor, channel, point, logic = tables.cursor, tables.channel, tables.point, _current()
    cursors: dict[int, dict[str, int]] = {}
    present = and_(logic.c.task_id == cursor.c.task_id, logic.c.version == cursor.c.logic)
    for row in tx.connection.execute(
        select(cursor.c.task_id, channel.c.name, cursor.c.point)
        .join(logic, present)
        .join(channel, channel.c.id == cursor.c.channel_id)
    ):
        cursors.setdefault(row.task_id, {})[row.name] = row.point
    newest = _newest()
    begun = (
        select(cursor.c.channel_id, cursor.c.point, newest.c.number)
        .join(logic, present)
        .join(newest, and_(newest.c.id == cursor.c.channel_id, newest.c.number > cursor.c.point))
        .distinct()
        .subquery("begun")
    )
    lags = tx.connection.execute(
        select(channel.c.name, begun.c.point, func.count().label("points"))
        .join(channel, channel.c.id == begun.c.channel_id)
        .join(
            point,
            and_(
                point.c.channel_id == begun.c.channel_id,
                point.c.state == PointState.FILLED.value,
                point.c.number > begun.c.point,
                point.c.number <= begun.c.number,
            ),
        )
        .group_by(channel.c.name, begun.c.point)
    )
    return cursors, {(row.name, row.point): row.points for row in lags}


def _bindings(tx: Transaction) -> dict[str, BindingSummary]:
    binding, firing = tables.binding, tables.firing
    busy = exists().where(tables.task.c.binding == binding.c.name, tables.task.c.active)
    due = {
        row.binding_id: row.times
        for row in tx.connection.execute(
            select(firing.c.binding_id, func.count().label("times"))
            .where(firing.c.state.in_(("queued", "claimed", "running")))
            .group_by(firing.c.binding_id)
        )
    }
    rows: Iterable[BindingSummary] = (
        BindingSummary(
            name=row.name,
            workflowette=row.workflowette,
            implicit=row.implicit,
            paused=row.paused,
            due=due.get(row.id, 0),
        )
        for row in tx.connection.execute(select(binding).where(binding.c.active, busy).order_by(binding.c.name))
    )
    return {each.name: each for each in rows}
