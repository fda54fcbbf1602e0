"""All channels and tasks at a glance, however much has happened: a few statements, none of which reads histories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import CTE, and_, exists, func, or_, select

from kilonova.catalog import codec, tables
from kilonova.catalog.chains import LIVE
from kilonova.catalog.database import Transaction
from kilonova.model.channel import PointState
from kilonova.model.headway import Headway
from kilonova.model.run import RunState
from kilonova.model.task import Mode, Production, productions_from_text

_FAILURES = 1000
"""How many of the last runs that have not succeeded are looked at for what tasks have failed."""

_ILL = (RunState.FAILED.value, RunState.ABANDONED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelGlance:
    """A channel at a glance.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        point: the newest point that can be read and is no repetition of the one before; 0 if there is none.
        time: when that was filled; None if there is none.
        rows: rows in the blocks from the newest base on.
        bytes: their size.
        writing: the runs that are writing it.
        watched: whether it takes the files of a directory.
    """

    name: str
    workflow: str
    point: int
    time: datetime | None
    rows: int
    bytes: int
    writing: tuple[int, ...]
    watched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """A channel that a task reads.

    Attributes:
        channel: the channel.
        modes: how its variants read it, each mode once, in their order.
        cursor: the point up to which the present logic has read it; 0 if it has not begun.
        behind: how many filled points there are after that.
        drives: whether its news make the task due.
    """

    channel: str
    modes: tuple[Mode, ...]
    cursor: int
    behind: int
    drives: bool

    @property
    def mode(self) -> Mode:
        """The mode that says most: how news are read, if they are."""
        return next((mode for mode in self.modes if mode.advances), self.modes[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGlance:
    """A task at a glance.

    Attributes:
        name: its name.
        workflow: the workflow that declares it.
        binding: the binding that it belongs to.
        view: whether it is written as one SQL query.
        logic: its logic version.
        started: whether that has run.
        reads: the channels that it reads, its own left out.
        writes: the channels that it writes.
        own: those of them that it reads, too.
        productions: how its variants write, each once.
        running: the run that does it now.
        failed: the run that failed since it last succeeded.
    """

    name: str
    workflow: str
    binding: str
    view: bool
    logic: int
    started: bool
    reads: tuple[Following, ...]
    writes: tuple[str, ...]
    own: tuple[str, ...]
    productions: tuple[Production, ...]
    running: int | None
    failed: int | None

    @property
    def due(self) -> bool:
        """Whether it has something to read that makes it run."""
        return any(each.behind > 0 for each in self.reads if each.drives)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingGlance:
    """A binding at a glance.

    Attributes:
        name: its name.
        workflowette: the workflowette that is bound; empty if none is.
        alone: whether it is a task that was put into no binding.
        paused: whether its triggers are held back.
        due: how many of its firings have not ended.
    """

    name: str
    workflowette: str
    alone: bool
    paused: bool
    due: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All channels and tasks at one moment, each by name.

    Attributes:
        channels: the channels.
        tasks: the tasks.
        bindings: the bindings.
        running: the runs that go on, and how far they have come, if that is known.
        event: the number of the last event that this reflects.
        time: the moment.
    """

    channels: Mapping[str, ChannelGlance]
    tasks: Mapping[str, TaskGlance]
    bindings: Mapping[str, BindingGlance]
    running: Mapping[int, Headway | None]
    event: int
    time: datetime


def overview(tx: Transaction) -> Overview:
    """Look at everything."""
    channels = _channels(tx)
    return Overview(
        channels=channels,
        tasks=_tasks(tx, channels, _running(tx), _failed(tx)),
        bindings=_bindings(tx),
        running=headways(tx),
        event=int(tx.connection.execute(select(func.max(tables.event.c.id))).scalar() or 0),
        time=tx.now,
    )


