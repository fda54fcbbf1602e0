"""Runs of tasks: those that are due, named ones, and what a server has claimed."""

from __future__ import annotations

import getpass
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kilonova.catalog import bindings
from kilonova.catalog import runs as records
from kilonova.catalog.database import Catalog
from kilonova.catalog.deferred import deferred_workflows
from kilonova.catalog.firings import Claim
from kilonova.catalog.planner_input import load_planner_input, tasks_named
from kilonova.engine.run_events import RunNotification, RunStarted
from kilonova.engine.run_order import RunOrder, run_in_order, run_order
from kilonova.engine.run_protocol import ActiveRun
from kilonova.engine.run_request import RunDue, RunFirings, RunRequest, RunTasks, TaskPlan, shared_reads
from kilonova.engine.shared_steps import SharedSteps
from kilonova.errors import Cancelled, InvalidState, KilonovaError
from kilonova.schedule.due import due_tasks
from kilonova.service.queries import ProjectReader
from kilonova.service.registration import Registration
from kilonova.service.reports import RunReport, RunsReport, run_report
from kilonova.service.resources import ProjectResources
from kilonova.service.row_reader import RowReader

if TYPE_CHECKING:
    from kilonova.engine.executor import RetryPolicy


class ClaimedRun(Protocol):
    """Execution of a binding that a server has claimed: see `Runner.run_claim`."""

    def __call__(self, *, begun: Callable[[int], object]) -> RunReport | None:
        """Execute it; call `begun` with the run's number once it has started."""


