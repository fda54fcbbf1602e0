"""Progress display on the terminal: a line per step, while it runs and once it has ended."""

from __future__ import annotations

from types import TracebackType
from typing import assert_never

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from kilonova.cli.render import err, number
from kilonova.engine.run_events import (
    FileQuarantined,
    LinesMalformed,
    ProgressUpdated,
    RunNotification,
    RunRecovered,
    RunStarted,
    StepEnded,
    StepFailed,
    StepRecomputed,
    StepRetried,
    StepShared,
    StepSkipped,
    StepStarted,
)


class ProgressDisplay:
    """Listener that shows the progress of runs; silent where standard error is not a terminal.

    The first line is the run, counted in steps; below is a line for each running step, counted in Spark's tasks.

    Args:
        quiet: show nothing at all.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=err,
            transient=True,
            disable=quiet or not err.is_terminal,
        )
        self._bar: TaskID | None = None
        self._steps: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        if not self._quiet:
            self._bar = self._progress.add_task("starting", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, notification: RunNotification) -> None:
        """Show a notification of a run."""
        if self._quiet or self._bar is None:
            return
        match notification:
            case RunStarted(run=run, steps=steps):
                before = self._progress.tasks[0]
                if before.total is None or before.finished:
                    self._progress.reset(self._bar, total=0)
                total = (self._progress.tasks[0].total or 0) + len(steps)
                self._progress.update(self._bar, description=f"run {run}", total=total)
            case StepStarted(step=step, reason=reason):
                self._steps[step] = self._progress.add_task(f"{step}  [dim]{reason}[/dim]", total=None)
            case StepEnded(step=step, rows=rows, seconds=seconds):
                self._remove(step)
                self._progress.advance(self._bar)
                made = "no change" if rows is None else f"{number(rows)} rows"
                err.print(f"  {step}: {made} in {seconds:.1f} s", style="dim")
            case StepFailed(step=step):
                self._remove(step)
                self._progress.advance(self._bar)
            case StepShared():
                pass
            case StepSkipped():
                self._progress.advance(self._bar)
            case StepRetried(step=step, attempt=attempt, error=error):
                err.print(Text(f"  {step}: attempt {attempt} failed, retrying: {error}"), style="yellow")
            case StepRecomputed(step=step, error=error):
                text = f"  {step}: the incremental refresh failed, doing a full refresh: {error}"
                err.print(Text(text), style="yellow")
            case FileQuarantined(step=step, path=path, error=error):
                err.print(Text(f"  {step}: quarantined {path}: {error}"), style="yellow", soft_wrap=True)
            case LinesMalformed(step=step, lines=lines):
                err.print(f"  {step}: {lines}", style="yellow")
            case ProgressUpdated(progress=progress):
                for going in progress.going:
                    if going.step in self._steps and going.amount.total:
                        amount = going.amount
                        self._progress.update(self._steps[going.step], completed=amount.done, total=amount.total)
            case RunRecovered(run=run):
                err.print(f"  recovered run {run}, whose process had died", style="yellow")
            case _:
                assert_never(notification)

    def _remove(self, step: str) -> None:
        if (bar := self._steps.pop(step, None)) is not None:
            self._progress.remove_task(bar)


class CountDisplay:
    """Progress bar of a counted activity; silent where standard error is not a terminal.

    Args:
        what: description of the activity.
        quiet: show nothing at all.
    """

    def __init__(self, what: str, *, quiet: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=err,
            transient=True,
            disable=quiet or not err.is_terminal,
        )
        self._bar = self._progress.add_task(what, total=None)

    def __enter__(self) -> CountDisplay:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, done: int, total: int) -> None:
        """Update the number done and the total."""
        self._progress.update(self._bar, completed=done, total=total)
