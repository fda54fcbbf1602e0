"""Progress of a run that has not ended.

Spark's work is counted in Spark tasks, which become known stage by stage: the total grows while a step runs, and falls
where a stage turns out not to be needed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaskCount:
    """Number of Spark tasks done, and number known so far."""

    done: int = 0
    total: int = 0

    def __add__(self, other: TaskCount) -> TaskCount:
        return TaskCount(self.done + other.done, self.total + other.total)


@dataclass(frozen=True, slots=True)
class StepProgress:
    """Progress of a running step, in Spark tasks."""

    step: str
    amount: TaskCount = TaskCount()

    def __str__(self) -> str:
        """Return the progress as text.

        >>> str(StepProgress("best", TaskCount(3, 8))), str(StepProgress("best"))
        ('best 3/8', 'best')
        """
        return f"{self.step} {self.amount.done}/{self.amount.total}" if self.amount.total else self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """Progress of a run.

    Attributes:
        steps: number of its steps.
        ended: number of steps that have ended.
        going: the steps that are running.
    """

    steps: int
    ended: int
    going: tuple[StepProgress, ...]

    def __str__(self) -> str:
        """Return the progress as text.

        >>> str(RunProgress(steps=5, ended=2, going=(StepProgress("best", TaskCount(3, 8)), StepProgress("per_user"))))
        '2 of 5 steps; best 3/8, per_user'
        """
        return "; ".join(filter(None, (f"{self.ended} of {self.steps} steps", ", ".join(map(str, self.going)))))
