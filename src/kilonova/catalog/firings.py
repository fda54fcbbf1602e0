"""Firings of triggers and their states; see `kilonova.model.firing`.

The state of a trigger and its firing are written in one transaction, and writing transactions are serialized: a
trigger fires exactly once per occurrence, however many servers evaluate it. A constraint of the table enforces the
same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from sqlalchemy import ColumnElement, Row, Select, and_, delete, func, insert, or_, select, update

from kilonova.catalog import codec, events, registry, tables
from kilonova.catalog.bindings import binding_id, tasks_of
from kilonova.catalog.database import Transaction, is_among
from kilonova.catalog.trigger_inputs import trigger_inputs
from kilonova.errors import LeaseLost
from kilonova.model.event import EventKind
from kilonova.model.firing import Firing, FiringEvent, FiringState, before, next_firing_state
from kilonova.model.run import RunFailure
from kilonova.model.task import Mode
from kilonova.model.trigger import ArrivalTrigger, RunTrigger, conditions_of, describe_trigger
from kilonova.schedule.batching import batch_firings
from kilonova.schedule.queueing import Waiting, select_bindings
from kilonova.schedule.trigger_evaluation import evaluate

ATTEMPTS = 3
"""Maximum number of attempts of a firing whose runs crash their processes or meet transient errors.

