"""What is running, on the terminal: a line per step, while it runs and once it has ended."""

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

from kilonova.cli.render import err, number
from kilonova.engine.telling import (
    FellBack,
    Recovered,
    Retried,
    Started,
    StepCopied,
    StepEnded,
    StepFailed,
    StepSkipped,
    StepStarted,
    Telling,
    Underway,
)


class Watch:
    """Listens to runs and shows how they go; silent where nobody looks at the terminal.

    The first line is the run, counted in steps; below is a line for each step that goes on, counted in Spark's tasks.

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

    def __enter__(self) -> Watch:
        self._progress.start()
        if not self._quiet:
            self._bar = self._progress.add_task("starting Spark", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, telling: Telling) -> None:
        """Show what a run tells."""
        if self._quiet or self._bar is None:
            return
        match telling:
            case Started(run=run, steps=steps):
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
                made = "nothing changed" if rows is None else f"{number(rows)} rows"
                err.print(f"  {step}: {made} in {seconds:.1f} s", style="dim")
            case StepFailed(step=step):
                self._remove(step)
                self._progress.advance(self._bar)
            case StepCopied():
                pass
            case StepSkipped():
                self._progress.advance(self._bar)
            case Retried(step=step, attempt=attempt, error=error):
                err.print(f"  {step}: attempt {attempt} failed, trying again: {error}", style="yellow")
            case FellBack(step=step, error=error):
                err.print(f"  {step}: its change failed, making it anew: {error}", style="yellow")
            case Underway(headway=headway):
                for going in headway.going:
                    if going.step in self._steps and going.amount.total:
                        amount = going.amount
                        self._progress.update(self._steps[going.step], completed=amount.done, total=amount.total)
            case Recovered(run=run):
                err.print(f"  run {run} was left by a process that died; cleaned up", style="yellow")
            case _:
                assert_never(telling)

    def _remove(self, step: str) -> None:
        if (bar := self._steps.pop(step, None)) is not None:
            self._progress.remove_task(bar)


class Counter:
    """Shows how far something has come that is counted; silent where nobody looks at the terminal.

    Args:
        what: what goes on.
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

    def __enter__(self) -> Counter:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, done: int, total: int) -> None:
        """Show how much is done, of how much."""
        self._progress.update(self._bar, completed=done, total=total)
