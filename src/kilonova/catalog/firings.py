"""Triggers that fire and what becomes of it; see `kilonova.model.firing`.

What a trigger remembers and its firing are written in one transaction, and writing transactions come one after the
other: a trigger fires exactly once per occurrence, however many servers look. The table has a constraint that says the
same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Row, Select, and_, delete, func, insert, or_, select, update

from kilonova.catalog import codec, events, registry, tables
from kilonova.catalog.bindings import binding_id, tasks_of
from kilonova.catalog.database import Transaction
from kilonova.catalog.happening import happened
from kilonova.errors import LeaseLost
from kilonova.model.event import EventKind
from kilonova.model.firing import Firing, FiringEvent, FiringState, before, next_state
from kilonova.model.task import Mode
from kilonova.model.trigger import After, Arrival, described, simple
from kilonova.schedule.firing import look
from kilonova.schedule.queueing import Waiting, chosen
from kilonova.schedule.sharing import batched

ATTEMPTS = 3
"""How often a firing is tried whose runs took their processes with them, or met errors that may pass.

Runs that were lost with their whole server do not count: that is hardly their doing.
"""

LOSSES = 20
"""How often a firing is tried whose runs are lost with their servers, which it may be that ends them."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What a trigger waits for.

    Attributes:
        number: the trigger's number.
        channels: the channels on which it waits for data.
        bindings: the bindings for whose runs it waits.
    """

    number: int
    channels: frozenset[str]
    bindings: frozenset[str]


def watched(tx: Transaction) -> list[Watched]:
    """What every trigger waits for, to know which to look at when something has happened."""
    rows = tx.connection.execute(
        select(tables.trigger.c.id, tables.trigger.c.definition).where(tables.trigger.c.active)
    )
    found = []
    for row in rows:
        items = simple(codec.trigger_from_json(row.definition))
        found.append(
            Watched(
                row.id,
                frozenset(item.channel for item in items if isinstance(item, Arrival)),
                frozenset(item.binding for item in items if isinstance(item, After)),
            )
        )
    return found


def waking(tx: Transaction) -> list[int]:
    """The triggers whose time has come."""
    query = looked_at().where(tables.trigger.c.wake <= tx.now)
    return list(tx.connection.execute(query.with_only_columns(tables.trigger.c.id)).scalars())


def next_wake(tx: Transaction) -> datetime | None:
    """When the time of the next trigger comes; None if none waits for a time."""
    waits = looked_at().where(tables.trigger.c.wake.is_not(None))  # the first by the index, not the least of all
    query = waits.with_only_columns(tables.trigger.c.wake).order_by(tables.trigger.c.wake).limit(1)
    return tx.connection.execute(query).scalar()


def looked_at() -> Select[tuple[int, str, object, object, datetime]]:
    """The triggers that servers look at."""
    return (
        select(
            tables.trigger.c.id,
            tables.binding.c.name,
            tables.trigger.c.definition,
            tables.trigger.c.state,
            tables.trigger.c.wake,
        )
        .join(tables.binding, tables.binding.c.id == tables.trigger.c.binding_id)
        .where(tables.trigger.c.active, tables.binding.c.active, ~tables.binding.c.paused)
    )


def fire(tx: Transaction, numbers: Collection[int]) -> list[str]:
    """Look at triggers, and write down those that fire.

    Args:
        tx: a writing transaction.
        numbers: the triggers.

    Returns:
        The bindings that are due because of it.
    """
    rows = tx.connection.execute(looked_at().where(tables.trigger.c.id.in_(numbers))).all()
    found = [(row, codec.trigger_from_json(row.definition), codec.state_from_json(row.state)) for row in rows]
    news = happened(tx, [(trigger, state) for _, trigger, state in found])
    due = []
    for row, trigger, state in found:
        number, binding = row.id, row.name
        looked = look(trigger, state, news, tx.now)
        if (looked.state, looked.wake) != (state, row.wake):
            values = {"state": codec.state_to_json(looked.state), "wake": looked.wake}
            tx.connection.execute(update(tables.trigger).where(tables.trigger.c.id == number).values(**values))
        if looked.occurrence is not None:
            _insert(tx, binding, number, looked.occurrence.name, looked.occurrence.time)
            due.append(binding)
    return due


def fire_by_hand(tx: Transaction, binding: str, who: str) -> None:
    """A person starts a binding.

    Raises:
        UnknownName: there is no such binding.
    """
    _insert(tx, binding, None, who, tx.now)


def _insert(tx: Transaction, binding: str, trigger: int | None, occurrence: str, time: datetime) -> None:
    tx.connection.execute(
        insert(tables.firing).values(
            binding_id=binding_id(tx, binding),
            trigger_id=trigger,
            occurrence=occurrence,
            time=time,
            state=FiringState.DUE.value,
            since=tx.now,
            stuck=False,
            attempts=0,
        )
    )
    events.tell(tx, EventKind.FIRED, binding=binding, said=occurrence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What a server has taken on: a binding, for all firings of it that were due.

    Attributes:
        binding: its name.
        firings: the firings, which one run ends.
        server: the server.
    """

    binding: str
    firings: tuple[int, ...]
    server: str