Runs that were lost with their whole server do not count, since they are unlikely to be the cause.
"""

LOSSES = 20
"""Maximum number of attempts of a firing whose runs are lost with their servers, which the firing may be crashing."""


@dataclass(frozen=True, slots=True)
class TriggerInterest:
    """Channels and bindings that a trigger depends on.

    Attributes:
        number: the trigger's number.
        channels: the channels on which it waits for data.
        bindings: the bindings for whose runs it waits.
    """

    number: int
    channels: frozenset[str]
    bindings: frozenset[str]


def trigger_interests(tx: Transaction) -> list[TriggerInterest]:
    """Return the interests of all active triggers, which determine the triggers to evaluate after an event."""
    rows = tx.connection.execute(
        select(tables.trigger.c.id, tables.trigger.c.definition).where(tables.trigger.c.active)
    )
    found = []
    for row in rows:
        items = conditions_of(codec.trigger_from_json(row.definition))
        found.append(
            TriggerInterest(
                row.id,
                frozenset(item.channel for item in items if isinstance(item, ArrivalTrigger)),
                frozenset(item.binding for item in items if isinstance(item, RunTrigger)),
            )
        )
    return found


def triggers_due(tx: Transaction) -> list[int]:
    """Return the triggers whose next check is due."""
    query = active_triggers().where(tables.trigger.c.next_check <= tx.now)
    return list(tx.connection.execute(query.with_only_columns(tables.trigger.c.id)).scalars())


def next_check(tx: Transaction) -> datetime | None:
    """Return the time of the next check of a trigger; None if no trigger waits for a time."""
    waits = active_triggers().where(tables.trigger.c.next_check.is_not(None))  # first by the index, no minimum over all
    query = waits.with_only_columns(tables.trigger.c.next_check).order_by(tables.trigger.c.next_check).limit(1)
    return tx.connection.execute(query).scalar()


def active_triggers() -> Select[tuple[int, str, object, object, datetime]]:
    """Return a query for the triggers that servers evaluate."""
    return (
        select(
            tables.trigger.c.id,
            tables.binding.c.name,
            tables.trigger.c.definition,
            tables.trigger.c.state,
            tables.trigger.c.next_check,
        )
        .join(tables.binding, tables.binding.c.id == tables.trigger.c.binding_id)
        .where(tables.trigger.c.active, tables.binding.c.active, ~tables.binding.c.paused)
    )


def fire(tx: Transaction, numbers: Collection[int]) -> list[str]:
    """Evaluate triggers, and record the firings of those that fire.

    Args:
        tx: a writing transaction.
        numbers: the triggers.

    Returns:
        The bindings that were fired.
    """
    rows = tx.connection.execute(active_triggers().where(is_among(tx, tables.trigger.c.id, numbers))).all()
    found = [(row, codec.trigger_from_json(row.definition), codec.state_from_json(row.state)) for row in rows]
    news = trigger_inputs(tx, [(trigger, state) for _, trigger, state in found])
    due = []
    for row, trigger, state in found:
        number, binding = row.id, row.name
        looked = evaluate(trigger, state, news, tx.now)
        if (looked.state, looked.next_check) != (state, row.next_check):
            values = {"state": codec.state_to_json(looked.state), "next_check": looked.next_check}
            tx.connection.execute(update(tables.trigger).where(tables.trigger.c.id == number).values(**values))
        if looked.occurrence is not None:
            _insert(tx, binding, number, looked.occurrence.name, looked.occurrence.time)
            due.append(binding)
    return due


def fire_manually(tx: Transaction, binding: str, who: str) -> None:
    """Fire a binding manually.

    Raises:
        NotFound: there is no such binding.
    """
    _insert(tx, binding, None, who, tx.now)


def _insert(tx: Transaction, binding: str, trigger: int | None, occurrence: str, time: datetime) -> None:
    tx.connection.execute(
        insert(tables.firing).values(
            binding_id=binding_id(tx, binding),
            trigger_id=trigger,
            occurrence=occurrence,
            time=time,
            state=FiringState.QUEUED.value,
            since=tx.now,
            stuck=False,
            attempts=0,
        )
    )
    events.record(tx, EventKind.FIRED, binding=binding, text=occurrence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Claim of a server on a binding and all its firings that were queued.

    Attributes:
        binding: its name.
        firings: the firings, which one run completes.
        server: the server.
    """

    binding: str
    firings: tuple[int, ...]
    server: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Unit of work of a worker: one binding, or several that were merged because they share inputs.

    Attributes:
        claims: the claims, each with a run of its own.
    """

    claims: tuple[Claim, ...]


def claim(tx: Transaction, server: str, room: int, limit: int | None) -> tuple[list[Batch], datetime | None]:
    """Claim queued firings, up to the capacity of the server.

    A binding that is running, or one of whose tasks another run has claimed, waits; its firings are later claimed
    together.

    Args:
        tx: a writing transaction.
        server: the server.
        room: the maximum number of batches that the server can start.
        limit: the maximum number of concurrent runs of a workflow; None for any number.

    Returns:
        The claimed batches, and the time when more becomes ready without further events; None if nothing does.
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
    columns = (binding.c.name, binding.c.workflow, binding.c.priority, binding.c.merge_window)
    waiting = [
        Waiting(
            binding=row.name,
            workflow=row.workflow,
            priority=row.priority,
            since=row.since,
            merge_window=None
            if row.attempts
            else row.merge_window,  # after a failed merged run, retried without merging
            reads=frozenset() if row.merge_window is None or row.attempts else _reads(tx, row.name),
        )
        for row in tx.connection.execute(
            select(*columns, func.min(firing.c.time).label("since"), func.max(firing.c.attempts).label("attempts"))
            .join(firing, firing.c.binding_id == binding.c.id)
            .where(firing.c.state == FiringState.QUEUED.value, binding.c.active)
            .group_by(*columns)
        )
        if row.name not in busy
    ]
    ready, next_check = batch_firings(waiting, tx.now)
    batches = []
    for batch in select_bindings(ready, running, room, limit):
        parts = []
        for one in batch:
            due = select(firing.c.id).where(firing.c.state == FiringState.QUEUED.value).order_by(firing.c.id)
            numbers = tuple(
                tx.connection.execute(due.where(firing.c.binding_id == binding_id(tx, one.binding))).scalars()
            )
            _move(tx, numbers, FiringEvent.CLAIM, server=server)
            parts.append(Claim(binding=one.binding, firings=numbers, server=server))
        batches.append(Batch(tuple(parts)))
    return batches, next_check


def _reads(tx: Transaction, binding: str) -> frozenset[tuple[str, int]]:
    """Return the channels that a binding would read and does not write, with their cursors, or `_NOW` for snapshots."""
    found = set()
    known = registry.tasks(tx, tasks_of(tx, binding))
    written = {channel for each in known.values() for channel in each.task.writes}
    for each in known.values():
        for port in each.task.variants[0].ports:
            if port.channel not in written:
                found.add((port.channel, _NOW if port.mode is Mode.ALL else each.cursor(port.channel)))
    return frozenset(found)


_NOW = -1
"""Placeholder for the newest point, for reads that do not depend on a cursor."""


def any_unended(tx: Transaction) -> bool:
    """Return whether there are firings that are not terminal and can proceed."""
    states = [state.value for state in FiringState if not state.ended]
    query = (
        select(tables.firing.c.id)
        .join(tables.binding, tables.binding.c.id == tables.firing.c.binding_id)
        .where(
            tables.firing.c.state.in_(states),
            or_(tables.firing.c.state != FiringState.QUEUED.value, tables.binding.c.active),
        )
    )
    return tx.connection.execute(query.limit(1)).first() is not None