def headways(tx: Transaction) -> dict[int, Headway | None]:
    """The runs that go on, and how far they have come, if that is known."""
    table = tables.run
    query = select(table.c.id, table.c.progress).where(table.c.state == RunState.RUNNING.value).order_by(table.c.id)
    return {
        row.id: None if row.progress is None else codec.headway_from_json(row.progress)
        for row in tx.connection.execute(query)
    }


def _running(tx: Transaction) -> dict[str, int]:
    """The runs that go on, by task."""
    table = tables.run
    query = select(table.c.id, table.c.tasks).where(table.c.state == RunState.RUNNING.value).order_by(table.c.id)
    return {task: row.id for row in tx.connection.execute(query) for task in row.tasks}


def _failed(tx: Transaction) -> dict[str, int]:
    """The last of the runs that failed, by task."""
    table = tables.run
    query = select(table.c.id, table.c.tasks).where(table.c.state.in_(_ILL)).order_by(table.c.id.desc())
    found: dict[str, int] = {}
    for row in tx.connection.execute(query.limit(_FAILURES)):
        for task in row.tasks:
            found.setdefault(task, row.id)
    return found


def _newest() -> CTE:
    """The newest point of each channel that can be read and is filled: `id` and `number`, which may be null."""
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
    return newest.prefix_with("MATERIALIZED")  # or it is reckoned anew for each block and cursor


def _channels(tx: Transaction) -> dict[str, ChannelGlance]:
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
    sizes = _sizes(tx)
    found = {}
    for row in tx.connection.execute(
        select(
            channel.c.id, channel.c.name, channel.c.workflow, channel.c.watch.is_not(None).label("watched")
        ).order_by(channel.c.name)
    ):
        number, time = times.get(row.id, (0, None))
        rows, size = sizes.get(row.id, (0, 0))
        found[row.name] = ChannelGlance(
            name=row.name,
            workflow=row.workflow,
            point=number,
            time=time,
            rows=rows,
            bytes=size,
            writing=tuple(writing.get(row.id, ())),
            watched=row.watched,
        )
    return found


def _sizes(tx: Transaction) -> dict[int, tuple[int, int]]:
    """Rows and bytes of the live blocks that can be read, from the newest base on, by channel."""
    block, newest = tables.block, _newest()
    base = (
        select(block.c.channel_id, func.max(block.c.end).label("end"))
        .join(newest, newest.c.id == block.c.channel_id)
        .where(block.c.state == LIVE, block.c.start.is_(None), block.c.end <= newest.c.number)
        .group_by(block.c.channel_id)
        .subquery("base")
    )
    shown = select(newest.c.id, newest.c.number, base.c.end).outerjoin(base, base.c.channel_id == newest.c.id)
    bounds = shown.cte("bounds").prefix_with("MATERIALIZED")
    rows = tx.connection.execute(
        select(block.c.channel_id, func.sum(block.c.rows).label("rows"), func.sum(block.c.bytes).label("bytes"))
        .outerjoin(bounds, bounds.c.id == block.c.channel_id)  # an outer join, so that SQLite reads the blocks in order
        .where(
            block.c.state == LIVE,
            block.c.merged_into.is_(None),
            block.c.end <= bounds.c.number,
            or_(
                bounds.c.end.is_(None),
                block.c.start >= bounds.c.end,
                and_(block.c.start.is_(None), block.c.end == bounds.c.end),
            ),
        )
        .group_by(block.c.channel_id)
    )
    return {row.channel_id: (int(row.rows), int(row.bytes)) for row in rows}


