"""Commit protocol of a run: start, work, seal, then commit or abort.

`execute_run` is the whole protocol (see `kilonova.catalog.runs`), independent of the work, so that it is the same for
tasks, ingests and compactions, and can be tested at every step without Spark. Whatever else must happen in the
transaction that starts or ends a run is done by participants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Generic, NoReturn, TypeVar

from kilonova.catalog import channel_store, runs
from kilonova.catalog.bound_enforcement import require_kept
from kilonova.catalog.database import Catalog, NotCached, Transaction
from kilonova.catalog.manifest import Manifest, digest, manifest_to_text
from kilonova.catalog.validity import validities
from kilonova.engine.interfaces import BlockStore, Counting, no_tracking
from kilonova.engine.lease import renewed_lease
from kilonova.engine.run_events import Listener
from kilonova.engine.run_monitor import RunMonitor
from kilonova.engine.run_recovery import any_left, delete_doomed_blocks, recover_expired_runs
from kilonova.errors import Cancelled, KilonovaError, LeaseLost
from kilonova.model.block import BlockName
from kilonova.model.run import LeaseExpired, Run, RunInput, RunOutput, RunState
from kilonova.model.version import Validity, Version

Plan = TypeVar("Plan")


def _nothing(*_arguments: object) -> None:
    """Take no part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """Participant in the commit protocol of a run: what is recorded together with its start or its end.

    Each function is called with the transaction that starts, publishes or aborts the run, and the run's number; it
    rolls the transaction back if it raises. `on_abort` is called only if the process that executes the run ends it. If
    another process does, because the run was cancelled or its lease has expired, only rows of the catalog are left:
    what must happen then must follow from them; see `kilonova.catalog.runs`.

    Attributes:
        on_start: called after the run's points and tasks were reserved.
        on_commit: called after its outputs were published.
        on_abort: called with the error, too, that its work or commit raised, before the run is recorded as failed.
    """

    on_start: Callable[[Transaction, int], object] = _nothing
    on_commit: Callable[[Transaction, int], object] = _nothing
    on_abort: Callable[[Transaction, int, BaseException], object] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan(runs.NewRun, Generic[Plan]):
    """Plan of a run, decided in the transaction that starts it: see `NewRun` for what it claims.

    Attributes:
        plan: the plan of its work.
        participants: the participants in its start and its end, in the order in which they are called.
    """

    plan: Plan
    participants: tuple[Participant, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """Results of the work of a run, about to be published.

    Attributes:
        inputs: what its tasks have read.
        outputs: what they have written.
        advances: their new cursors.
        participants: further participants in its end, which the work determined.
    """

    inputs: tuple[RunInput, ...] = ()
    outputs: tuple[RunOutput, ...]
    advances: tuple[runs.Advance, ...] = ()
    participants: tuple[Participant, ...] = ()


Results = TypeVar("Results", bound=RunResults)


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
    work: Callable[[ActiveRun[Plan]], Results],
    otherwise: Callable[[Transaction], None] | None = None,
) -> tuple[int, Results] | None:
    """Start a run, do its work, and publish all of it or nothing.

    Args:
        environment: the environment of the run.
        prepare: returns the plan, or None if there is nothing to do. It is called within the starting transaction; if
            much is to be loaded for it, before that once more, so that the cache is filled while others can write.
        work: executes the plan: writes blocks under names that it allocates.
        otherwise: called within the starting transaction if there is nothing to do.

    Returns:
        The run's number and what was published; None if there was nothing to do.

    Raises:
        Cancelled: the run was cancelled before it could commit.
        LeaseLost: another process took the run over before it could commit.
        KilonovaError: the work raised it; then none of its results are visible and its files are deleted.
    """

    def otherwise_one(tx: Transaction, _: int) -> None:
        if otherwise is not None:
            otherwise(tx)

    (run,) = start_runs(environment, lambda tx: [prepare(tx)], otherwise_one)
    return None if run is None else run.complete(work)


