"""Runs of a command by a running server, which has Spark already.

A server is found, and asked, by way of the catalog: it is registered there while it sends heartbeats, and starts what
is fired. So whoever can run tasks can ask a server to, and needs neither its address nor a token. If its release is
another one, or if it dies before the run has ended, the command runs the tasks itself.
"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version

from kilonova.catalog import bindings, firings, runs, servers
from kilonova.catalog.change_notifier import ChangeNotifier
from kilonova.catalog.planner_input import load_planner_input
from kilonova.cli import render
from kilonova.cli.options import common
from kilonova.engine.run_events import ProgressUpdated, RunNotification, RunStarted, StepEnded, StepStarted
from kilonova.engine.run_request import RunDue, RunRequest, RunTasks
from kilonova.errors import Cancelled, KilonovaError
from kilonova.model.firing import Firing, FiringState
from kilonova.model.run import Run, RunState
from kilonova.service.project import Project
from kilonova.service.reports import RunReport, run_report
from kilonova.service.runner import Interruption, Runner

_LOOK = 0.5
"""Seconds between looks at a firing, if nothing else changes the catalog."""


class ServerRunner(Runner):
    """Runner whose bindings a server executes, if one is running and would execute the same tasks.

    Args:
        project: the project, whose listener receives the notifications of the runs.
    """

    def __init__(self, project: Project) -> None:
        super().__init__(project.resources, project.reader)
        self._announced = False

    def execute(self, request: RunRequest, interruption: Interruption) -> RunReport | None:
        """Execute a request for the tasks of one binding, and return the report; None if there was nothing to do.

        Raises:
            Cancelled: the run was cancelled.
            KilonovaError: it failed; or any error of `Runner.execute`, if no server executes it.
        """
        number = self._fire(request)
        ended = None if number is None else self._ended(number, interruption)
        if ended is None:
            return super().execute(request, interruption)
        if ended.state is FiringState.SKIPPED:
            return None
        if ended.state is FiringState.FAILED or ended.run is None:
            raise self._error(ended)
        report = run_report(self._catalog, ended.run)
        for each in report.made:
            rows = None if each.block is None else each.rows
            step = each.task or each.channel
            self._tell(StepEnded(run=each.run, step=step, rows=rows, seconds=each.seconds))
        return report

    def _fire(self, request: RunRequest) -> int | None:
        """Fire the binding of a request, and return the firing; None if no server would run exactly these tasks."""
        assert isinstance(request, RunDue | RunTasks)
        names = (request.tasks if isinstance(request, RunTasks) else request.among) or ()
        with self._catalog.writing() as tx:
            serving = servers.alive(tx)
            binding = bindings.by_task(tx).get(names[0], "")
            delayed = any(state.waits_until for state in load_planner_input(tx, names).newest.values())
            whole = set(bindings.tasks_of(tx, binding)) == set(names)
            due_only = isinstance(request, RunDue)
            if not _usable(serving) or not whole or (due_only and delayed):
                return None
            number = firings.fire_manually(tx, binding, f"manually, by {getpass.getuser()}", due_only=due_only)
        if not (self._announced or common.quiet or common.json):
            self._announced = True
            render.err.print(f"The server {serving[0].name} runs it; --here does not ask one.", style="dim")
        return number

    def _ended(self, number: int, interruption: Interruption) -> Firing | None:
        """Return a firing once it has ended; None if it was withdrawn, because no server is left to execute it."""
        shown: set[tuple[int, str]] = set()
        with closing(ChangeNotifier(self._catalog)) as changes:
            while True:
                with self._catalog.reading() as tx:
                    firing = firings.find(tx, number)
                    run = None if firing is None or firing.run is None else runs.find_run(tx, firing.run)
                    serving = servers.alive(tx)
                if firing is None:
                    return None
                try:
                    interruption.check(firing.run)
                except Cancelled:
                    interruption.interrupt()
                    if run is not None or self._withdraw(number):
                        raise
                if run is not None:
                    self._show(run, shown)
                if firing.state.ended:
                    return firing
                if not _usable(serving):
                    self._resources.recover_expired_runs()
                    if self._withdraw(number):
                        return None
                changes.wait(_LOOK)

    def _withdraw(self, number: int) -> bool:
        """Withdraw a firing unless a server that is alive has claimed it; return whether it was withdrawn."""
        with self._catalog.writing() as tx:
            firings.release(tx, servers.expire(tx))
            return firings.withdraw(tx, number)

    def _show(self, run: Run, shown: set[tuple[int, str]]) -> None:
        """Notify the listener of the beginning and the progress of a run; `shown` is what it knows already."""
        if (run.number, "") not in shown:
            shown.add((run.number, ""))
            self._tell(RunStarted(run=run.number, steps=run.tasks))
        if run.progress is None:
            return
        for each in run.progress.going:
            if (run.number, each.step) not in shown:
                shown.add((run.number, each.step))
                self._tell(StepStarted(run=run.number, step=each.step, reason=""))
        self._tell(ProgressUpdated(run=run.number, progress=run.progress))

    def _tell(self, notification: RunNotification) -> None:
        self._resources.listener(notification)

    def _error(self, firing: Firing) -> KilonovaError:
        """Return the error of a firing that failed."""
        if firing.run is None:
            problem = f"the server could not start a run: {firing.reason}"
            return KilonovaError(problem, binding=firing.binding, hint="Its log says more")
        with self._catalog.reading() as tx:
            run = runs.find_run(tx, firing.run)
        if run.state is RunState.CANCELLED:
            return Cancelled(f"the run was {run.error}", run=run.number)
        return KilonovaError(
            run.error or f"the run ended as {run.state.value}", run=run.number, hint="See its log: kilonova log"
        )


def _usable(serving: Sequence[servers.ServerRecord]) -> bool:
    """Return whether the servers that are alive, if any, have this release."""
    return bool(serving) and all(each.release == version("kilonova") for each in serving)
