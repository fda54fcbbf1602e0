"""What is running, on the terminal: a line per step, while it runs and once it has ended."""

from __future__ import annotations

from types import TracebackType

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
from kilonova.engine.events import Event, Recovered, Retried, Started, StepEnded, StepStarted


class Watch:
    """Listens to runs and shows how they go; silent where nobody looks at the terminal.

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

    def __enter__(self) -> Watch:
        self._progress.start()
        if not self._quiet:
            self._bar = self._progress.add_task("starting Spark", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        if self._quiet:
            return
        match event:
            case Started(steps=steps):
                if self._bar is not None:
                    self._progress.update(self._bar, description="starting", total=len(steps), completed=0)
            case StepStarted(step=step, reason=reason):
                if self._bar is not None:
                    self._progress.update(self._bar, description=f"{step}  [dim]{reason}[/dim]")
            case StepEnded(step=step, rows=rows, seconds=seconds):
                if self._bar is not None:
                    self._progress.advance(self._bar)
                made = "nothing changed" if rows is None else f"{number(rows)} rows"
                err.print(f"  {step}: {made} in {seconds:.1f} s", style="dim")
            case Retried(step=step, attempt=attempt, error=error):
                err.print(f"  {step}: attempt {attempt} failed, trying again: {error}", style="yellow")
            case Recovered(run=run):
                err.print(f"  run {run} was left by a process that died; cleaned up", style="yellow")
