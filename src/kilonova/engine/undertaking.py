"""The frame in which everything that publishes happens: start, work, commit or clean up.

`carry_out` is the whole commit protocol (see `kilonova.catalog.runs`) without a word about what the work is,
so that it is the same for tasks, ingests and compactions, and can be tested at every step without Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Generic, TypeVar

from kilonova.catalog import chains, events, files, ingest_keys, runs
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.firings import Claimed
from kilonova.catalog.manifest import Manifest, digest, manifest_to_text
from kilonova.engine.attendance import Attendance
from kilonova.engine.lease import Lease
from kilonova.engine.reclaim import sweep, take_up
from kilonova.engine.seam import Counting, Files, uncounted
from kilonova.engine.telling import Listener
from kilonova.errors import Cancelled, KilonovaError, LeaseLost, may_pass
from kilonova.model.block import BlockName
from kilonova.model.event import EventKind
from kilonova.model.file import Fate
from kilonova.model.idempotency import IdempotencyKey
from kilonova.model.run import Committed, Expired, Input, Output, Run, RunKind, RunState

Plan = TypeVar("Plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Generic[Plan]):
    """What a run is going to do, decided in the transaction that starts it.

    Attributes:
        kind: what the run is for.
        tasks: the tasks that it claims.
        writes: the channels on which it reserves a point; one as often as tasks of the run write it.
        pins: the blocks that it will read.
        plan: what its work needs to know.
        claimed: the firings that it is for; None for a run that a person started.
        binding: the binding that a person runs; None if it is not one binding.
        merged: whether it goes on together with others, which may be what makes it fail: it is tried again alone then.
        files: the files of the watched directory of the only channel that it writes that it is going to read.
        key: the idempotency key of an ingest into the only channel that it writes; None if it has none.
    """

    kind: RunKind
    tasks: tuple[str, ...]
    writes: tuple[str, ...]
    pins: tuple[int, ...]
    plan: Plan
    claimed: Claimed | None = None
    binding: str | None = None
    merged: bool = False
    files: tuple[str, ...] = ()
    key: IdempotencyKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun(Generic[Plan]):
    """A run that has started.

    Attributes:
        run: its number.
        points: the point reserved on each channel that it writes: the first of several, which follow each other.
        plan: as prepared.
        name_block: names a block on a channel, before its first file is written.
        tell: lets its log, and whoever listens, hear how it goes.
        step: takes what this thread says and asks of Spark within a block for that of a step.
        stopped: set once the run has ended elsewhere, so that nothing more need be done for it.
    """

    run: int
    points: dict[str, int]
    plan: Plan
    name_block: Callable[[str], BlockName]
    tell: Listener
    step: Callable[[str], AbstractContextManager[None]]
    stopped: threading.Event


@dataclass(frozen=True, slots=True)
class Fallback:
    """View that a run made anew because following its change failed.

    Attributes:
        task: the task that keeps it.
        channels: the channels that it writes.
        problem: why its change failed.
    """

    task: str
    channels: tuple[str, ...]
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a run is about to publish, what becomes of files that it had, and what it had to do otherwise."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    advances: tuple[runs.Advance, ...]
    fates: tuple[Fate, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Where runs are carried out.

    Attributes:
        catalog: the metadata database.
        files: the warehouse's files.
        owner: this process, for people.
        lease: how long a run is safe from being taken over without a heartbeat.
        listener: hears how it goes.
        counting: counts what Spark does.
    """

    catalog: Catalog
    files: Files
    owner: str
    lease: timedelta
    listener: Listener
    counting: Counting = uncounted


