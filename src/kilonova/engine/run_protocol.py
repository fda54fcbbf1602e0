"""Commit protocol of a run: start, work, then commit or clean up.

`execute_run` is the whole protocol (see `kilonova.catalog.runs`), independent of the work, so that it is the same for
tasks, ingests and compactions, and can be tested at every step without Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Generic, TypeVar

from kilonova.catalog import channel_store, events, files, ingest_keys, runs
from kilonova.catalog.database import Catalog, Transaction
from kilonova.catalog.firings import Claim
from kilonova.catalog.manifest import Manifest, digest, manifest_to_text
from kilonova.engine.interfaces import BlockStore, Counting, no_tracking
from kilonova.engine.lease import Lease
from kilonova.engine.run_events import Listener
from kilonova.engine.run_monitor import RunMonitor
from kilonova.engine.run_recovery import delete_doomed_blocks, recover_expired_runs
from kilonova.errors import Cancelled, KilonovaError, LeaseLost, is_transient
from kilonova.model.block import BlockName
from kilonova.model.event import EventKind
from kilonova.model.idempotency import IdempotencyKey
from kilonova.model.run import Committed, LeaseExpired, Run, RunInput, RunKind, RunOutput, RunState
from kilonova.model.watched_file import FileOutcome

Plan = TypeVar("Plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan(Generic[Plan]):
    """Plan of a run, decided in the transaction that starts it.

    Attributes:
        kind: the kind of work of the run.
        tasks: the tasks that it claims.
        writes: the channels on which it reserves a point; a channel occurs as often as tasks of the run write it.
        pins: the numbers of the blocks that it will read.
        plan: the plan of its work.
        claimed: the firings that it executes; None for a run that a person started.
        binding: the binding that a person runs; None if it is not one binding.
        merged: whether it runs merged with other runs, which may cause it to fail: it is then retried alone.
        files: the files that it will read, of the watched directory of the only channel that it writes.
        key: the idempotency key of an ingest into the only channel that it writes; None if it has none.
    """

    kind: RunKind
    tasks: tuple[str, ...]
    writes: tuple[str, ...]
    pins: tuple[int, ...]
    plan: Plan
    claimed: Claim | None = None
    binding: str | None = None
    merged: bool = False
    files: tuple[str, ...] = ()
    key: IdempotencyKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRun(Generic[Plan]):
    """A run that has started.

    Attributes:
        run: its number.
        points: the point reserved on each channel that it writes: the first of several successive ones.
        plan: the plan of its work, as prepared.
        name_block: allocates the name of a block on a channel, before its first file is written.
        notify: sends a notification to its log and to the listener.
        step: attributes the output and Spark jobs of this thread within a `with` block to a step.
        stopped: set once the run was ended elsewhere, so that no more work is needed for it.
    """

    run: int
    points: dict[str, int]
    plan: Plan
    name_block: Callable[[str], BlockName]
    notify: Listener
    step: Callable[[str], AbstractContextManager[None]]
    stopped: threading.Event


@dataclass(frozen=True, slots=True)
class Fallback:
    """View that a run recomputed because incremental maintenance failed.

    Attributes:
        task: the task that maintains it.
        channels: the channels that it writes.
        problem: the reason of the failure.
    """

    task: str
    channels: tuple[str, ...]
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """Results that a run is about to publish, the outcomes of its input files, and its fallbacks."""

    inputs: tuple[RunInput, ...]
    outputs: tuple[RunOutput, ...]
    advances: tuple[runs.Advance, ...]
    file_outcomes: tuple[FileOutcome, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnvironment:
    """Environment in which runs are executed.

    Attributes:
        catalog: the metadata database.
        files: the warehouse's files.
        owner: a description of this process, for display.
        lease: the time without a heartbeat after which another process may take a run over.
        listener: receives notifications of runs.
        counting: tracks Spark jobs.
    """

    catalog: Catalog
    files: BlockStore
    owner: str
    lease: timedelta
    listener: Listener
    counting: Counting = no_tracking


def execute_run(
    environment: RunEnvironment,
    prepare: Callable[[Transaction], RunPlan[Plan] | None],
    work: Callable[[ActiveRun[Plan]], RunResults],
    otherwise: Callable[[Transaction], None] | None = None,
) -> tuple[int, RunResults] | None:
    """Start a run, do its work, and publish all of it or nothing.

    Args:
        environment: the environment of the run.
        prepare: returns the plan, or None if there is nothing to do. It is called once before the starting transaction,
            to load channel states into the cache without blocking other writers, and again within it, which counts.
        work: executes the plan: writes blocks under names that it allocates.
        otherwise: called within the starting transaction if there is nothing to do.

    Returns:
        The run's number and what was published; None if there was nothing to do.

    Raises:
        Cancelled: the run was cancelled before it could commit.
        LeaseLost: another process took the run over before it could commit.
        KilonovaError: the work raised it; then none of its results are visible and its files are deleted.
    """
    catalog = environment.catalog
    recover_expired_runs(catalog, environment.files, environment.listener)
    with catalog.reading() as tx:
        prepare(tx)
    with catalog.writing() as tx:
        prepared = prepare(tx)
        if prepared is None:
            if otherwise is not None:
                otherwise(tx)
            return None
        run, points = runs.start(
            tx,
            kind=prepared.kind,
            tasks=prepared.tasks,
            writes=prepared.writes,
            owner=environment.owner,
            lease=environment.lease,
            claimed=prepared.claimed,
            binding=prepared.binding,
        )
        runs.pin(tx, runs.holder_of(run), prepared.pins, environment.lease)
        if prepared.files:
            files.claim_files(tx, run, prepared.writes[0], prepared.files)
        if prepared.key is not None:
            ingest_keys.claim(tx, run, prepared.writes[0], prepared.key)
        began = tx.now
    monitor = RunMonitor(catalog, environment.files, environment.counting, environment.listener, run, began)
    monitor.note(f"began, in the process {environment.owner}")
    named: list[BlockName] = []

    def name_block(channel: str) -> BlockName:
        with catalog.writing() as tx:
            name = channel_store.new_block(tx, channel, run)
        named.append(name)  # several tasks append concurrently: the last name in the list may be another's
        return name

    results: RunResults | None = None
    try:
        with monitor, Lease(catalog, run, environment.lease, monitor.stop):
            begun = ActiveRun(
                run=run,
                points=points,
                plan=prepared.plan,
                name_block=name_block,
                notify=monitor.notify,
                step=monitor.step,
                stopped=monitor.stopped,
            )
            results = work(begun)
            results = replace(results, outputs=_sealed(environment, run, results.outputs))
            with catalog.writing() as tx:
                outcome = runs.commit(
                    tx, run, inputs=results.inputs, outputs=results.outputs, advances=results.advances
                )
                if results.file_outcomes and isinstance(outcome, Committed):
                    files.resolve_files(tx, run, prepared.writes[0], results.file_outcomes)
                for each in results.fallbacks if isinstance(outcome, Committed) else ():
                    said = f"{each.task} was made anew: its change failed: {each.problem}"
                    events.record(tx, EventKind.FELL_BACK, run=run, channels=each.channels, said=said)
        if isinstance(outcome, LeaseExpired):
            raise _with_lost_lease(run)
    except BaseException as error:
        state = cancelled = None
        with suppress(KilonovaError):
            passing = prepared.merged or is_transient(error)
            ended = _abort(environment, run, named, error, passing)
            state = ended.state
            if state is RunState.CANCELLED:
                cancelled = Cancelled(f"the run was {ended.error}", run=run, hint="Nothing of it was published")
        monitor.end(None if state is RunState.SUCCEEDED else cancelled or error)
        if cancelled is not None and isinstance(error, Exception):
            raise cancelled from error
        if not isinstance(error, KilonovaError):
            raise
        if state is RunState.ABANDONED:  # its input may have been collected, which causes other errors
            raise _with_lost_lease(run) from error
        if state is not RunState.SUCCEEDED or results is None:
            raise error.with_context(run=run) from error.__cause__
    else:
        monitor.end(None)
    with suppress(KilonovaError):
        environment.files.mark_committed([output.block.name for output in results.outputs if output.block is not None])
    with suppress(KilonovaError):
        delete_doomed_blocks(catalog, environment.files)
    return run, results


def _sealed(environment: RunEnvironment, run: int, outputs: tuple[RunOutput, ...]) -> tuple[RunOutput, ...]:
    """Write the manifests of the outputs' blocks, and return the outputs with the manifests' digests."""
    written = [output for output in outputs if output.block is not None]
    if not written:
        return outputs
    with environment.catalog.reading() as tx:
        catalog = tx.identity()

    def sealed(output: RunOutput) -> RunOutput:
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
        environment.files.seal(output.block.name, text)
        return replace(output, block=replace(output.block, manifest=digest(text)))

    return tuple(map(sealed, outputs))


def _with_lost_lease(run: int) -> LeaseLost:
    return LeaseLost(
        "the run was taken over by another process",
        run=run,
        hint="Its tasks will run again; nothing was published",
    )


def _abort(
    environment: RunEnvironment, run: int, named: Sequence[BlockName], error: BaseException, passing: bool
) -> Run:
    """End a run whose work or commit raised, and delete its files.

    Returns:
        The run as it is now: SUCCEEDED if the commit had gone through and only its confirmation was lost.
    """
    with environment.catalog.writing() as tx:
        runs.fail(tx, run, str(error) or type(error).__name__, passing=passing)
        ended = runs.find_run(tx, run)
    if ended.state in (RunState.CANCELLED, RunState.ABANDONED):  # others may have deleted before the last write
        environment.files.delete(named)
    delete_doomed_blocks(environment.catalog, environment.files)
    return ended