class Interruption:
    """Interruption of several runs by the user: cancels those in progress, and those that begin later."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._begun: set[int] = set()
        self._interrupted = threading.Event()

    def check(self, run: int | None = None) -> None:
        """Raise `Cancelled` if the runs were interrupted; a run that is given has begun, and is one of them."""
        if run is not None:
            self._begun.add(run)
        if self._interrupted.is_set():
            raise Cancelled("the run was interrupted", run=run)

    def interrupt(self) -> None:
        """Cancel the runs."""
        self._interrupted.set()
        for run in tuple(self._begun):  # a copy, as other runs may be starting
            with suppress(InvalidState), self._catalog.writing() as tx:
                records.cancel(tx, run, getpass.getuser())


class Runner:
    """Runner of a project's tasks.

    Args:
        resources: the catalog, warehouse and settings of the project.
        reader: knows which tasks are due.
    """

    def __init__(self, resources: ProjectResources, reader: ProjectReader) -> None:
        self._resources = resources
        self._catalog = resources.catalog
        self._reader = reader

    def run(self, tasks: Iterable[str] | None = None, *, all_or_nothing: bool = False) -> RunsReport | None:
        """Run the tasks that are due, or the named ones: those of each binding as one run.

        A binding that reads what another writes runs after it, others run in parallel. The failure of one does not stop
        the others.

        Args:
            tasks: the tasks to run, whether due or not and whatever their schedules, each view with the relations that
                are maintained for it, or bindings, for their tasks; None for all tasks that are due.
            all_or_nothing: whether all of them are one run, which publishes everything or nothing.

        Returns:
            The report; None if there was nothing to do.

        Raises:
            NotFound: there is no such task.
            Conflict: another run has one of the tasks.
            TaskFailed: a task's code raised or returned an invalid result.
            SchemaMismatch: its rows do not fit their channel.
            KeyViolation: its keys are null or occur twice.
            CheckFailed: its rows violate a check of their channel.
            BindingsFailed: several bindings failed; the output of the others is published, and the report is attached.
        """
        done = self.run_each(tasks) if not all_or_nothing else self._run_as_one(tasks)
        if done.error is not None:
            raise done.error
        return done if done.runs else None

    def run_each(self, tasks: Iterable[str] | None = None, *, excluding: Collection[str] = ()) -> RunsReport:
        """Run tasks as `run` does, but report the failures of bindings instead of raising them.

        Args:
            tasks: the tasks or bindings to run; None for all tasks that are due.
            excluding: the bindings to exclude.

        Raises:
            NotFound: there is no such task.
        """
        asked = self._begin(tasks)
        interruption = Interruption(self._catalog)
        reports: list[RunReport] = []
        failed: dict[str, KilonovaError] = {}
        while True:
            parts, order = self._parts(asked, {*excluding, *failed})
            run = partial(self.execute, interruption=interruption)
            done, refused = run_in_order(order.waits_for, parts, run, interruption.interrupt)
            reports += [report for report in done if report is not None]
            failed |= refused
            if asked is not None or not order.circular or not any(done):
                return RunsReport(runs=tuple(sorted(reports, key=lambda report: report.run)), failed=failed)

    def _run_as_one(self, tasks: Iterable[str] | None) -> RunsReport:
        asked = self._begin(tasks)
        if asked is None and not self._reader.due():
            return RunsReport()
        report = self._run(RunDue() if asked is None else RunTasks(asked))
        return RunsReport(runs=() if report is None else (report,))

    def _begin(self, names: Iterable[str] | None) -> tuple[str, ...] | None:
        """Prepare the catalog for runs: recover others, and apply the deferred workflows that take effect now.

        Args:
            names: the tasks and bindings to run, of which changes take effect at once; None for all that are due.

        Returns:
            The tasks of these names; None if none are given.
        """
        self._resources.recover_expired_runs()
        given = None if names is None else tuple(names)
        with self._catalog.reading() as tx:
            waits = bool(deferred_workflows(tx))
            asked = {task for name in given or () for task in (name, *bindings.tasks_of(tx, name))} if waits else {}
        if waits:
            Registration(self._resources, RowReader(self._resources)).apply_deferred(asked)
        if given is None:
            return None
        with self._catalog.reading() as tx:
            return tasks_named(tx, given)

    def _parts(
        self, asked: tuple[str, ...] | None, excluding: Collection[str]
    ) -> tuple[dict[str, RunRequest], RunOrder]:
        """Return the tasks to run of each binding, and the order of bindings."""
        with self._catalog.reading() as tx:
            known = load_planner_input(tx, asked)
            owner = bindings.by_task(tx)
        chosen = {state.task.name for state in due_tasks(known)} if asked is None else set(asked)
        order = [task for task in known.workflow.order() if task.name in chosen and owner[task.name] not in excluding]
        members: dict[str, list[str]] = {owner[task.name]: [] for task in order}
        for task in known.workflow.order() if asked is None else order:
            if owner[task.name] in members:
                members[owner[task.name]].append(task.name)
        kind = RunDue if asked is None else RunTasks
        return {name: kind(tuple(names)) for name, names in members.items()}, run_order(order, owner)

    def run_claim(
        self,
        claimed: Claim,
        *,
        shared_steps: SharedSteps | None = None,
        begun: Callable[[int], object] = lambda _: None,
    ) -> RunReport | None:
        """Run a binding that a server has claimed.

        Args:
            claimed: the binding and its firings.
            shared_steps: the steps shared with others that are launched at the same time: see `shared_batch`.
            begun: called with the run's number once it has started; from then on its firings end with the run.

        Returns:
            The report; None if there was nothing to do.

        Raises:
            Conflict: another run has one of the tasks.
            LeaseLost: another server has taken it over.
            KilonovaError: any error that `run` raises.
        """
        return self._run(RunFirings(claimed, shared_steps), begun)

    def run_claims(self, claims: Sequence[Claim]) -> list[ClaimedRun]:
        """Start the runs of bindings that a server has claimed in one transaction, to be executed in turn.

        If one of them cannot be started, each is started when it is executed.

        Returns:
            A function for each, as `run_claim` for the binding.
        """
        from kilonova.engine.executor import start_claimed

        if len(claims) > 1:
            with suppress(Exception):  # each then reports its own
                started = start_claimed(self._resources.environment(), claims)
                return [partial(self._complete, run) for run in started]
        return [partial(self.run_claim, claimed) for claimed in claims]

    def _complete(
        self, run: ActiveRun[TaskPlan] | None, *, begun: Callable[[int], object] = lambda _: None
    ) -> RunReport | None:
        from kilonova.engine.executor import complete_tasks

        if run is None:
            return None
        begun(run.run)
        number, _ = complete_tasks(self._resources.warehouse, run, self._retries)
        return run_report(self._catalog, number)

    def execute(self, request: RunRequest, interruption: Interruption) -> RunReport | None:
        """Execute a request for the tasks of one binding, and return the report; None if there was nothing to do.

        Raises:
            KilonovaError: any error that `run` raises.
        """
        return self._run(request, interruption.check)

    @contextmanager
    def shared_batch(self, parts: Iterable[Claim]) -> Iterator[SharedSteps]:
        """Share the common reads and steps of several claimed bindings, until the end of the `with` block."""
        with self._catalog.reading() as tx:
            readings = shared_reads(tx, parts)
        with self._resources.warehouse.holding(readings):
            yield SharedSteps()

    def _run(self, request: RunRequest, started: Callable[[int], object] = lambda _: None) -> RunReport | None:
        from kilonova.engine.executor import run_tasks

        def heard(notification: RunNotification) -> None:
            if isinstance(notification, RunStarted):
                started(notification.run)
            self._resources.listener(notification)

        done = run_tasks(self._resources.environment(heard), self._resources.warehouse, request, self._retries)
        return None if done is None else run_report(self._catalog, done[0])

    @property
    def _retries(self) -> RetryPolicy:
        from kilonova.engine.executor import RetryPolicy

        section = self._resources.settings.retry
        return RetryPolicy(attempts=section.attempts, wait=section.wait)