def start_runs(
    environment: RunEnvironment,
    prepare: Callable[[Transaction], Sequence[RunPlan[Plan] | None]],
    otherwise: Callable[[Transaction, int], None],
) -> list[ActiveRun[Plan] | None]:
    """Start runs in one transaction: all of them, or none if one cannot be started.

    Args:
        environment: the environment of the runs.
        prepare: returns the plan of each run, or None where there is nothing to do; called as for `execute_run`.
        otherwise: called within the starting transaction where there is nothing to do, with the place of the run.

    Returns:
        The runs, each to be completed; None where there is nothing to do.

    Raises:
        Conflict: another run has one of the tasks.
        LeaseLost: another server has taken over one of the claimed firings.
    """
    catalog = environment.catalog

    def begin(tx: Transaction) -> list[ActiveRun[Plan] | None]:
        plans = prepare(tx)
        for place, plan in enumerate(plans):
            if plan is None:
                otherwise(tx, place)
        started = iter(_start(tx, environment, [plan for plan in plans if plan is not None]))
        return [None if plan is None else next(started) for plan in plans]

    with suppress(NotCached), catalog.writing(brief=True) as tx:
        if any_left(tx):
            raise NotCached
        return begin(tx)
    recover_expired_runs(catalog, environment.files, environment.listener)
    with catalog.reading() as tx:
        prepare(tx)
    with catalog.writing() as tx:
        return begin(tx)


def _start(tx: Transaction, environment: RunEnvironment, plans: Sequence[RunPlan[Plan]]) -> list[ActiveRun[Plan]]:
    if not plans:
        return []
    started = runs.start_all(tx, plans, owner=environment.owner, lease=environment.lease)
    for plan, (run, _) in zip(plans, started, strict=True):
        for participant in plan.participants:
            participant.on_start(tx, run)
    return [
        ActiveRun(environment, plan, run, points, tx.now) for plan, (run, points) in zip(plans, started, strict=True)
    ]