def carry_out(
    workplace: Workplace,
    prepare: Callable[[Transaction], Prepared[Plan] | None],
    work: Callable[[Begun[Plan]], Results],
) -> tuple[int, Results] | None:
    """Start a run, do its work, and publish all of it or nothing.

    Args:
        workplace: where.
        prepare: decides, within the starting transaction, what is to be done; None if nothing is.
        work: does it: writes blocks under names that it asks for.

    Returns:
        The run's number and what was published; None if there was nothing to do.

    Raises:
        Cancelled: somebody cancelled the run before it could commit.
        LeaseLost: another process took the run over before it could commit.
        KilonovaError: what the work raised; then nothing is visible of it and its files are deleted.
    """
    catalog = workplace.catalog
    take_up(catalog, workplace.files, workplace.listener)
    with catalog.writing() as tx:
        prepared = prepare(tx)
        if prepared is None:
            return None
        run, points = runs.start(
            tx,
            kind=prepared.kind,
            tasks=prepared.tasks,
            writes=prepared.writes,
            owner=workplace.owner,
            lease=workplace.lease,
            claimed=prepared.claimed,
            binding=prepared.binding,
        )
        runs.pin(tx, runs.holder_of(run), prepared.pins, workplace.lease)
        if prepared.files:
            files.claim(tx, run, prepared.writes[0], prepared.files)
        if prepared.key is not None:
            ingest_keys.claim(tx, run, prepared.writes[0], prepared.key)
        began = tx.now
    attendance = Attendance(catalog, workplace.files, workplace.counting, workplace.listener, run, began)
    attendance.note(f"began, in the process {workplace.owner}")
    named: list[BlockName] = []

    def name_block(channel: str) -> BlockName:
        with catalog.writing() as tx:
            name = chains.new_block(tx, channel, run)
        named.append(name)  # by several tasks at once: what is last in the list may be another's
        return name

    results: Results | None = None
    try:
        with attendance, Lease(catalog, run, workplace.lease, attendance.stop):
            begun = Begun(
                run=run,
                points=points,
                plan=prepared.plan,
                name_block=name_block,
                tell=attendance.tell,
                step=attendance.step,
                stopped=attendance.stopped,
            )
            results = work(begun)
            results = replace(results, outputs=_sealed(workplace, run, results.outputs))
            with catalog.writing() as tx:
                outcome = runs.commit(
                    tx, run, inputs=results.inputs, outputs=results.outputs, advances=results.advances
                )
                if results.fates and isinstance(outcome, Committed):
                    files.settle(tx, run, prepared.writes[0], results.fates)
                for each in results.fallbacks if isinstance(outcome, Committed) else ():
                    said = f"{each.task} was made anew: its change failed: {each.problem}"
                    events.tell(tx, EventKind.FELL_BACK, run=run, channels=each.channels, said=said)
        if isinstance(outcome, Expired):
            raise _lost(run)
    except BaseException as error:
        state = cancelled = None
        with suppress(KilonovaError):
            passing = prepared.merged or may_pass(error)
            ended = _give_up(workplace, run, named, error, passing)
            state = ended.state
            if state is RunState.CANCELLED:
                cancelled = Cancelled(f"the run was {ended.error}", run=run, hint="Nothing of it was published")
        attendance.end(None if state is RunState.SUCCEEDED else cancelled or error)
        if cancelled is not None and isinstance(error, Exception):
            raise cancelled from error
        if not isinstance(error, KilonovaError):
            raise
        if state is RunState.ABANDONED:  # then what it read may have been collected: the cause of other errors
            raise _lost(run) from error
        if state is not RunState.SUCCEEDED or results is None:
            raise error.within(run=run) from error.__cause__
    else:
        attendance.end(None)
    with suppress(KilonovaError):
        workplace.files.mark_committed([output.block.name for output in results.outputs if output.block is not None])
    with suppress(KilonovaError):
        sweep(catalog, workplace.files)
    return run, results


def _sealed(workplace: Workplace, run: int, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """Outputs whose blocks have their manifests beside them, and know their digests."""
    written = [output for output in outputs if output.block is not None]
    if not written:
        return outputs
    with workplace.catalog.reading() as tx:
        catalog = tx.identity()

    def sealed(output: Output) -> Output:
        if output.block is None:
            return output
        text = manifest_to_text(
            Manifest(
                catalog=catalog,
                channel=output.channel,
                task=output.task,
                run=run,
                point=output.point,
                version=output.version,
                block=output.block,
            )
        )
        workplace.files.seal(output.block.name, text)
        return replace(output, block=replace(output.block, manifest=digest(text)))

    return tuple(map(sealed, outputs))


def _lost(run: int) -> LeaseLost:
    return LeaseLost(
        "the run was taken over by another process",
        run=run,
        hint="Its tasks will run again; nothing was published",
    )


def _give_up(workplace: Workplace, run: int, named: Sequence[BlockName], error: BaseException, passing: bool) -> Run:
    """End a run whose work or commit raised, and delete its files.

    Returns:
        The run as it is now: SUCCEEDED if the commit had gone through and only its confirmation was lost.
    """
    with workplace.catalog.writing() as tx:
        runs.fail(tx, run, str(error) or type(error).__name__, passing=passing)
        ended = runs.one(tx, run)
    if ended.state in (RunState.CANCELLED, RunState.ABANDONED):  # others may have swept before the last was written
        workplace.files.delete(named)
    sweep(workplace.catalog, workplace.files)
    return ended