@dataclass(frozen=True, slots=True)
class Batch:
    """What a worker is given at once: one binding, or several that were merged because they read the same.

    Attributes:
        parts: each of them, with a run of its own.
    """

    parts: tuple[Claimed, ...]


def claim(tx: Transaction, server: str, room: int, limit: int | None) -> tuple[list[Batch], datetime | None]:
    """Take on what is due, as far as there is room.

    A binding that is running, or one of whose tasks another run has, waits; its firings are then taken on together.

    Args:
        tx: a writing transaction.
        server: who takes it on.
        room: how many batches the server can start.
        limit: how many runs a workflow may have at once; None for any number.

    Returns:
        What is taken on, and when there is more though nothing happens; None if there is not.
    """
    if room <= 0:
        return [], None
    firing, binding = tables.firing, tables.binding
    busy = set(
        tx.connection.execute(
            select(binding.c.name)
            .join(firing, firing.c.binding_id == binding.c.id)
            .where(firing.c.state.in_([FiringState.CLAIMED.value, FiringState.RUNNING.value]))
        ).scalars()
    )
    held = select(tables.task.c.binding).join(tables.claim, tables.claim.c.task_id == tables.task.c.id)
    busy |= set(tx.connection.execute(held).scalars())
    running: dict[str, int] = {}
    for row in tx.connection.execute(select(binding.c.workflow).where(binding.c.name.in_(busy))):
        running[row.workflow] = running.get(row.workflow, 0) + 1
    columns = (binding.c.name, binding.c.workflow, binding.c.priority, binding.c.queue)
    waiting = [
        Waiting(
            binding=row.name,
            workflow=row.workflow,
            priority=row.priority,
            since=row.since,
            queue=None if row.attempts else row.queue,  # what failed merged is tried again alone
            reads=frozenset() if row.queue is None or row.attempts else _reads(tx, row.name),
        )
        for row in tx.connection.execute(
            select(*columns, func.min(firing.c.time).label("since"), func.max(firing.c.attempts).label("attempts"))
            .join(firing, firing.c.binding_id == binding.c.id)
            .where(firing.c.state == FiringState.DUE.value, binding.c.active)
            .group_by(*columns)
        )
        if row.name not in busy
    ]
    ready, wake = batched(waiting, tx.now)
    batches = []
    for batch in chosen(ready, running, room, limit):
        parts = []
        for one in batch:
            due = select(firing.c.id).where(firing.c.state == FiringState.DUE.value).order_by(firing.c.id)
            numbers = tuple(
                tx.connection.execute(due.where(firing.c.binding_id == binding_id(tx, one.binding))).scalars()
            )
            _move(tx, numbers, FiringEvent.CLAIM, server=server)
            parts.append(Claimed(binding=one.binding, firings=numbers, server=server))
        batches.append(Batch(tuple(parts)))
    return batches, wake


def _reads(tx: Transaction, binding: str) -> frozenset[tuple[str, int]]:
    """What the tasks of a binding would read of others: snapshots as they are now, and news by cursor."""
    found = set()
    known = registry.tasks(tx, tasks_of(tx, binding))
    written = {channel for each in known.values() for channel in each.task.writes}
    for each in known.values():
        for port in each.task.variants[0].ports:
            if port.channel not in written:
                found.add((port.channel, _NOW if port.mode is Mode.ALL else each.cursor(port.channel)))
    return frozenset(found)


_NOW = -1
"""Stands for the newest point, where cursors do not matter."""


def any_unended(tx: Transaction) -> bool:
    """Whether something becomes of a firing yet."""
    states = [state.value for state in FiringState if not state.ended]
    query = (
        select(tables.firing.c.id)
        .join(tables.binding, tables.binding.c.id == tables.firing.c.binding_id)
        .where(
            tables.firing.c.state.in_(states),
            or_(tables.firing.c.state != FiringState.DUE.value, tables.binding.c.active),
        )
    )
    return tx.connection.execute(query.limit(1)).first() is not None


def unended(tx: Transaction) -> dict[str, int]:
    """How many firings have not ended, by binding."""
    states = [state.value for state in FiringState if not state.ended]
    rows = tx.connection.execute(
        select(tables.binding.c.name, func.count().label("times"))
        .join(tables.firing, tables.firing.c.binding_id == tables.binding.c.id)
        .where(tables.firing.c.state.in_(states))
        .group_by(tables.binding.c.name)
    )
    return {row.name: row.times for row in rows}


