"""Firings and the transitions between their states; see `kilonova.model.firing`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import assert_never

from sqlalchemy import ColumnElement, Row, Select, Update, and_, bindparam, delete, func, insert, or_, select, update

from kilonova.catalog import codec, events, tables
from kilonova.catalog.bindings import binding_id, implicit_among
from kilonova.catalog.database import Transaction, is_among, is_given
from kilonova.errors import LeaseLost, NotFound
from kilonova.model.event import EventKind
from kilonova.model.firing import Firing, FiringEvent, FiringState, before, next_firing_state
from kilonova.model.run import RunFailure
from kilonova.model.trigger import Occurrence, describe_trigger
from kilonova.schedule.queueing import QueuedFiring
from kilonova.schedule.run_scope import ALL_DUE, RunScope

ATTEMPTS = 3
"""Maximum number of attempts of a firing whose runs crash their processes or meet transient errors.

Runs that were lost with their whole server do not count, since they are unlikely to be the cause.
"""

LOSSES = 20
"""Maximum number of attempts of a firing whose runs are lost with their servers, which the firing may be crashing."""


def fire_manually(tx: Transaction, binding: str, who: str, *, due_only: bool = False) -> int:
    """Fire a binding manually, and return the number of the firing.

    Args:
        tx: a writing transaction.
        binding: the binding.
        who: the user, as text.
        due_only: whether only those of its tasks are to run that are due.

    Raises:
        NotFound: there is no such binding.
    """
    binding_id(tx, binding)
    occurrence = Occurrence(who, tx.now)
    (number,) = queue(tx, [QueuedFiring(binding=binding, trigger=None, occurrence=occurrence, due_only=due_only)])
    return number


def withdraw(tx: Transaction, number: int) -> bool:
    """Delete a queued firing, and return whether it was still queued."""
    table = tables.firing
    queued = table.c.id == number, table.c.state == FiringState.QUEUED.value
    return bool(tx.connection.execute(delete(table).where(*queued)).rowcount)


def queue(tx: Transaction, queued: Sequence[QueuedFiring]) -> list[int]:
    """Queue firings of active bindings, and return their numbers."""
    if not queued:
        return []
    binding, table = tables.binding, tables.firing
    names = is_among(tx, binding.c.name, {each.binding for each in queued})
    ids = {row.name: row.id for row in tx.connection.execute(select(binding.c.name, binding.c.id).where(names))}
    rows = [
        {
            "binding_id": ids[each.binding],
            "trigger_id": each.trigger,
            "occurrence": each.occurrence.name,
            "time": each.occurrence.time,
            "state": FiringState.QUEUED.value,
            "since": tx.now,
            "stuck": False,
            "attempts": 0,
            "due_only": each.due_only,
            "scope": None if each.scope is None else codec.scope_to_json(each.scope),
        }
        for each in queued
    ]
    numbers = tx.connection.execute(insert(table).returning(table.c.id, sort_by_parameter_order=True), rows).scalars()
    found = list(numbers)
    events.record_all(tx, EventKind.FIRED, [(each.binding, each.occurrence.name, None) for each in queued])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Claim of a server on queued firings of a binding.

    Attributes:
        binding: its name.
        firings: the firings, which one run completes.
        server: the server.
        scope: what the run executes and how far it reads.
    """

    binding: str
    firings: tuple[int, ...]
    server: str
    scope: RunScope = ALL_DUE


@dataclass(frozen=True, slots=True)
class Batch:
    """Unit of work of a worker.

    Attributes:
        claims: the claims, each with a run of its own.
        merged: whether the runs share inputs and are executed side by side; else they are started together, and
            executed in turn.
    """

    claims: tuple[Claim, ...]
    merged: bool = False


def claim(tx: Transaction, claims: Iterable[Claim], server: str) -> None:
    """Record that a server has claimed queued firings."""
    numbers = [number for each in claims for number in each.firings]
    if numbers:
        _move(tx, FiringEvent.CLAIM, numbers, server=server)


def any_unended(tx: Transaction) -> bool:
    """Return whether there are firings that are not terminal and can proceed."""
    return tx.connection.execute(unended_query().limit(1)).first() is not None


def unended_query() -> Select[tuple[int]]:
    """Return a query for the firings that are not terminal and can proceed."""
    states = [state.value for state in FiringState if not state.ended]
    return (
        select(tables.firing.c.id)
        .join(tables.binding, tables.binding.c.id == tables.firing.c.binding_id)
        .where(
            tables.firing.c.state.in_(states),
            or_(tables.firing.c.state != FiringState.QUEUED.value, tables.binding.c.active),
        )
    )


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