def unended(tx: Transaction) -> dict[str, int]:
    """Return the number of firings that have not ended, by binding."""
    states = [state.value for state in FiringState if not state.ended]
    rows = tx.connection.execute(
        select(tables.binding.c.name, func.count().label("times"))
        .join(tables.firing, tables.firing.c.binding_id == tables.binding.c.id)
        .where(tables.firing.c.state.in_(states))
        .group_by(tables.binding.c.name)
    )
    return {row.name: row.times for row in rows}


def launch(tx: Transaction, claimed: Claim, run: int) -> None:
    """Record that a run of claimed firings has started.

    Raises:
        LeaseLost: another server has taken over some of the firings.
    """
    if len(_still(tx, claimed)) < len(claimed.firings):
        raise LeaseLost("another server has taken over the firing", binding=claimed.binding, hint="Wait for its run")
    _move(tx, claimed.firings, FiringEvent.LAUNCH, run=run)


def explicit(tx: Transaction, claimed: Claim) -> bool:
    """Return whether a binding was fired by a declared trigger or manually.

    The triggers of a task that is in no workflowette are not declared: new input makes it due.
    """
    implicit = select(tables.binding.c.implicit).where(
        tables.binding.c.name == claimed.binding, tables.binding.c.active
    )
    if not tx.connection.execute(implicit).scalar():
        return True
    firing = tables.firing
    by_hand = select(firing.c.id).where(firing.c.id.in_(claimed.firings), firing.c.trigger_id.is_(None))
    return tx.connection.execute(by_hand.limit(1)).first() is not None


def skip(tx: Transaction, claimed: Claim) -> None:
    """Record claimed firings as skipped, as there was nothing to do, if the server still holds the claim."""
    if mine := _still(tx, claimed):
        _move(tx, mine, FiringEvent.SKIP)
        events.record(tx, EventKind.SKIPPED, binding=claimed.binding)


def fail(tx: Transaction, claimed: Claim, error: str) -> None:
    """Record claimed firings as failed, as no run can be started, if the server still holds the claim."""
    if mine := _still(tx, claimed):
        _move(tx, mine, FiringEvent.FAIL)
        events.record(tx, EventKind.FAILED, binding=claimed.binding, text=error)


def requeue(tx: Transaction, claimed: Claim, *, counted: bool) -> None:
    """Queue claimed firings again that have not started.

    Args:
        tx: a writing transaction.
        claimed: the claim of the server.
        counted: whether this counts as an attempt, of which there is a maximum.
    """
    for number in _still(tx, claimed):
        _requeue(tx, number, tried=counted, lost=False)


def _requeue(tx: Transaction, number: int, *, tried: bool, lost: bool) -> None:
    """Queue a firing again, or fail it if it has reached the maximum of attempts or losses."""
    table = tables.firing
    known = tx.connection.execute(select(table.c.attempts, table.c.lost).where(table.c.id == number)).one()
    attempts, losses = known.attempts + tried, (known.lost or 0) + lost
    tx.connection.execute(update(table).where(table.c.id == number).values(attempts=attempts, lost=losses))
    if attempts < ATTEMPTS and losses < LOSSES:
        _move(tx, [number], FiringEvent.RELEASE)
        return
    _move(tx, [number], FiringEvent.FAIL)
    times = f"failed in all {attempts} attempts" if attempts >= ATTEMPTS else f"lost with its server {losses} times"
    _report_stuck(tx, table.c.id == number, times)


def report_stuck(tx: Transaction, patience: timedelta) -> None:
    """Record an event for each firing that has waited for its run for longer than `patience`, once per firing."""
    table = tables.firing
    waits = table.c.state.in_([FiringState.QUEUED.value, FiringState.CLAIMED.value]), table.c.since < tx.now - patience
    _report_stuck(tx, and_(*waits, tables.binding.c.active), f"due for more than {patience.total_seconds():g} seconds")