class ActiveRun(Generic[Plan]):
    """A run that has started, executed by this process.

    Attributes:
        run: its number.
        points: the point reserved on each channel that it writes: the first of several successive ones.
        plan: the plan of its work, as prepared.
        notify: sends a notification to its log and to the listener.
        step: executes a step within a `with` block: attributes the output and Spark jobs of this thread to it.
        stopped: set once the run was ended elsewhere, so that no more work is needed for it.
    """

    def __init__(
        self, environment: RunEnvironment, plan: RunPlan[Plan], run: int, points: dict[str, int], started: datetime
    ) -> None:
        self.run = run
        self.points = points
        self.plan = plan.plan
        self._environment = environment
        self._catalog = environment.catalog
        self._started = time.monotonic()
        self._participants = plan.participants
        self._leaves_blocks = False
        self._names: list[BlockName] = []
        self._sealed: list[tuple[BlockName, str]] = []
        self._monitor = RunMonitor(
            environment.catalog, environment.files, environment.counting, environment.listener, run, started
        )
        self._monitor.note(f"started by the process {environment.owner}")
        self.notify = self._monitor.notify
        self.step = self._monitor.step
        self.stopped = self._monitor.stopped

    def validity(self, version: Version) -> Validity:
        """Return the interval in which all source points that a version reflects were the newest ones."""
        with self._catalog.reading() as tx:
            return version.validity(validities(tx, version.extremes))

    def name_block(self, channel: str) -> BlockName:
        """Allocate the name of a block on a channel, before its first file is written."""
        with self._catalog.writing() as tx:
            name = channel_store.new_block(tx, channel, self.run)
        self._names.append(name)  # several tasks append concurrently: the last name in the list may be another's
        return name

    def share_blocks(self, blocks: Collection[int]) -> bool:
        """Keep blocks that another run has written, to publish them as well; return False if one no longer exists."""
        with self._catalog.writing() as tx:
            return runs.share_blocks(tx, self.run, blocks, self._environment.lease)

    def complete(self, work: Callable[[ActiveRun[Plan]], Results]) -> tuple[int, Results]:
        """Do the work of the run, and publish all of it or nothing: see `execute_run`.

        Returns:
            The run's number and what was published.
        """
        results = self._execute(work)
        with suppress(KilonovaError):
            blocks = [output.block for output in results.outputs if output.block is not None]
            self._environment.files.mark_committed((block.name, block.manifest) for block in blocks if block.manifest)
        if self._leaves_blocks:
            with suppress(KilonovaError):
                delete_doomed_blocks(self._catalog, self._environment.files)
        return self.run, results

    def _execute(self, work: Callable[[ActiveRun[Plan]], Results]) -> Results:
        """Do the work of the run and publish it, or abort the run."""
        results: Results | None = None
        try:
            with (
                self._monitor.watching(),
                renewed_lease(
                    self._catalog, self.run, self._environment.lease, self._monitor.stop, since=self._started
                ),
            ):
                results = work(self)
                self._participants += results.participants
                results = replace(results, outputs=self._seal(results.outputs))
                self._commit(results)
        except BaseException as error:
            ended = None
            with suppress(KilonovaError):
                ended = self._abort(error)
            if ended is None or ended.state is not RunState.SUCCEEDED or results is None:
                self._raise_failure(error, ended)
            self._monitor.end(None)
            if not isinstance(error, KilonovaError):
                raise
        else:
            self._monitor.end(None)
        return results

    def _seal(self, outputs: tuple[RunOutput, ...]) -> tuple[RunOutput, ...]:
        """Write the manifests of the outputs' blocks, and return the outputs with the manifests' digests."""
        if all(output.block is None for output in outputs):
            return outputs
        with self._catalog.reading() as tx:
            catalog = tx.identity()

        def sealed(output: RunOutput) -> RunOutput:
            if output.block is None:
                return output
            text = manifest_to_text(
                Manifest(
                    catalog=catalog,
                    channel=output.channel,
                    task=output.task,
                    run=self.run,
                    point=output.point,
                    version=output.version,
                    block=output.block,
                )
            )
            self._sealed.append((output.block.name, digest(text)))
            self._environment.files.seal(output.block.name, text)
            return replace(output, block=replace(output.block, manifest=digest(text)))

        return tuple(map(sealed, outputs))

    def _commit(self, results: RunResults) -> None:
        with self._catalog.writing() as tx:
            outcome = runs.commit(
                tx, self.run, inputs=results.inputs, outputs=results.outputs, advances=results.advances
            )
            if isinstance(outcome, LeaseExpired):
                raise self._lease_lost()
            require_kept(tx, self.run, results.outputs)
            for participant in self._participants:
                participant.on_commit(tx, self.run)
            self._leaves_blocks = bool(self._names and channel_store.marked_for_deletion(tx))

    def _abort(self, error: BaseException) -> Run:
        """End the run after an error, unless it has ended already, and delete its files.

        It has succeeded if the commit had gone through and only its confirmation was lost.
        """
        with self._catalog.writing() as tx:
            if runs.is_running(tx, self.run):
                for participant in self._participants:
                    participant.on_abort(tx, self.run, error)
                runs.fail(tx, self.run, str(error) or type(error).__name__)
            ended = runs.find_run(tx, self.run)
            states = channel_store.block_states(tx, self._names)
        if ended.state is not RunState.SUCCEEDED:
            with suppress(KilonovaError):
                self._environment.files.unseal(self._sealed)  # of blocks that stay because other runs share them
        if ended.state in (RunState.CANCELLED, RunState.ABANDONED):  # others may have deleted before the last write
            shared = (channel_store.LIVE, channel_store.WRITING)  # by a run that has published them, or will
            self._environment.files.delete(name for name in self._names if states.get(name) not in shared)
        delete_doomed_blocks(self._catalog, self._environment.files)
        return ended

    def _raise_failure(self, error: BaseException, ended: Run | None) -> NoReturn:
        """Log how the run ended that was not published, and raise the error for its caller."""
        state = None if ended is None else ended.state
        if ended is not None and state is RunState.CANCELLED:
            cancelled = Cancelled(f"the run was {ended.error}", run=self.run)
            self._monitor.end(cancelled)
            if isinstance(error, Exception):
                raise cancelled from error
            raise error
        self._monitor.end(error)
        if not isinstance(error, KilonovaError):
            raise error
        if state is RunState.ABANDONED:  # its input may have been collected, which causes other errors
            raise self._lease_lost() from error
        raise error.with_context(run=self.run) from error.__cause__

    def _lease_lost(self) -> LeaseLost:
        return LeaseLost("the run was taken over by another process", run=self.run)