def launch(tx: Transaction, claimed: Claimed, run: int) -> None:
    """A run begins that ends firings.

    Raises:
        LeaseLost: the server has lost them to others.
    """
    if len(_still(tx, claimed)) < len(claimed.firings):
        raise LeaseLost("another server has taken over what was to be run", binding=claimed.binding, hint="Let it run")
    _move(tx, claimed.firings, FiringEvent.LAUNCH, run=run)


def explicit(tx: Transaction, claimed: Claimed) -> bool:
    """Return whether a declared trigger or a person started a binding.

    The triggers of a task that is in no workflowette are not declared: its news make it due.
    """
    alone = select(tables.binding.c.alone).where(tables.binding.c.name == claimed.binding, tables.binding.c.active)
    if not tx.connection.execute(alone).scalar():
        return True
    firing = tables.firing
    by_hand = select(firing.c.id).where(firing.c.id.in_(claimed.firings), firing.c.trigger_id.is_(None))
    return tx.connection.execute(by_hand.limit(1)).first() is not None


def idle(tx: Transaction, claimed: Claimed) -> None:
    """There was nothing to do, if the server still has it."""
    if mine := _still(tx, claimed):
        _move(tx, mine, FiringEvent.IDLE)
        events.tell(tx, EventKind.IDLE, binding=claimed.binding)


def refuse(tx: Transaction, claimed: Claimed, error: str) -> None:
    """What is asked for cannot be begun, if the server still has it."""
    if mine := _still(tx, claimed):
        _move(tx, mine, FiringEvent.FAIL)
        events.tell(tx, EventKind.FAILED, binding=claimed.binding, said=error)


def hand_back(tx: Transaction, claimed: Claimed, *, counted: bool) -> None:
    """Let others take on what has not been begun.

    Args:
        tx: a writing transaction.
        claimed: what the server had claimed.
        counted: whether it was tried, which is done a few times only.
    """
    for number in _still(tx, claimed):
        _again(tx, number, tried=counted, lost=False)


def _again(tx: Transaction, number: int, *, tried: bool, lost: bool) -> None:
    """A firing is due again, or has failed if it was tried or lost often enough."""
    table = tables.firing
    known = tx.connection.execute(select(table.c.attempts, table.c.lost).where(table.c.id == number)).one()
    attempts, losses = known.attempts + tried, (known.lost or 0) + lost
    tx.connection.execute(update(table).where(table.c.id == number).values(attempts=attempts, lost=losses))
    if attempts < ATTEMPTS and losses < LOSSES:
        _move(tx, [number], FiringEvent.RELEASE)
        return
    _move(tx, [number], FiringEvent.FAIL)
    times = f"tried {attempts} times in vain" if attempts >= ATTEMPTS else f"lost with its server {losses} times"
    _tell_stuck(tx, table.c.id == number, times)


def tell_stuck(tx: Transaction, patience: timedelta) -> None:
    """Tell of firings that have been due for longer than they should without a run that was launched, each once."""
    table = tables.firing
    waits = table.c.state.in_([FiringState.DUE.value, FiringState.CLAIMED.value]), table.c.since < tx.now - patience
    _tell_stuck(tx, and_(*waits, tables.binding.c.active), f"due for more than {patience.total_seconds():g} seconds")


def _tell_stuck(tx: Transaction, which: ColumnElement[bool], why: str) -> None:
    """Tell of the firings of which nobody has been told."""
    table = tables.firing
    rows = tx.connection.execute(
        select(table.c.id, table.c.occurrence, tables.binding.c.name)
        .join(tables.binding, tables.binding.c.id == table.c.binding_id)
        .where(which, table.c.stuck.is_not(True))
        .order_by(table.c.id)
    ).all()
    for row in rows:
        tx.connection.execute(update(table).where(table.c.id == row.id).values(stuck=True))
        events.tell(tx, EventKind.STUCK, binding=row.name, said=f"firing {row.id}, for {row.occurrence}: {why}")


def _still(tx: Transaction, claimed: Claimed) -> list[int]:
    """Those of claimed firings that are still their server's, and not begun."""
    table = tables.firing
    return list(
        tx.connection.execute(
            select(table.c.id).where(
                table.c.id.in_(claimed.firings),
                table.c.server == claimed.server,
                table.c.state == FiringState.CLAIMED.value,
            )
        ).scalars()
    )