def _report_stuck(tx: Transaction, which: ColumnElement[bool], why: str) -> None:
    """Record an event for each of the firings that has not been reported as stuck before."""
    table = tables.firing
    rows = tx.connection.execute(
        select(table.c.id, table.c.occurrence, tables.binding.c.name)
        .join(tables.binding, tables.binding.c.id == table.c.binding_id)
        .where(which, table.c.stuck.is_not(True))
        .order_by(table.c.id)
    ).all()
    for row in rows:
        tx.connection.execute(update(table).where(table.c.id == row.id).values(stuck=True))
        events.record(tx, EventKind.STUCK, binding=row.name, text=f"firing {row.id}, for {row.occurrence}: {why}")


def _still(tx: Transaction, claimed: Claim) -> list[int]:
    """Return the claimed firings that their server still holds and has not started."""
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
    """Queue firings again that servers have claimed and will not start; runs already started have their own leases.

    Args:
        tx: a writing transaction.
        servers: servers that have ended, or that may not know of all of their claims.
        held: the firings that they know of, which stay claimed.
    """
    table = tables.firing
    numbers = tx.connection.execute(
        select(table.c.id).where(table.c.server.in_(servers), table.c.state == FiringState.CLAIMED.value)
    ).scalars()
    _move(tx, [number for number in numbers if number not in held], FiringEvent.RELEASE)


def end(tx: Transaction, run: int, failure: RunFailure | None) -> None:
    """Apply the end of a run to its firings that have not ended.

    Args:
        tx: a writing transaction.
        run: the run.
        failure: the kind of its failure; None if it has succeeded.
    """
    table = tables.firing
    query = select(table.c.id).where(table.c.run_id == run, table.c.state == FiringState.RUNNING.value)
    numbers = list(tx.connection.execute(query).scalars())
    match failure:
        case None:
            _move(tx, numbers, FiringEvent.SUCCEED)
        case RunFailure.FINAL:
            _move(tx, numbers, FiringEvent.FAIL)
        case RunFailure.TRANSIENT | RunFailure.LOST:
            lost = failure is RunFailure.LOST
            for number in numbers:
                _requeue(tx, number, tried=not lost, lost=lost)
        case _:
            assert_never(failure)


def _move(
    tx: Transaction, firings: Sequence[int], event: FiringEvent, *, server: str | None = None, run: int | None = None
) -> None:
    """Apply an event to firings; those in a state that does not allow it are left unchanged."""
    table = tables.firing
    for state in before(event):
        after = next_firing_state(state, event)
        values: dict[str, object] = {"state": after.value}
        match event:
            case FiringEvent.CLAIM:
                values |= {"server": server}
            case FiringEvent.LAUNCH:
                values |= {"run_id": run}
            case FiringEvent.RELEASE:
                values |= {"server": None, "run_id": None}
                if state is FiringState.RUNNING:  # it was launched, and now waits again
                    values |= {"since": tx.now}
            case _:
                values |= {"ended": tx.now}
        tx.connection.execute(
            update(table).where(is_among(tx, table.c.id, firings), table.c.state == state.value).values(**values)
        )


def forget(tx: Transaction, before: datetime) -> None:
    """Delete firings that ended before a time."""
    tx.connection.execute(delete(tables.firing).where(tables.firing.c.ended < before))


def firings(
    tx: Transaction,
    limit: int,
    binding: str | None = None,
    before: int | None = None,
    state: FiringState | None = None,
) -> list[Firing]:
    """Return firings, of all bindings or one, newest first, optionally before a number or in a state, at most `limit`.

    Raises:
        NotFound: there is no such binding.
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
    """Return the firings of a run, newest first."""
    return [_firing(row) for row in tx.connection.execute(_told().where(tables.firing.c.run_id == run))]


def last(tx: Transaction, names: Iterable[str]) -> dict[str, Firing]:
    """Return the last recorded firing of each of the given bindings, by binding."""
    binding, table = tables.binding, tables.firing
    newest = select(func.max(table.c.id)).where(table.c.binding_id == binding.c.id).correlate(binding)
    these = select(newest.scalar_subquery()).where(binding.c.name.in_(names))
    rows = tx.connection.execute(_told().where(table.c.id.in_(these)))
    return {row.name: _firing(row) for row in rows}


def held(tx: Transaction, names: Collection[str]) -> list[Firing]:
    """Return the firings that the given servers have claimed or are running, newest first."""
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
        trigger=None if row.definition is None else describe_trigger(codec.trigger_from_json(row.definition)),
        occurrence=row.occurrence,
        time=row.time,
        state=FiringState(row.state),
        attempts=row.attempts,
        server=row.server,
        run=row.run_id,
        ended=row.ended,
    )