def launch(tx: Transaction, started: Collection[tuple[Claim, int]]) -> None:
    """Record that runs of claimed firings have started, each given with the number of its run.

    Raises:
        LeaseLost: another server has taken over some of the firings.
    """
    launched = FiringEvent.LAUNCH
    (claimed,) = before(launched)
    moves = {"before": claimed.value, "after": next_firing_state(claimed, launched).value}
    rows = [
        moves | {"number": number, "owner": claim.server, "run": run}
        for claim, run in started
        for number in claim.firings
    ]
    if rows and tx.connection.execute(_LAUNCHED, rows).rowcount < len(rows):
        names = ", ".join(sorted(claim.binding for claim, _ in started))
        raise LeaseLost("another server has taken over the firing", binding=names, hint="Wait for its run")


_LAUNCHED = (
    update(tables.firing)
    .where(tables.firing.c.id == bindparam("number"), tables.firing.c.state == bindparam("before"))
    .where(tables.firing.c.server == bindparam("owner"))
    .values(run_id=bindparam("run"), state=bindparam("after"))
)


def explicit(tx: Transaction, claims: Collection[Claim]) -> set[str]:
    """Return the bindings among claimed ones of which a declared trigger, or a person, started all tasks.

    The others run only those tasks that are due. The triggers of a task that is in no workflowette are not declared:
    new input makes it due.
    """
    numbers = {number: each.binding for each in claims for number in each.firings}
    rows = tx.connection.execute(_explicit(tx.connection.dialect.name), {"numbers": list(numbers)})
    found = [(numbers[row.id], row.trigger_id) for row in rows]
    implicit = implicit_among(tx, (binding for binding, trigger in found if trigger is not None))
    return {binding for binding, trigger in found if trigger is None or binding not in implicit}


@cache
def _explicit(dialect: str) -> Select[tuple[int, int | None]]:
    firing = tables.firing.c
    query = select(firing.id, firing.trigger_id)
    return query.where(is_given(dialect, firing.id, "numbers"), firing.due_only.is_(False))


def skip(tx: Transaction, claimed: Claim, reason: str) -> None:
    """Record claimed firings as skipped, as there was nothing to do, if the server still holds the claim."""
    if _move(tx, FiringEvent.SKIP, claimed.firings, of=claimed.server, reason=reason):
        events.record(tx, EventKind.SKIPPED, binding=claimed.binding, text=reason)


def fail(tx: Transaction, claimed: Claim, error: str) -> None:
    """Record claimed firings as failed, as no run can be started, if the server still holds the claim."""
    if mine := _held_claims(tx, claimed):
        _move(tx, FiringEvent.FAIL, mine, reason=error)
        events.record(tx, EventKind.FAILED, binding=claimed.binding, text=error)


def requeue(tx: Transaction, claimed: Claim, *, counted: bool) -> None:
    """Queue claimed firings again that have not started.

    Args:
        tx: a writing transaction.
        claimed: the claim of the server.
        counted: whether this counts as an attempt, of which there is a maximum.
    """
    for number in _held_claims(tx, claimed):
        _requeue(tx, number, tried=counted, lost=False)


def _requeue(tx: Transaction, number: int, *, tried: bool, lost: bool) -> None:
    """Queue a firing again, or fail it if it has reached the maximum of attempts or losses."""
    table = tables.firing
    known = tx.connection.execute(select(table.c.attempts, table.c.lost).where(table.c.id == number)).one()
    attempts, losses = known.attempts + tried, (known.lost or 0) + lost
    tx.connection.execute(update(table).where(table.c.id == number).values(attempts=attempts, lost=losses))
    if attempts < ATTEMPTS and losses < LOSSES:
        _move(tx, FiringEvent.RELEASE, [number])
        return
    times = f"failed in all {attempts} attempts" if attempts >= ATTEMPTS else f"lost with its server {losses} times"
    _move(tx, FiringEvent.FAIL, [number], reason=times)
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


def _held_claims(tx: Transaction, claimed: Claim) -> list[int]:
    """Return the claimed firings that their server still holds and has not started."""
    table = tables.firing
    mine = is_among(tx, table.c.id, claimed.firings), table.c.server == claimed.server
    query = select(table.c.id).where(*mine, table.c.state == FiringState.CLAIMED.value)
    return list(tx.connection.execute(query).scalars())


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
    if lost := [number for number in numbers if number not in held]:
        _move(tx, FiringEvent.RELEASE, lost)