def release(tx: Transaction, servers: Collection[str], held: Collection[int] = ()) -> None:
    """Let others take on what servers have claimed and will not begin; their runs have leases of their own.

    Args:
        tx: a writing transaction.
        servers: servers that have gone, or whose claims may have been made without their knowing that.
        held: the firings that they know of, which stay theirs.
    """
    table = tables.firing
    numbers = tx.connection.execute(
        select(table.c.id).where(table.c.server.in_(servers), table.c.state == FiringState.CLAIMED.value)
    ).scalars()
    _move(tx, [number for number in numbers if number not in held], FiringEvent.RELEASE)


def end(tx: Transaction, run: int, event: FiringEvent, *, lost: bool = False) -> None:
    """The run that ends firings has ended.

    Args:
        tx: a writing transaction.
        run: the run.
        event: what that means for its firings; those that are released are due again.
        lost: whether the server or the machine that did it was lost, whatever the reason.
    """
    table = tables.firing
    query = select(table.c.id).where(table.c.run_id == run, table.c.state == FiringState.RUNNING.value)
    numbers = list(tx.connection.execute(query).scalars())
    if event is not FiringEvent.RELEASE:
        _move(tx, numbers, event)
        return
    for number in numbers:
        _again(tx, number, tried=not lost, lost=lost)


def _move(
    tx: Transaction, firings: Sequence[int], event: FiringEvent, *, server: str | None = None, run: int | None = None
) -> None:
    """Take firings through an event, all of which it can happen to."""
    table = tables.firing
    for state in before(event):
        after = next_state(state, event)
        values: dict[str, object] = {"state": after.value}
        match event:
            case FiringEvent.CLAIM:
                values |= {"server": server}
            case FiringEvent.LAUNCH:
                values |= {"run_id": run}
            case FiringEvent.RELEASE:
                values |= {"server": None, "run_id": None}
                if state is FiringState.RUNNING:  # it was launched, and waits anew
                    values |= {"since": tx.now}
            case _:
                values |= {"ended": tx.now}
        tx.connection.execute(
            update(table).where(table.c.id.in_(firings), table.c.state == state.value).values(**values)
        )


def forget(tx: Transaction, before: datetime) -> None:
    """Forget firings that ended before a moment."""
    tx.connection.execute(delete(tables.firing).where(tables.firing.c.ended < before))


def firings(
    tx: Transaction,
    limit: int,
    binding: str | None = None,
    before: int | None = None,
    state: FiringState | None = None,
) -> list[Firing]:
    """The firings, of all bindings or one, newest first: those before a number or in a state, and at most so many.

    Raises:
        UnknownName: there is no such binding.
    """
    query = _told().limit(limit)
    if binding is not None:
        query = query.where(tables.firing.c.binding_id == binding_id(tx, binding))
    if before is not None:
        query = query.where(tables.firing.c.id < before)
    if state is not None:
        query = query.where(tables.firing.c.state == state.value)
    return [_firing(row) for row in tx.connection.execute(query)]


def of_run(tx: Transaction, run: int) -> list[Firing]:
    """The firings that a run is for, newest first."""
    return [_firing(row) for row in tx.connection.execute(_told().where(tables.firing.c.run_id == run))]


def last(tx: Transaction, names: Iterable[str]) -> dict[str, Firing]:
    """The last firing of each of some bindings that is on record."""
    binding, table = tables.binding, tables.firing
    newest = select(func.max(table.c.id)).where(table.c.binding_id == binding.c.id).correlate(binding)
    these = select(newest.scalar_subquery()).where(binding.c.name.in_(names))
    rows = tx.connection.execute(_told().where(table.c.id.in_(these)))
    return {row.name: _firing(row) for row in rows}


def held(tx: Transaction, names: Collection[str]) -> list[Firing]:
    """The firings that servers have claimed or run, newest first."""
    states = [FiringState.CLAIMED.value, FiringState.RUNNING.value]
    mine = tables.firing.c.state.in_(states), tables.firing.c.server.in_(names)
    return [_firing(row) for row in tx.connection.execute(_told().where(*mine))]


def _told() -> Select[tuple[object, ...]]:
    table = tables.firing
    return (
        select(table, tables.binding.c.name, tables.trigger.c.definition)
        .join(tables.binding, tables.binding.c.id == table.c.binding_id)
        .outerjoin(tables.trigger, tables.trigger.c.id == table.c.trigger_id)
        .order_by(table.c.id.desc())
    )


def _firing(row: Row[tuple[object, ...]]) -> Firing:
    return Firing(
        number=row.id,
        binding=row.name,
        trigger=None if row.definition is None else described(codec.trigger_from_json(row.definition)),
        occurrence=row.occurrence,
        time=row.time,
        state=FiringState(row.state),
        attempts=row.attempts,
        server=row.server,
        run=row.run_id,
        ended=row.ended,
    )