def _tasks(
    tx: Transaction, channels: Mapping[str, ChannelGlance], running: Mapping[str, int], failed: Mapping[str, int]
) -> dict[str, TaskGlance]:
    task, variant, logic, output = tables.task, tables.variant, tables.logic, tables.run_output
    ways: dict[int, list[tuple[list[list[str]], str, str]]] = {}
    for each in tx.connection.execute(
        select(variant.c.task_id, variant.c.ports, variant.c.production, variant.c.language)
        .join(task, and_(task.c.id == variant.c.task_id, task.c.logic == variant.c.logic))
        .where(task.c.active)
        .order_by(variant.c.task_id, variant.c.position)
    ):
        ways.setdefault(each.task_id, []).append((each.ports, each.production, each.language))
    cursors, lags = _cursors(tx)
    done = select(func.max(output.c.run_id)).where(output.c.task == task.c.name).scalar_subquery()
    found = {}
    for row in tx.connection.execute(
        select(
            task.c.id, task.c.name, task.c.workflow, task.c.binding, task.c.logic, logic.c.writes, done.label("done")
        )
        .join(logic, and_(logic.c.task_id == task.c.id, logic.c.version == task.c.logic))
        .where(task.c.active)
        .order_by(task.c.name)
    ):
        variants = ways[row.id]
        ports = [(channel, Mode(mode)) for ports, _, _ in variants for _, channel, mode in ports]
        modes: dict[str, dict[Mode, None]] = {}
        for channel, mode in ports:
            modes.setdefault(channel, {})[mode] = None
        outside = [channel for channel in modes if channel not in row.writes]
        news = {channel for channel, mode in ports if mode.advances and channel not in row.writes}
        mine = cursors.get(row.id, {})
        ill = failed.get(row.name)
        found[row.name] = TaskGlance(
            name=row.name,
            workflow=row.workflow,
            binding=row.binding or row.name,
            view=any(language != "python" for _, _, language in variants),
            logic=row.logic,
            started=row.id in cursors,
            reads=tuple(
                Following(
                    channel=channel,
                    modes=tuple(modes[channel]),
                    cursor=mine.get(channel, 0),
                    behind=_behind(channels[channel], mine.get(channel), lags),
                    drives=not news or channel in news,
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


def _behind(channel: ChannelGlance, cursor: int | None, lags: Mapping[tuple[str, int], int]) -> int:
    """How many filled points are to be read; of a task that has not begun, what it has before it counts as one."""
    if cursor is None:
        return 1 if channel.point else 0
    return lags.get((channel.name, cursor), 0)


def _cursors(tx: Transaction) -> tuple[dict[int, dict[str, int]], dict[tuple[str, int], int]]:
    """The cursors of each task's present logic, and how many filled points lie after those that are behind."""
    task, cursor, channel, point = tables.task, tables.cursor, tables.channel, tables.point
    cursors: dict[int, dict[str, int]] = {}
    present = and_(task.c.id == cursor.c.task_id, task.c.logic == cursor.c.logic, task.c.active)
    for row in tx.connection.execute(
        select(cursor.c.task_id, channel.c.name, cursor.c.point)
        .join(task, present)
        .join(channel, channel.c.id == cursor.c.channel_id)
    ):
        cursors.setdefault(row.task_id, {})[row.name] = row.point
    newest = _newest()
    begun = (
        select(cursor.c.channel_id, cursor.c.point, newest.c.number)
        .join(task, present)
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


def _bindings(tx: Transaction) -> dict[str, BindingGlance]:
    binding, firing = tables.binding, tables.firing
    busy = exists().where(tables.task.c.binding == binding.c.name, tables.task.c.active)
    due = {
        row.binding_id: row.times
        for row in tx.connection.execute(
            select(firing.c.binding_id, func.count().label("times"))
            .where(firing.c.state.in_(("due", "claimed", "running")))
            .group_by(firing.c.binding_id)
        )
    }
    rows: Iterable[BindingGlance] = (
        BindingGlance(
            name=row.name,
            workflowette=row.workflowette,
            alone=row.alone,
            paused=row.paused,
            due=due.get(row.id, 0),
        )
        for row in tx.connection.execute(select(binding).where(binding.c.active, busy).order_by(binding.c.name))
    )
    return {each.name: each for each in rows}