def end(tx: Transaction, run: int, failure: RunFailure | None, reason: str | None = None) -> None:
    """Apply the end of a run to its firings that have not ended.

    Args:
        tx: a writing transaction.
        run: the run.
        failure: the kind of its failure; None if it has succeeded.
        reason: why it came to nothing; None if it did not, or if another run is to follow.
    """
    table = tables.firing
    match failure:
        case None:
            _move(tx, FiringEvent.SUCCEED, of=run, reason=reason)
        case RunFailure.FINAL:
            _move(tx, FiringEvent.FAIL, of=run, reason=reason)
        case RunFailure.TRANSIENT | RunFailure.LOST:
            lost = failure is RunFailure.LOST
            query = select(table.c.id).where(table.c.run_id == run, table.c.state == FiringState.RUNNING.value)
            for number in tx.connection.execute(query).scalars().all():
                _requeue(tx, number, tried=not lost, lost=lost)
        case _:
            assert_never(failure)


def _move(
    tx: Transaction,
    event: FiringEvent,
    firings: Sequence[int] | None = None,
    *,
    of: str | int | None = None,
    **values: object,
) -> int:
    """Apply an event to firings, and return their number; those in a state that does not allow it are left unchanged.

    Args:
        tx: a writing transaction.
        event: the event; no state occurs both before and after it, so no firing is moved twice.
        firings: their numbers; None for all.
        of: only those that a server has claimed, or those of a run.
        values: the server that claims them, the run that is launched, or the reason why they come to nothing.
    """
    moved, dialect = 0, tx.connection.dialect.name
    for state in before(event):
        given: dict[str, object] = {"before": state.value, "numbers": firings and list(firings), "owner": of}
        match event:
            case FiringEvent.CLAIM | FiringEvent.LAUNCH:
                after = values
            case FiringEvent.RELEASE:
                after = {"server": None, "run_id": None}
                if state is FiringState.RUNNING:  # it was launched, and now waits again
                    after |= {"since": tx.now}
            case _:
                after = {"ended": tx.now, **values}
        owner = "" if of is None else "server" if isinstance(of, str) else "run_id"
        query = _moved(dialect, firings is not None, owner)
        given = {name: value for name, value in given.items() if value is not None}
        moved += tx.connection.execute(query, given | after | {"state": next_firing_state(state, event).value}).rowcount
    return moved


@cache
def _moved(dialect: str, some: bool, owner: str) -> Update:
    """Return an update of firings in the state `before`, with `numbers` or all, whose column `owner` has that value."""
    firing = tables.firing.c
    query = update(tables.firing).where(firing.state == bindparam("before"))
    if some:
        query = query.where(is_given(dialect, firing.id, "numbers"))
    return query.where(firing[owner] == bindparam("owner")) if owner else query


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
    query = _query().limit(limit)
    if binding is not None:
        query = query.where(tables.firing.c.binding_id == binding_id(tx, binding))
    if before is not None:
        query = query.where(tables.firing.c.id < before)
    if state is not None:
        query = query.where(tables.firing.c.state == state.value)
    return [_firing(row) for row in tx.connection.execute(query)]


def find(tx: Transaction, number: int) -> Firing | None:
    """Return a firing; None if there is no such firing."""
    row = tx.connection.execute(_query().where(tables.firing.c.id == number)).first()
    return None if row is None else _firing(row)


def firing(tx: Transaction, number: int) -> Firing:
    """Return a firing.

    Raises:
        NotFound: there is no such firing, or it is no longer retained.
    """
    if (found := find(tx, number)) is None:
        raise NotFound(f"there is no firing {number}", hint="Servers delete firings after history_retention_days days")
    return found


def of_run(tx: Transaction, run: int) -> list[Firing]:
    """Return the firings of a run, newest first."""
    return [_firing(row) for row in tx.connection.execute(_query().where(tables.firing.c.run_id == run))]


def last(tx: Transaction, names: Iterable[str]) -> dict[str, Firing]:
    """Return the last recorded firing of each of the given bindings, by binding."""
    binding, table = tables.binding, tables.firing
    newest = select(func.max(table.c.id)).where(table.c.binding_id == binding.c.id).correlate(binding)
    these = select(newest.scalar_subquery()).where(binding.c.name.in_(names))
    rows = tx.connection.execute(_query().where(table.c.id.in_(these)))
    return {row.name: _firing(row) for row in rows}


def held(tx: Transaction, names: Collection[str]) -> list[Firing]:
    """Return the firings that the given servers have claimed or are running, newest first."""
    states = [FiringState.CLAIMED.value, FiringState.RUNNING.value]
    mine = tables.firing.c.state.in_(states), tables.firing.c.server.in_(names)
    return [_firing(row) for row in tx.connection.execute(_query().where(*mine))]


def _query() -> Select[tuple[object, ...]]:
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
        reason=row.reason,
    )
