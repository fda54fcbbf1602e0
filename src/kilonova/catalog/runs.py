"""Runs in the catalog: start, commit and failure, each in one transaction, under a lease.

The commit protocol, with what a crash after each step leaves behind:

1. `start`: record the run, its reserved points, its claims on tasks and its pins. A crash leaves a run whose lease
   expires.
2. `channel_store.new_block` before each block is written: a crash leaves files under a name that the catalog knows.
3. `commit`: blocks are live, points filled, cursors moved, provenance recorded, claims and pins released: all or none,
   and only if the run is still running. Or `fail`, or `cancel`: points are cancelled, blocks marked for deletion.
4. Files of blocks marked for deletion are deleted, then `channel_store.mark_deleted` records it. A crash leaves marked
   blocks, whose files the next process deletes again.

`expire` does what `fail` does for runs whose lease has expired.

Whichever process ends a run, and however, all that is to happen then follows from rows of the catalog, in one place
(`_end`): its firings end or are queued again, an event is recorded, and what it holds is released. Watched files and
idempotency keys need nothing: those of a run that neither is running nor has succeeded are free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from sqlalchemy import Row, Select, Text, bindparam, cast, delete, func, insert, literal, or_, select, update

from kilonova.catalog import codec, events, firings, tables
from kilonova.catalog.channel_store import (
    DOOMED,
    LIVE,
    WRITING,
    channel,
    channel_id,
    extend_point,
    fill_point,
    look_up_ids,
    mark_merged,
    mark_written,
    publish,
    reserve,
    set_schema,
)
from kilonova.catalog.database import Transaction, insert_all, is_among, is_given
from kilonova.catalog.firings import Claim
from kilonova.catalog.pins import add_pins, holder_of, pin, unpin
from kilonova.catalog.registry import move_cursors, task_id
from kilonova.catalog.validity import note_readable
from kilonova.errors import Conflict, InvalidState, NotFound
from kilonova.model.channel import PointState
from kilonova.model.event import EventKind
from kilonova.model.progress import RunProgress
from kilonova.model.run import (
    CommitResult,
    Committed,
    LeaseExpired,
    Run,
    RunEvent,
    RunFailure,
    RunInput,
    RunKind,
    RunOutput,
    RunState,
    next_state,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """New cursors of a task, to be recorded when its run commits."""

    task: str
    logic: int
    points: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """Run to be started.

    Attributes:
        kind: the kind of run.
        tasks: the tasks that it runs; no other run may have one of them at the same time.
        writes: the channels on which it reserves a point; each repeated once per task of the run that writes it.
        binding: the binding that it runs; None if it is not one binding.
        pins: the numbers of the live blocks that it reads.
        claim: the claimed firings that it completes; None if it was not fired.
    """

    kind: RunKind
    tasks: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    binding: str | None = None
    pins: tuple[int, ...] = ()
    claim: Claim | None = None


def start(
    tx: Transaction,
    *,
    kind: RunKind,
    tasks: Iterable[str],
    writes: Iterable[str],
    owner: str,
    lease: timedelta,
    binding: str | None = None,
    pins: Iterable[int] = (),
) -> tuple[int, dict[str, int]]:
    """Start a run, as `start_all` does: see `NewRun` for the parameters.

    Returns:
        The run's number, and the reserved point per channel: the first of several, which are consecutive.

    Raises:
        Conflict: another run has claimed one of the tasks.
    """
    run = NewRun(kind=kind, tasks=tuple(tasks), writes=tuple(writes), binding=binding, pins=tuple(pins))
    (started,) = start_all(tx, [run], owner=owner, lease=lease)
    return started


def start_all(
    tx: Transaction, starting: Sequence[NewRun], *, owner: str, lease: timedelta
) -> list[tuple[int, dict[str, int]]]:
    """Start runs: claim their tasks, reserve the next point of every channel that they write, and pin what they read.

    Args:
        tx: a writing transaction.
        starting: the runs, at least one.
        owner: the process that executes them.
        lease: the duration for which they are protected from takeover without a heartbeat.

    Returns:
        Of each its number, and the reserved point per channel: the first of several, which are consecutive.

    Raises:
        Conflict: another run has claimed one of the tasks, or two of these runs have the same task.
        LeaseLost: another server has taken over some of the claimed firings.
    """
    ids = _unclaimed(tx, [name for run in starting for name in run.tasks])
    begun = {"state": RunState.RUNNING.value, "owner": owner, "started": tx.now, "lease_until": tx.now + lease}
    rows = [begun | {"kind": run.kind.value, "tasks": list(run.tasks), "binding": run.binding} for run in starting]
    numbers = list(tx.connection.execute(_NEW_RUNS, rows).scalars())
    launched = list(zip(starting, numbers, strict=True))
    texts = [(run.binding, ", ".join(run.tasks) or run.kind.value, number) for run, number in launched]
    events.record_all(tx, EventKind.LAUNCHED, texts)
    claimed = [{"task_id": ids[name], "run_id": number} for run, number in launched for name in run.tasks]
    insert_all(tx, tables.claim, claimed)
    add_pins(tx, {holder_of(number): set(run.pins) for run, number in launched}, lease)
    points = reserve(tx, [(number, run.writes) for run, number in launched])
    firings.launch(tx, [(run.claim, number) for run, number in launched if run.claim is not None])
    return list(zip(numbers, points, strict=True))


_NEW_RUNS = insert(tables.run).returning(tables.run.c.id, sort_by_parameter_order=True)


def _unclaimed(tx: Transaction, tasks: Sequence[str]) -> dict[str, int]:
    """Return the ids of tasks, by name, each of which occurs once and none of which a run has claimed."""
    if not tasks:
        return {}
    rows = tx.connection.execute(_claims(tx.connection.dialect.name), {"names": list(tasks)})
    found = {row.name: row for row in rows}
    for name, count in Counter(tasks).items():
        if name not in found:
            task_id(tx, name)
        if count > 1:
            raise Conflict("two runs that are to start together have this task", task=name, hint="Start one of them")
        if (holder := found[name].run_id) is not None:
            raise Conflict("another run has this task", task=name, run=int(holder), hint="Wait until it has ended")
    return {name: found[name].id for name in tasks}


@cache
def _claims(dialect: str) -> Select[Any]:
    task, claim = tables.task.c, tables.claim
    query = select(task.id, task.name, claim.c.run_id).outerjoin(claim, claim.c.task_id == task.id)
    return query.where(is_given(dialect, task.name, "names"))


def renew_lease(tx: Transaction, run: int, lease: timedelta) -> bool:
    """Renew the lease of a run, and its pins.

    Returns:
        Whether the run is still running.
    """
    result = tx.connection.execute(
        update(tables.run)
        .where(tables.run.c.id == run, tables.run.c.state == RunState.RUNNING.value)
        .values(lease_until=tx.now + lease)
    )
    tx.connection.execute(update(tables.pin).where(tables.pin.c.holder == holder_of(run)).values(until=tx.now + lease))
    return bool(result.rowcount)


def is_running(tx: Transaction, run: int) -> bool:
    """Return whether a run is still running, without renewing its lease."""
    state = tx.connection.execute(select(tables.run.c.state).where(tables.run.c.id == run)).scalar()
    return state == RunState.RUNNING.value


def note_progress(tx: Transaction, run: int, progress: RunProgress) -> None:
    """Record the progress of a run; do nothing if it has ended."""
    tx.connection.execute(
        update(tables.run)
        .where(tables.run.c.id == run, tables.run.c.state == RunState.RUNNING.value)
        .values(progress=codec.progress_to_json(progress))
    )


def commit(
    tx: Transaction,
    run: int,
    *,
    inputs: Iterable[RunInput],
    outputs: Iterable[RunOutput],
    advances: Iterable[Advance],
) -> CommitResult:
    """Publish all outputs of a run and the new cursors of its tasks atomically.

    Returns:
        `Committed`; or `LeaseExpired` if the run was taken over or cancelled, in which case nothing was published.
    """
    if (ended := _stop(tx, run, RunEvent.COMMIT, None)) is None:
        return LeaseExpired()
    written, read, moved = tuple(outputs), tuple(inputs), tuple(advances)
    advanced = [channel for each in moved for channel, _ in each.points]
    look_up_ids(tx, [*(each.channel for each in written), *(each.channel for each in read), *advanced])
    for output in written:
        _publish_output(tx, output, run)
    insert_all(tx, tables.run_output, [_output_row(tx, run, output) for output in written])
    _record_inputs(tx, run, read)
    for advance in moved:
        move_cursors(tx, advance.task, advance.logic, advance.points)
    unchanged = all(output.block is None for output in written)
    _settle(tx, run, RunEvent.COMMIT, ended, None, "its run changed nothing" if unchanged else None)
    return Committed()


def _publish_output(tx: Transaction, output: RunOutput, run: int) -> None:
    """Place the block of an output, if there is one, and fill its point; else the point before it reflects its version.

    Raises:
        NotFound: the channel was dropped while the block was being written.
        Conflict: the block no longer exists.
    """
    channel, block = channel_id(tx, output.channel), output.block
    if block is None:  # a point that is not filled is cancelled at the end
        if output.method is not None:
            extend_point(tx, output.channel, output.version, run, before=output.point)
        return
    here = tables.point.c.channel_id == channel, tables.point.c.number == output.point
    point = tx.connection.execute(select(tables.point.c.state).where(*here)).scalar()
    if point is None:  # the channel has been declared again: its points continue the numbers of the dropped one
        raise NotFound(
            "the channel was dropped while it was being written",
            channel=output.channel,
            hint="Apply the workflow again, and repeat the run",
        )
    publish(tx, output.channel, block)
    if output.merges:
        mark_merged(tx, output.channel, output.merges, block.number)
    if point == PointState.RESERVED.value:  # not what a compaction writes, maybe in columns of before
        _adopt_schema(tx, output)
        fill_point(tx, output.channel, output.point, output.version)


def _output_row(tx: Transaction, run: int, output: RunOutput) -> dict[str, Any]:
    block, size = output.block, output.input_size
    return {
        "run_id": run,
        "channel_id": channel_id(tx, output.channel),
        "point": output.point,
        "block_id": None if block is None else block.number,
        "task": output.task,
        "reason": output.reason,
        "seconds": output.seconds,
        "method": None if output.method is None else output.method.value,
        "change_bytes": None if size is None else size.change,
        "whole_bytes": None if size is None else size.whole,
        "moved": None if size is None else size.moved,
        "estimates": codec.estimates_to_json(output.estimates) if output.estimates else None,
    }


def _record_inputs(tx: Transaction, run: int, inputs: Sequence[RunInput]) -> None:
    insert_all(
        tx,
        tables.run_input,
        [
            {
                "run_id": run,
                "task": item.task,
                "port": item.port,
                "channel_id": channel_id(tx, item.channel),
                "start": item.start,
                "end": item.end,
            }
            for item in inputs
        ],
    )
    blocks = {(item.task, channel_id(tx, item.channel), block) for item in inputs for block in item.blocks}
    insert_all(
        tx,
        tables.run_input_block,
        [
            {"run_id": run, "task": task, "channel_id": channel, "block_id": block}
            for task, channel, block in sorted(blocks)
        ],
    )


def _adopt_schema(tx: Transaction, output: RunOutput) -> None:
    """Set the schema of a channel declared without one to that of its first block, or of a later block that differs."""
    assert output.block is not None
    known = channel(tx, output.channel)
    if known.schema is None or (known.adopts and known.schema != output.block.schema):
        set_schema(tx, output.channel, output.block.schema)


def fail(tx: Transaction, run: int, error: str) -> bool:
    """End a run that did not succeed: cancel its points and mark its blocks for deletion.

    Args:
        tx: a writing transaction.
        run: the run.
        error: the error, as text for users.

    Returns:
        Whether the run was still running.
    """
    return _end(tx, run, RunEvent.FAIL, error, RunFailure.FINAL)


def cancel(tx: Transaction, run: int, who: str) -> None:
    """Cancel a run: end it as `fail` does, without queueing its firings again.

    Args:
        tx: a writing transaction.
        run: the run.
        who: the user that cancels it.

    Raises:
        NotFound: there is no such run.
        InvalidState: it has already ended.
    """
    if not _end(tx, run, RunEvent.CANCEL, f"cancelled by {who}", RunFailure.FINAL):
        found = find_run(tx, run)
        how = "" if found.error is None else f": {found.error}"
        raise InvalidState(
            f"the run has already ended, as {found.state.value}{how}",
            run=run,
            hint="Only a running run can be cancelled",
        )


def any_expired(tx: Transaction) -> bool:
    """Return whether there are runs or pins for `expire` to end."""
    return bool(tx.connection.execute(_ANY_EXPIRED, {"now": tx.now}).scalar())


_NOW = bindparam("now", type_=tables.UtcTime())
_EXPIRED = select(tables.run).where(tables.run.c.state == RunState.RUNNING.value, tables.run.c.lease_until < _NOW)
_ANY_EXPIRED = select(or_(_EXPIRED.exists(), select(tables.pin.c.holder).where(tables.pin.c.until < _NOW).exists()))


def expire(tx: Transaction) -> list[Run]:
    """End the runs whose lease has expired, as `fail` does, and delete expired pins.

    Returns:
        Those runs, in their state before.
    """
    expired = [run_from(row) for row in tx.connection.execute(_EXPIRED, {"now": tx.now})]
    for run in expired:
        reason = f"the process {run.owner} stopped sending heartbeats"
        _end(tx, run.number, RunEvent.EXPIRE, reason, RunFailure.LOST)
    tx.connection.execute(delete(tables.pin).where(tables.pin.c.until < tx.now))
    return expired


_KINDS = {
    RunEvent.COMMIT: EventKind.SUCCEEDED,
    RunEvent.FAIL: EventKind.FAILED,
    RunEvent.CANCEL: EventKind.CANCELLED,
    RunEvent.EXPIRE: EventKind.ABANDONED,
}


def running_of(tx: Transaction, owner: str) -> list[int]:
    """Return the running runs of a process."""
    query = select(tables.run.c.id).where(tables.run.c.state == RunState.RUNNING.value, tables.run.c.owner == owner)
    return [int(number) for number in tx.connection.execute(query).scalars()]


def abandon(tx: Transaction, owner: str, error: str, failure: RunFailure, *, in_turn: bool = False) -> list[int]:
    """End the runs of a process that is known to have ended, without waiting for their leases to expire.

    Args:
        tx: a writing transaction.
        owner: the process.
        error: the error, as text for users.
        failure: the kind of the failure.
        in_turn: whether it executed them in turn: then only the first can have been the cause, the others are lost.

    Returns:
        The numbers of the runs.
    """
    numbers = sorted(running_of(tx, owner))
    for number in numbers:
        cause = not in_turn or number == numbers[0]
        _end(tx, number, RunEvent.EXPIRE, error, failure if cause else RunFailure.LOST)
    return numbers


def _end(tx: Transaction, run: int, event: RunEvent, error: str | None, failure: RunFailure | None) -> bool:
    """End a run, with all that follows from rows of the catalog.

    Args:
        tx: a writing transaction.
        run: the run.
        event: the event that ends it.
        error: the error, as text for users; None if it has succeeded.
        failure: the kind of the failure; None if it has succeeded.

    Returns:
        Whether the run was still running.
    """
    if (ended := _stop(tx, run, event, error)) is None:
        return False
    _settle(tx, run, event, ended, failure, ended.error)
    return True


@dataclass(frozen=True, slots=True)
class _EndedRun:
    """Run that has ended: its binding and error, for the event about its end, and whether it had unpublished blocks."""

    binding: str | None
    error: str
    wrote: bool


def _stop(tx: Transaction, run: int, event: RunEvent, error: str | None) -> _EndedRun | None:
    """Record that a run has ended; return None if it had ended before."""
    printable = error and error.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    after = {"state": next_state(RunState.RUNNING, event).value, "ended": tx.now, "error": printable, "progress": None}
    ended = tx.connection.execute(_STOP, {"number": run, **after}).first()
    return None if ended is None else _EndedRun(ended.binding, printable or "", ended.wrote)


_UNPUBLISHED = select(tables.block.c.id).where(
    tables.block.c.run_id == bindparam("number"), tables.block.c.state == WRITING
)
_STOP = (
    update(tables.run)
    .where(tables.run.c.id == bindparam("number"), tables.run.c.state == RunState.RUNNING.value)
    .returning(tables.run.c.binding, _UNPUBLISHED.exists().label("wrote"))
)


def _settle(
    tx: Transaction, run: int, event: RunEvent, ended: _EndedRun, failure: RunFailure | None, reason: str | None
) -> None:
    """End the firings of a run that has ended, release what it holds, mark what it has not published, and record it."""
    firings.end(tx, run, failure, reason)
    written = _release(tx, run)
    if ended.wrote:
        _leave_blocks(tx, run)
    events.record(tx, _KINDS[event], run=run, binding=ended.binding, channels=written, text=ended.error)


def written_by(tx: Transaction, run: int) -> list[str]:
    """Return the names of the channels on which a run has reserved a point, in any state, sorted."""
    written = select(tables.channel.c.name).join(tables.point, tables.point.c.channel_id == tables.channel.c.id)
    query = written.where(tables.point.c.run_id == run).order_by(tables.channel.c.name)
    return list(tx.connection.execute(query).scalars())


def _release(tx: Transaction, run: int) -> list[str]:
    """Cancel unfilled points, and release claims and pins.

    Points that were waiting for those of the run become readable.

    Returns:
        The names of the channels on which the run had reserved a point, sorted.
    """
    tx.connection.execute(_CANCEL, {"run": run, "state": PointState.CANCELLED.value, "time": tx.now})
    note_readable(tx, run)
    tx.connection.execute(_UNCLAIM, {"run": run})
    unpin(tx, holder_of(run))
    return mark_written(tx, run)


_CANCEL = update(tables.point).where(
    tables.point.c.run_id == bindparam("run"), tables.point.c.state == literal(PointState.RESERVED.value)
)
_UNCLAIM = delete(tables.claim).where(tables.claim.c.run_id == bindparam("run"))


def _leave_blocks(tx: Transaction, run: int) -> None:
    """Mark the blocks that a run has not published for deletion, except those that a running run shares.

    These become blocks of that run: they are published when it commits, and marked for deletion when it fails.
    """
    block = tables.block.c
    left = set(tx.connection.execute(_UNPUBLISHED, {"number": run}).scalars())
    if not left:
        return
    pin, other = tables.pin.c, tables.run.c
    pins = select(other.id, pin.blocks).where(
        other.state == RunState.RUNNING.value, pin.holder == literal(holder_of("")) + cast(other.id, Text)
    )
    for row in tx.connection.execute(pins).all():
        if shared := left.intersection(codec.numbers_from_json(row.blocks)):
            left -= shared
            tx.connection.execute(update(tables.block).where(is_among(tx, block.id, shared)).values(run_id=row.id))
    unneeded = update(tables.block).where(is_among(tx, block.id, left))
    tx.connection.execute(unneeded.values(state=DOOMED, target_id=None))


def share_blocks(tx: Transaction, run: int, blocks: Collection[int], lease: timedelta) -> bool:
    """Keep blocks that another run has written, or is about to publish, so that a run can publish them as well.

    Args:
        tx: a writing transaction.
        run: the run.
        blocks: their numbers.
        lease: the duration of the run's lease.

    Returns:
        Whether all of them still exist; if not, none is kept.
    """
    block = tables.block.c
    there = select(func.count()).where(is_among(tx, block.id, blocks), block.state.in_([WRITING, LIVE]))
    if not is_running(tx, run) or tx.connection.execute(there).scalar() != len(blocks):
        return False
    pin(tx, holder_of(run), blocks, lease)
    written = select(block.id, block.run_id).where(is_among(tx, block.id, blocks), block.state == WRITING)
    for row in tx.connection.execute(written.where(block.run_id != run)).all():
        pin(tx, holder_of(row.run_id), [row.id], lease)  # its writer still needs it if this run publishes it first
    return True


def run_from(row: Row[Any]) -> Run:
    """Return a run from its row."""
    return Run(
        number=row.id,
        kind=RunKind(row.kind),
        state=RunState(row.state),
        tasks=tuple(row.tasks),
        owner=row.owner,
        started=row.started,
        ended=row.ended,
        lease_until=row.lease_until,
        error=row.error,
        binding=row.binding,
        progress=None if row.progress is None else codec.progress_from_json(row.progress),
    )


def find_run(tx: Transaction, number: int | None) -> Run:
    """Return a run; the last one if no number is given.

    Raises:
        NotFound: there is no such run.
    """
    newest = select(func.max(tables.run.c.id)).scalar_subquery()
    row = tx.connection.execute(
        select(tables.run).where(tables.run.c.id == (newest if number is None else number))
    ).first()
    if row is not None:
        return run_from(row)
    if number is None:
        raise NotFound("there are no runs yet", hint="Start one with: kilonova run")
    last = tx.connection.execute(select(newest)).scalar()
    hint = f"The runs are 1 to {last}" if last else "There are no runs yet"
    raise NotFound("there is no such run", run=number, hint=hint)


def find_runs(tx: Transaction, numbers: Collection[int]) -> list[Run]:
    """Return the runs with the given numbers, newest first."""
    query = select(tables.run).where(is_among(tx, tables.run.c.id, numbers)).order_by(tables.run.c.id.desc())
    return [run_from(row) for row in tx.connection.execute(query)]
