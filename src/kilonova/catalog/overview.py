"""All channels and tasks at a glance, however much has happened: a few statements, none of which reads histories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import aliased

from kilonova.catalog import codec, tables
from kilonova.catalog.chains import LIVE
from kilonova.catalog.database import Transaction
from kilonova.model.channel import PointState
from kilonova.model.headway import Headway
from kilonova.model.run import RunState
from kilonova.model.task import Mode, Production

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


def _channels(tx: Transaction) -> dict[str, ChannelGlance]:
    channel, point, other = tables.channel, tables.point, aliased(tables.point)
    reserved = select(func.min(other.c.number)).where(
        other.c.channel_id == channel.c.id, other.c.state == PointState.RESERVED.value
    )
    ends = select(channel.c.id, reserved.scalar_subquery().label("reserved")).cte("ends")
    newest = (
        select(func.max(other.c.number))
        .where(
            other.c.channel_id == ends.c.id,
            other.c.state == PointState.FILLED.value,
            or_(ends.c.reserved.is_(None), other.c.number < ends.c.reserved),
        )
        .scalar_subquery()
    )
    at = select(ends.c.id, newest.label("number")).cte("at")
    times = {
        row.id: (row.number, row.time)
        for row in tx.connection.execute(
            select(at.c.id, at.c.number, point.c.time).join(
                point, and_(point.c.channel_id == at.c.id, point.c.number == at.c.number)
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
        select(channel.c.id, channel.c.name, channel.c.workflow, channel.c.watch).order_by(channel.c.name)
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
            watched=row.watch is not None,
        )
    return found


def _sizes(tx: Transaction) -> dict[int, tuple[int, int]]:
    """Rows and bytes of the live blocks from the newest base on, by channel."""
    block = tables.block
    bases = (
        select(block.c.channel_id, func.max(block.c.end).label("base"))
        .where(block.c.state == LIVE, block.c.start.is_(None))
        .group_by(block.c.channel_id)
        .cte("bases")
    )
    rows = tx.connection.execute(
        select(block.c.channel_id, func.sum(block.c.rows).label("rows"), func.sum(block.c.bytes).label("bytes"))
        .outerjoin(bases, bases.c.channel_id == block.c.channel_id)
        .where(
            block.c.state == LIVE,
            or_(
                bases.c.base.is_(None),
                block.c.start >= bases.c.base,
                and_(block.c.start.is_(None), block.c.end == bases.c.base),
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
    for row in tx.connection.execute(
        select(variant.c.task_id, variant.c.ports, variant.c.production, variant.c.language)
        .join(task, and_(task.c.id == variant.c.task_id, task.c.logic == variant.c.logic))
        .where(task.c.active)
        .order_by(variant.c.task_id, variant.c.position)
    ):
        ways.setdefault(row.task_id, []).append((row.ports, row.production, row.language))
    cursors, lags = _cursors(tx)
    done = {
        name: tx.connection.execute(select(func.max(output.c.run_id)).where(output.c.task == name)).scalar()
        for name in failed
    }
    found = {}
    for row in tx.connection.execute(
        select(task, logic.c.writes)
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
                    behind=_behind(mine.get(channel), lags.get((row.id, channel)), channels[channel]),
                    drives=not news or channel in news,
                )
                for channel in outside
            ),
            writes=tuple(row.writes),
            own=tuple(channel for channel in modes if channel in row.writes),
            productions=tuple(dict.fromkeys(Production(production) for _, production, _ in variants)),
            running=running.get(row.name),
            failed=ill if ill is not None and ill > (done[row.name] or 0) else None,
        )
    return found


def _behind(cursor: int | None, lag: int | None, channel: ChannelGlance) -> int:
    """How many filled points are to be read; of a task that has not begun, what it has before it counts as one."""
    if cursor is None:
        return 1 if channel.point else 0
    return lag or 0


def _cursors(tx: Transaction) -> tuple[dict[int, dict[str, int]], dict[tuple[int, str], int]]:
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
    reserved = aliased(tables.point)
    blocked = select(reserved.c.number).where(
        reserved.c.channel_id == point.c.channel_id,
        reserved.c.state == PointState.RESERVED.value,
        reserved.c.number < point.c.number,
    )
    lags = tx.connection.execute(
        select(cursor.c.task_id, channel.c.name, func.count().label("points"))
        .join(task, present)
        .join(channel, channel.c.id == cursor.c.channel_id)
        .join(
            point,
            and_(
                point.c.channel_id == cursor.c.channel_id,
                point.c.state == PointState.FILLED.value,
                point.c.number > cursor.c.point,
            ),
        )
        .where(~blocked.exists())
        .group_by(cursor.c.task_id, channel.c.name)
    )
    return cursors, {(row.task_id, row.name): row.points for row in lags}


def _bindings(tx: Transaction) -> dict[str, BindingGlance]:
    binding, firing = tables.binding, tables.firing
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
        for row in tx.connection.execute(select(binding).where(binding.c.active).order_by(binding.c.name))
    )
    return {each.name: each for each in rows}
